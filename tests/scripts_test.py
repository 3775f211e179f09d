#!/usr/bin/env python3
# The scripts that people read output of: the table of results, the list of skipped tests, the comparisons of two builds and with other libraries; what the script of models says; and that every shell script parses.
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_results(folder):
    row = {"event": "row", "op": "gate", "dims": {"M": 8}, "threads": 1, "cache": "hot", "tier": "T2", "us": 20.0, "spread": 0.02,
           "of_peak": 0.91, "of_read": None, "of_copy": None}
    summary = {"event": "summary", "rows": 1, "from_store": 1, "compiled_xbyak": 0, "compiled_llvm": 0, "searches": 0, "worst_row": "gate M=8"}
    warm = {"event": "row", "op": "gate", "dims": {"M": 8}, "us": 20.0, "default_us": 30.0}
    (folder / "w.bench.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(summary) + "\n")
    (folder / "w.warmup.jsonl").write_text(json.dumps(warm) + "\n")
    text = run(sys.executable, ROOT / "bench/make_table.py", folder)
    assert "| gate | M=8 | 1 | hot | T2 | 20.0 | 2% | 91% | - | - | 1.50x |" in text, text
    assert "1 rows, 1 from the store; compiled: 0 by xbyak, 0 by LLVM; 0 searches" in text, text
    empty = folder / "empty"
    empty.mkdir()
    assert "|" not in run(sys.executable, ROOT / "bench/make_table.py", empty)


def test_judge(folder):
    machine = {"target": {"family": 26, "isa": "avx512"}}
    rows = [{"op": "mm_f32_4x4096x4096", "of_read": 0.92}, {"op": "mm_f32_8x4096x4096", "of_read": 0.89, "of_peak": 0.3, "peak_of": "fma"},
            {"op": "low_q4_k_8x4096x4096", "of_peak": 0.61, "peak_of": "vpdpbusd", "ceiling": 0.8},
            {"op": "low_q4_k_16x4096x4096", "of_peak": 0.59, "peak_of": "vpdpbusd", "ceiling": 0.8},
            {"op": "decode_hot_32_8_f32", "of_read": 0.1}, {"op": "unheard_of"}, {"op": "square_f32_256x256x256", "of_peak": None}]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in rows) + '\n{"event": "summary"}\n')

    def judged(text):
        (folder / "here.json").write_text(json.dumps(text))
        done = subprocess.run([sys.executable, ROOT / "bench/judge.py", ROOT / "bench/limits-llm.targets.json", folder / "rows.jsonl",
                               folder / "here.json"], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    code, out = judged(machine)
    assert code == 1 and [line.split()[0] for line in out[:-1]] == ["met", "missed", "met", "missed", "not", "not", "not"], out
    assert out[1].endswith("of_read 0.89, expected 0.90") and out[2].endswith("0.76 of the ceiling 0.80, expected 0.75"), out
    assert out[-1] == "2 met, 2 missed, 3 not judged", out
    # The limit that a row is not judged by binds, or is near: that counts on another family only.
    rows[1]["of_peak"], rows[3]["of_read"] = 0.7, 0.81
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in rows))
    code, out = judged(machine)
    assert code == 1 and out[-1] == "2 met, 2 missed, 3 not judged" and "binds" not in "".join(out), out
    for isa in ("avx512", "amx"):
        machine["target"] = {"family": 25, "isa": isa}
        code, out = judged(machine)
        assert out[-1] == "4 met, 0 missed, 3 not judged", out
        assert out[1].endswith("of_peak 0.70 binds or is near, 0.80 expected of the larger"), out
        assert out[3].endswith("of_read 0.81 binds or is near, 0.80 expected of the larger"), out
    # Without a ceiling nothing is judged by it; the larger limit is taken over it.
    alone = [{"op": "low_q5_0_8x4096x4096", "of_peak": 0.7, "peak_of": "vpdpbusd"},
             {"op": "gemv_q4_0_4x4096x4096", "of_read": 0.7, "of_peak": 0.72, "peak_of": "vpdpbusd", "ceiling": 0.89}]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in alone))
    code, out = judged(machine)
    assert code == 0 and out[0].endswith("the row has no ceiling") and "of_peak 0.81 binds" in out[1] and out[1].startswith("met"), out
    # A peak that does not name its instruction says nothing.
    for row in alone:
        del row["peak_of"]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in alone))
    code, out = judged(machine)
    assert code == 1 and out[0].endswith("the row has no peak_of") and out[1].endswith("of_read 0.70, expected 0.95"), out
    both = [{"op": "single_4x2048x2048", "us": 10.0}, {"op": "grouped_8x4x2048x2048", "us": 88.0}, {"op": "paged_16_f32_32_8", "us": 1.0},
            {"op": "mm_f32_8x4096x4096", "of_peak": 0.5, "of_read": 0.95}, {"op": "two_mm_f32_8x4096x4096", "of_peak": 0.45, "of_read": 0.855},
            {"op": "low_q8_0_8x4096x4096", "of_peak": 0.5, "peak_of": "fma"}, {"op": "two_low_q8_0_8x4096x4096", "of_peak": 0.5, "peak_of": "vpdpbusd"}]
    (folder / "both.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in both))
    done = subprocess.run([sys.executable, ROOT / "bench/judge.py", ROOT / "bench/limits-llm.targets.json", folder / "both.jsonl"], capture_output=True,
                          text=True, check=False)
    out = done.stdout.splitlines()
    assert [line.split()[0] for line in out[:-1]] == ["not", "met", "not", "met", "missed", "not", "not"], out
    assert out[1].endswith("speed 0.91 of single_4x2048x2048, expected 0.90") and out[2].endswith("no row contiguous_f32_32_8"), out
    assert out[4].endswith("of_read 0.90 of mm_f32_8x4096x4096, expected 0.95"), out
    assert out[6].endswith("its peak_of is not that of low_q8_0_8x4096x4096"), out
    # Of several runs the median counts.
    runs = [{"op": "mm_f32_4x4096x4096", "of_read": share} for share in (0.5, 0.93, 0.94)]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in runs))
    code, out = judged(machine)
    assert code == 0 and out[0].endswith("of_read 0.93, expected 0.92") and out[1] == "1 met, 0 missed, 0 not judged", out
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"event": "row", **r}) for r in rows))
    machine["target"]["isa"] = "avx2"
    assert judged(machine)[1][-1] == "0 met, 0 missed, 7 not judged"
    (folder / "rows.jsonl").write_text("no JSON\n")
    assert judged(machine) == (1, [])
    # Every row of the workload has a target, and every target a row.
    names = [json.loads(line)["name"] for line in (ROOT / "bench/workloads/limits-llm.jsonl").read_text().splitlines()]
    patterns = [t["rows"] for t in json.loads((ROOT / "bench/limits-llm.targets.json").read_text())["targets"]]
    first = [next((i for i, p in enumerate(patterns) if any(fnmatch.fnmatch(n, q) for q in p)), None) for n in names]
    assert set(first) == set(range(len(patterns))), set(range(len(patterns))) - set(first)


def test_plot(folder):
    (folder / "openblas.txt").write_text("# a machine\n31x64x33   0.58 us  openblas   0.60 us  1.033\n1 rows; worst\n")
    row = {"event": "row", "op": "gate", "dims": {"M": 8}, "of_roofline": 0.5, "limit": "read"}
    (folder / "qwen2.5-0.5b.bench.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({"event": "summary"}) + "\n")
    run(sys.executable, ROOT / "bench/plot_results.py", folder)
    text = (folder / "summary.svg").read_text()
    assert "31x64x33: 1.033" in text and "gate M8: 0.500" in text, text
    (folder / "openblas.txt").write_text("")
    done = subprocess.run([sys.executable, ROOT / "bench/plot_results.py", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no rows" in done.stderr, done


def test_rooms():
    run(sys.executable, ROOT / "scripts/draw_rooms.py", "--check")


def test_gpu(folder):
    """What gpu_static.py makes of a report, and the summary of a device that is not there."""
    case = lambda name, **more: {"name": name, "classname": more.pop("suite", "DeviceServe"), "status": "RUN", **more}
    report = folder / "gpu.json"
    report.write_text(json.dumps({"testsuites": [{"testsuite": [
        case("A", kernels="30", spills="0", warnings="0", opcode_failures="0", nvrtc="nvrtc 12.9", suite="CompileMatrix"),
        case("B", emulated="7"), case("AnotherProcessServesIt", compiles_second="0", suite="DeviceStore"),
        case("C", identities_equal="1", suite="CpuIdentities"), case("D", skipped=[{"message": "x.cc:1\nno cuda.h"}]),
        {"name": "E", "classname": "DeviceStore", "status": "NOTRUN"}]}]}))
    out = json.loads(run(sys.executable, ROOT / "scripts/gpu_static.py", report, "--json"))
    assert list(out) == ["state", "nvrtc", "kernels", "spills", "warnings", "opcode_failures", "emulated", "emulator_failures", "conflicts",
                         "planted", "caught", "fake_served", "fake_compiles_second", "identities_equal", "skipped"], out
    assert (out["state"], out["kernels"], out["emulated"], out["fake_served"], out["skipped"]) == ("ok", 30, 7, 1, 1), out
    assert out["planted"] is None and out["fake_compiles_second"] == 0 and out["identities_equal"] is True, out
    report.write_text(report.read_text().replace('"emulated": "7"', '"emulated": "7", "failures": [{"failure": "f"}]'))
    done = subprocess.run([sys.executable, ROOT / "scripts/gpu_static.py", report, "--json"], capture_output=True, text=True, check=False)
    out = json.loads(done.stdout)
    assert done.returncode == 1 and out["state"] == "failed" and out["emulator_failures"] == 1 and "DeviceServe.B" in done.stderr, done


GPU_FIELDS = ["gpu", "driver", "conformance", "conformance_failures", "checked", "failed", "gemm", "geomean", "worst", "rows_of_copy", "gemv_of_copy",
              "prefill_tflops", "decode_tbs"]
# Programs of a machine that has a GPU, as far as they say; what is behind `case`: whatever a test plants.
GPU_PROGRAM = """#!/bin/sh
case "$(basename "$0") $*" in %s
*gpu_peer*) echo '{"event": "skipped", "message": "no cuBLASLt; nowhere"}'; exit 3;;
*gpu_ceilings*) echo '{"event": "summary", "copy_gbs": 4000}';;
*gpu_calls*) echo '{"event": "summary", "checked": 24, "failures": [], "execute_us": 5, "pinned_us": 4}';;
*gpu_conformance*) echo '{"event": "summary", "checked": 9, "failures": [], "worst_ulp": 1}';;
*" info "*) echo '{"event": "summary", "state": "ready", "driver": "12.4", "target": {"name": "a GPU"}}';;
*" verify "*) echo '{"event": "summary", "checked": 5, "failed": 0}';;
*" warmup "*) echo '{"event": "summary", "ops": 1, "compiled_nvrtc": 1, "searches": 0, "measurements": 0, "rejected": 0, "failed": 0, "pending": 0}';;
*" bench "*)
  for op in chain_relu gemv_bf16 prefill_8192 decode_32; do
    echo "{\\"event\\": \\"row\\", \\"op\\": \\"$op\\", \\"tier\\": \\"T2\\", \\"us\\": 1, \\"spread\\": 0, \\"gbs\\": 3000, \\"tflops\\": 500, \\"copy_gbs\\": 4000, \\"of_copy\\": 0.9}"
  done;;
esac
"""


def gpu_device(folder, name, planted="", *options):
    """The status and summary of --device with these programs, and the stages that it wrote."""
    build = folder / name
    for program in ("tools/lathe", "tools/lathe-worker", "bench/gpu/gpu_conformance", "bench/gpu/gpu_peer", "bench/gpu/gpu_ceilings", "bench/gpu/gpu_calls",
                    "tests/gpu/libfake_cuda.so", "bin/ncu", "bin/compute-sanitizer"):
        (build / program).parent.mkdir(parents=True, exist_ok=True)
        (build / program).write_text(GPU_PROGRAM % planted)
        (build / program).chmod(0o755)
    command = [sys.executable, ROOT / "scripts/gpu_stages.py", "--device", "0", "--json", "--out", folder / f"{name}.out", *options]
    env = {**os.environ, "LATHE_GPU_BUILD": str(build), "PATH": f"{build}/bin:{os.environ['PATH']}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    lines = (folder / f"{name}.out/device.jsonl").read_text().splitlines()
    return done.returncode, json.loads(done.stdout), {line["stage"]: line for line in map(json.loads, lines)}


def test_gpu_device(folder):
    code, out, stages = gpu_device(folder, "none", "*' info '*) echo '{\"event\": \"summary\", \"state\": \"no_driver\", \"driver_note\": \"no CUDA driver\"}';;")
    assert code == 1 and list(out)[:len(GPU_FIELDS)] == GPU_FIELDS and all(out[f] is None for f in GPU_FIELDS), out
    assert set(GPU_FIELDS) <= set(out["why_null"]) and out["why_null"]["gpu"] == "no CUDA driver" and list(stages) == ["versions", "summary"], stages
    # A missing cuBLASLt and refused profilers are skipped, with the reason; nothing of it fails the run.
    code, out, stages = gpu_device(folder, "refused", "*ncu*|*compute-sanitizer*) echo '==ERROR== ERR_NVGPUCTRPERM: not allowed'; exit 1;;")
    assert code == 0 and out["gemm"] is None and out["why_null"]["gemm"] == "no cuBLASLt; nowhere" == out["why_null"]["worst"], out
    assert (out["checked"], out["failed"], out["conformance"], out["rows_of_copy"], out["prefill_tflops"], out["decode_tbs"]) == (35, 0, 9, .9, 500, 3), out
    for tool in ("ncu", "memcheck", "racecheck", "synccheck"):
        assert stages[tool]["status"] == "skipped" and "ERR_NVGPUCTRPERM" in stages[tool]["reason"], stages
    assert stages["products"]["status"] == "skipped" and stages["ceilings"]["found"] == {"copy_gbs": 4000}, stages
    # With it, ratios; of layers of models the mean and the worst. Profilers that are allowed say something.
    rows = "".join(f'{{\"event\": \"row\", \"op\": \"gemm_{op}\", \"us\": 1, \"of_peer\": {ratio}}}\n'
                   for op, ratio in (("bf16_4096", 1.25), ("model_1x2x3", 0.5), ("model_4x5x6", 2)))
    code, out, stages = gpu_device(folder, "all", f"*gpu_peer*) printf '{rows}';; ncu*|compute-sanitizer*) echo profiled;;")
    assert code == 0 and out["gemm"] == {"bf16_4096": 1.25, "model_1x2x3": 0.5, "model_4x5x6": 2} and (out["geomean"], out["worst"]) == (1, 0.5), out
    assert stages["ncu"]["found"] == ["profiled"] and out["why_null"] == {}, (stages, out)
    # A call that should have been refused fails its stage.
    code, out, stages = gpu_device(folder, "calls", "*gpu_calls*) echo '{\"event\": \"summary\", \"failures\": [\"no stream: taken\"]}'; exit 1;;", "--stage", "calls")
    assert code == 1 and stages["calls"]["status"] == "failed" and stages["calls"]["reason"] == "no stream: taken", stages
    # Stages that were not asked for do not run, and are no failure.
    code, out, stages = gpu_device(folder, "some", "", "--stage", "times", "--stage", "ceilings")
    assert code == 0 and list(stages) == ["versions", "ceilings", "times", "summary"], stages
    assert out["rows_of_copy"] == .9 and out["checked"] is None and out["why_null"]["checked"] == "not asked for", out
    # A stage that fails costs itself, and the status.
    code, out, stages = gpu_device(folder, "fails", "*' bench '*) echo broken >&2; exit 1;;")
    assert code == 1 and stages["times"]["status"] == "failed" and out["why_null"]["decode_tbs"] == "broken" and out["checked"] == 35, (stages, out)
    sys.path.insert(0, str(ROOT / "scripts"))
    import gpu_stages
    stages = gpu_stages.stages_of()
    assert sum(seconds for _, seconds, _ in stages) <= gpu_stages.MOST_SECONDS, stages
    try:
        run = object.__new__(gpu_stages.Run)
        run.env = dict(os.environ)
        run.command(1, "sleep", "20")
        assert False, "no timeout"
    except TimeoutError as why:
        assert str(why) == "no end after 1 s"
    # What a command said until then is kept where that means something.
    assert run.command(1, "sh", "-c", "echo '{\"a\": 1}'; exec sleep 20", partial=True, may_fail=True) == [{"a": 1}] and run.late == ["no end after 1 s"]


def test_gpu_pack(folder):
    """Programs with their libraries, the scripts, and a list of it all that is true; a folder that is in use, or what is too large, is refused."""
    build = folder / "to_pack"
    fakes = [f"tests/gpu/libfake_{name}.so" for name in ("cuda", "nvrtc", "cublaslt")]
    for name in ("tools/lathe", "tools/lathe-worker", "bench/gpu/gpu_conformance", "bench/gpu/gpu_peer", "bench/gpu/gpu_ceilings", "bench/gpu/gpu_calls", *fakes):
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(shutil.which("ls"), build / name)  # a program with libraries, which takes nothing amiss

    def pack(to, most=None):
        code = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import gpu_stages as g; sys.argv = ['gpu.sh', '--pack', {str(to)!r}]; "
        code += f"g.MOST_BYTES = {most or 'g.MOST_BYTES'}; g.subprocess.run = keep(g.subprocess.run); sys.exit(g.main())"
        # What they are asked for, they do not know.
        code = "def keep(run): return lambda *a, **k: run(*a, **{**k, 'check': False})\n" + code
        return subprocess.run([sys.executable, "-c", code], env={**os.environ, "LATHE_GPU_BUILD": str(build)}, capture_output=True, text=True, check=False)

    done = pack(folder / "pack")
    assert done.returncode == 0, done
    listed = json.loads((folder / "pack/MANIFEST.json").read_text())
    for name, file in listed["files"].items():
        data = (folder / "pack" / name).read_bytes()
        assert len(data) == file["bytes"] and hashlib.sha256(data).hexdigest() == file["sha256"], name
    names = set(listed["files"])
    assert {"bin/lathe", "bin/lathe-worker", "bin/gpu_peer", "bin/gpu_ceilings", "bin/gpu_conformance", "lib/libfake_cuda.so", "scripts/gpu.sh",
            "scripts/gpu_stages.py"} <= names and sum(f["bytes"] for f in listed["files"].values()) == listed["bytes"], names
    assert [n for n in listed["notes"] if n.startswith("nothing for h200")], listed["notes"]  # it has no compiler
    assert "is not empty" in pack(folder / "pack").stderr and "expected at most 1000" in pack(folder / "small", 1000).stderr


def test_skipped(folder):
    junit = folder / "junit.xml"
    junit.write_text('<testsuite><testcase name="A.b" status="notrun"><skipped message="m"/><system-out>x_test.cc:1: Skipped\n'
                     'gdb is not installed\n</system-out></testcase><testcase name="A.c" status="run"/>'
                     '<testcase name="script" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>begins\n'
                     'numpy is missing\n</system-out></testcase></testsuite>')
    text = run(sys.executable, ROOT / "scripts/skipped.py", junit)
    assert text == "3 tests, 2 skipped\n  1 skipped: gdb is not installed (A.b)\n  1 skipped: numpy is missing (script)\n", text


def test_compare_builds(folder):
    def fake(name, us):  # a lathe whose row takes so long
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{json.dumps({'event': 'row', 'op': 'gate', 'dims': {'M': 8}, 'us': us})}'\n")
        program.chmod(0o755)
        return program
    manifest = folder / "gate.jsonl"
    manifest.write_text(json.dumps({"name": "gate"}) + "\n")
    def compare(old, new):
        command = [sys.executable, ROOT / "bench/compare_builds.py", manifest, "--old", old, "--new", new, "--rounds", "3", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]
    slow, fast = fake("slow", 20.0), fake("fast", 10.0)
    code, lines = compare(slow, fast)
    assert code == 0 and lines[0]["gain"] == 2 and lines[0]["control"] == 1 and lines[-1] == {"rows": 1, "slower": 0}, lines
    code, lines = compare(fast, slow)
    assert code == 1 and lines[-1] == {"rows": 1, "slower": 1}, lines


FAKE_WORKER = """#!%s
# Answers as bench/compare/worker.py does, with times that are given by name; "error" in place of a time: it cannot run.
import json, sys
us = json.load(open(%r))
name = sys.argv[2]
mine = us.get(name, "not installed")
print(json.dumps({} if name == "probe" or not isinstance(mine, str) else {"error": mine}), flush=True)
for line in sys.stdin:
    do = json.loads(line)["do"]
    print(json.dumps({"probe": {"arithmetic_us": 1, "read_us": 1}, "agree": {"nmse": us["nmse"]}, "forget": {}, "sample": {"us": mine},
                      "prepare": {"us": mine, "way": "fake", "version": "1", "through_c": name in ("lathe", "openblas")}}[do]), flush=True)
"""


def test_compare(folder):
    """What compare.py makes of what its participants say, and what it refuses."""
    (folder / "bin").mkdir()
    times, python = folder / "us.json", folder / "bin/python"
    python.write_text(FAKE_WORKER % (sys.executable, str(times)))
    python.chmod(0o755)
    library = folder / "liblathe.so"
    library.write_text("")

    def compare(us, *arguments, shapes="limits"):
        times.write_text(json.dumps({"nmse": 0, **us}))
        command = [sys.executable, ROOT / "bench/compare.py", shapes, "--environment", folder, "--library", library, "--json", "--rounds", "3"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    one = ("--filter", "matmul_512*")
    code, lines, _ = compare({"lathe": 200, "onnxruntime": 300, "openblas": 250}, *one)
    assert code == 0 and [line["event"] for line in lines] == ["machine", "row", "summary"], lines
    assert lines[1]["us"] == 200 and lines[1]["peers"] == {"onnxruntime": 300, "openblas": 250} and lines[1]["vs_best_peer"] == 1.25, lines
    assert lines[1]["missing"]["torch"] == "not installed" and lines[2]["peers_run"] == ["onnxruntime", "openblas"], lines
    assert (lines[2]["geomean_vs_best_peer"], lines[2]["worst_row"], lines[2]["not_judged"]) == (1.25, "matmul_512x512x512", 0), lines
    # Without the strongest peer, and where a call from Python is a part of what it took, nothing is judged.
    code, lines, _ = compare({"lathe": 200, "openblas": 250}, *one)
    assert code == 0 and lines[1]["vs_best_peer"] is None and "onnxruntime" in lines[1]["not_judged"] and lines[2]["not_judged"] == 1, lines
    code, lines, _ = compare({"lathe": 80, "onnxruntime": 120, "openblas": 90}, *one)
    assert lines[1]["vs_best_peer"] is None and "Python" in lines[1]["not_judged"] and lines[1]["peers"]["openblas"] == 90, lines
    code, lines, _ = compare({"lathe": 200, "onnxruntime": 300, "nmse": 0.5}, *one)
    assert code == 1 and "NMSE" in lines[1]["differs"][0] and lines[1]["vs_best_peer"] is None, lines
    code, lines, _ = compare({"lathe": "no store", "onnxruntime": 300}, *one)
    assert code == 2, lines

    def refused(text, *arguments, **named):
        code, lines, message = compare({}, *arguments, **named)
        assert code == 2 and not lines and message.startswith("compare: ") and message.count("\n") == 1 and text in message, message
    refused("nosuch: no such file", shapes="nosuch")
    refused("--peers: mkl, expected some of", "--peers", "mkl")
    refused("no operator is named like zz", "--filter", "zz")
    refused("--rounds: expected at least 1", "--rounds", "0")
    refused("scripts/peers.sh makes it", "--environment", folder / "nowhere")
    refused("cmake --preset release", "--library", folder / "nothing.so")
    broken = folder / "broken.jsonl"
    broken.write_text('{"name": "x"\n')
    refused("broken.jsonl: expected a manifest", shapes=broken)
    broken.write_text('{"name": "x"}\n')
    refused("broken.jsonl: expected a manifest", shapes=broken)


def test_peers(folder):
    done = subprocess.run([ROOT / "scripts/peers.sh", "mkl"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr == "peers: mkl: expected one of onnxruntime openblas ggml torch\n", done.stderr
    # What cannot be had is said, peer by peer.
    done = subprocess.run([ROOT / "scripts/peers.sh", "openblas", "ggml"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PEERS": str(folder / "peers"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)})
    assert done.returncode == 1, done
    if "python3-venv" not in done.stderr:
        assert "peers: openblas: not there" in done.stderr and "peers: ggml: not there" in done.stderr, done.stderr


def test_models(folder):
    def models(*arguments):
        done = subprocess.run([ROOT / "scripts/models.sh", *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "PIP_NO_INDEX": "1"})
        return done.returncode, done.stderr
    code, message = models("llama")
    assert code == 2 and message == "models: llama: expected gemma3-270m or qwen2.5-0.5b\n", message
    code, message = models("gemma3-270m", folder / "models")
    assert code == 1 and "models: " in message and "expected" in message, message
    assert not list((folder / "models").iterdir())
    (folder / "models/gemma3-270m.gguf").write_text("a part of it")
    code, message = models("gemma3-270m", folder / "models")
    assert code == 1 and "gemma3-270m.gguf: SHA-256" in message, message


# Edits of the examples of docs/add_a_*.md find their places (scripts/try_extensions.sh also builds them).
def test_extensions(folder):
    for example in sorted(f.name for f in (ROOT / "tests/extensions").iterdir() if f.is_dir() and f.name != "__pycache__"):
        tree = folder / example
        edited = re.findall(r"^file (.*)$", (ROOT / "tests/extensions" / example / "edits.txt").read_text(), re.M)
        for path in [*edited, "tests/extensions/apply.py"]:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tree / path)
        shutil.copytree(ROOT / "tests/extensions" / example, tree / "tests/extensions" / example)
        limit = int(run(sys.executable, tree / "tests/extensions/apply.py", "--about", tree, example).split()[0])
        touched = int(run(sys.executable, tree / "tests/extensions/apply.py", tree, example))
        assert 0 < touched <= limit, (example, touched, limit)


def test_every_machine_has_a_preset():
    rows = re.findall(r"^LATHE_MACHINE\((\w+),", (ROOT / "tests/common/machines.def").read_text(), re.MULTILINE)
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    named = {p["name"]: p["environment"]["LATHE_TEST_MACHINE"] for p in presets if "environment" in p}
    assert len(rows) >= 4 and named == {row: row for row in rows}, (rows, named)


def test_shell_scripts_parse():
    scripts = sorted(ROOT.glob("scripts/*.sh")) + sorted(ROOT.glob("tests/install/*.sh")) + [ROOT / ".ci/run"]
    assert len(scripts) >= 5
    for script in scripts:
        run("bash", "-n", script)


def test_programs_say_what_they_take():
    """Whoever asks, or gives something else, gets a line and no trace; where a package is missing that is said."""
    folders = ("bench", "bench/decoder_loop", "bench/tables", "scripts")
    programs = [p for folder in folders for p in sorted((ROOT / folder).glob("*.py"))
                if 'if __name__ == "__main__"' in p.read_text()]
    assert len(programs) >= 10, programs
    for program in programs:
        done = subprocess.run([sys.executable, program, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=20, check=False)
        assert re.search("usage|expected|needs the packages", done.stdout + done.stderr), (program, done)
        assert "Traceback" not in done.stderr, (program, done.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        test_results(pathlib.Path(made))
        test_plot(pathlib.Path(made))
        test_judge(pathlib.Path(made))
        test_rooms()
        test_gpu(pathlib.Path(made))
        test_gpu_device(pathlib.Path(made))
        test_gpu_pack(pathlib.Path(made))
        test_skipped(pathlib.Path(made))
        test_compare_builds(pathlib.Path(made))
        test_compare(pathlib.Path(made))
        test_peers(pathlib.Path(made))
        test_models(pathlib.Path(made))
        test_extensions(pathlib.Path(made))
        test_every_machine_has_a_preset()
        test_shell_scripts_parse()
        test_programs_say_what_they_take()
