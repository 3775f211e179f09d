#!/usr/bin/env python3
# The stages of scripts/gpu.sh --fake, --device and --pack. Each stage runs under `timeout` and appends a line to one file of
# results as soon as it ends; what the machine refuses is skipped with the reason. The last line sums up.
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_BYTES = 48 << 20
NO_LIBRARY = 3  # exit status of gpu_peer without cuBLASLt
# Part of the system everywhere.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so)")


def operator(name, tensors, nodes, outputs, cold=False, dtype="f32"):
    line = {"name": name, "graph": {"tensors": {t: {"dtype": dtype, "dims": d} for t, d in tensors.items()}, "nodes": nodes, "outputs": outputs}}
    if cold:
        line["cache"] = "cold"
    return line


def workload(tiny):
    """Operators to check and time. Their names say what they stand for: rows_, gemv_, gemm_MxNxK, chain_, prefill_, decode_."""
    n, rows, width = (3001, 5, 97) if tiny else (1 << 26, 16384, 4096)
    big = [(48, 33, 40)] if tiny else [(4096, 4096, 4096), (2048, 2048, 2048), (1024, 4096, 1024)]
    vectors = [(40, 33)] if tiny else [(8192, 8192), (4096, 4096)]
    node = lambda op, ins, out, **attrs: {"op": op, "in": ins, "out": out, **({"attrs": attrs} if attrs else {})}
    lines = [
        operator("chain_silu_mul", {"g": [n], "u": [n]}, [node("silu", ["g"], "s"), node("mul", ["s", "u"], "y")], ["y"], True),
        operator("chain_relu", {"x": [n]}, [node("relu", ["x"], "y")], ["y"], True),
        operator("chain_bias", {"x": [rows, width], "b": [width]}, [node("add", ["x", "b"], "y")], ["y"], True),
        operator("rows_softmax", {"x": [rows, width]}, [node("softmax", ["x"], "y")], ["y"], True),
        operator("rows_rmsnorm", {"x": [rows, width], "w": [width]}, [node("rmsnorm", ["x", "w"], "y")], ["y"], True),
        operator("move_transpose", {"x": [rows, width]}, [node("transpose", ["x"], "y", perm=[1, 0])], ["y"], True),
    ]
    for m, k in vectors:
        lines.append(operator(f"gemv_1x{k}x{m}", {"x": [1, m], "w": [k, m]}, [node("matmul", ["x", "w"], "y", transpose_b=True)], ["y"], True))
    heads, kept, depth, length, sequences = (4, 2, 24, 37, 2) if tiny else (16, 4, 128, 8192, 32)
    attend = lambda name, q, kv, cold: operator(name, {"q": q, "k": kv, "v": kv}, [node("attention", ["q", "k", "v"], "y", causal=True)], ["y"], cold, "bf16")
    lines.append(attend(f"prefill_{length}", [heads, length, depth], [kept, length, depth], False))
    lines.append(attend(f"decode_{sequences}x{length}", [sequences, heads, 1, depth], [sequences, kept, length, depth], True))
    for m, k_n, k in big:
        lines.append(operator(f"gemm_{m}x{k_n}x{k}", {"a": [m, k], "b": [k, k_n]}, [node("matmul", ["a", "b"], "y")], ["y"]))
    return lines


def programs():
    """The folders of the command line and of the programs of bench/gpu, and the fakes: of a pack, else of a build."""
    if (ROOT / "bin/lathe").exists():
        return {"lathe": ROOT / "bin/lathe", "worker": ROOT / "bin/lathe-worker", "conformance": ROOT / "bin/gpu_conformance",
                "peer": ROOT / "bin/gpu_peer", "fake_cuda": ROOT / "lib/libfake_cuda.so", "fake_nvrtc": ROOT / "lib/libfake_nvrtc.so"}
    builds = [os.environ.get("LATHE_GPU_BUILD"), "build/release", "build/dev"]
    build = next((ROOT / b for b in builds if b and (ROOT / b / "bench/gpu/gpu_peer").exists()), ROOT / "build/dev")
    fakes = next((ROOT / b for b in builds if b and (ROOT / b / "tests/gpu" / "libfake_cuda.so").exists()), build)
    return {"lathe": build / "tools/lathe", "worker": build / "tools/lathe-worker", "conformance": build / "bench/gpu/gpu_conformance",
            "peer": build / "bench/gpu/gpu_peer", "fake_cuda": fakes / "tests/gpu" / "libfake_cuda.so",
            "fake_nvrtc": fakes / "tests/gpu" / "libfake_nvrtc.so"}


class Refused(Exception):
    """The machine does not have it, or does not allow it."""


class Run:
    def __init__(self, args):
        self.fake, self.number = args.fake, str(args.device if args.device is not None else 0)
        self.bin = programs()
        missing = [str(p) for k, p in self.bin.items() if not p.exists() and (self.fake or k not in ("fake_cuda", "fake_nvrtc"))]
        if missing:
            sys.exit("gpu: not built: " + ", ".join(missing))
        self.out = pathlib.Path(args.out or ROOT / "build/gpu").resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.results = self.out / ("fake.jsonl" if self.fake else "device.jsonl")
        self.manifest = self.out / "workload.jsonl"
        self.manifest.write_text("".join(json.dumps(line) + "\n" for line in workload(self.fake)))
        self.store = self.out / "store"
        if (ROOT / "store").exists() and not self.store.exists():
            shutil.copytree(ROOT / "store", self.store)  # of a pack
            for path in [self.store, *self.store.rglob("*")]:
                path.chmod(0o700 if path.is_dir() else 0o600)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LATHE_") or k in ("LATHE_CUDA", "LATHE_NVRTC")}
        self.env["LATHE_WORKER"] = str(self.bin["worker"])
        if (ROOT / "bin/lathe").exists():  # a pack brings its libraries
            self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(ROOT / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]))
        if self.fake:
            self.env.update(LATHE_CUDA=str(self.bin["fake_cuda"]), LATHE_NVRTC=str(self.bin["fake_nvrtc"]))
        self.done = {}  # stage: what it found
        self.notes = {}  # stage: why it found nothing

    def command(self, seconds, *command, may_fail=False, accept=(0,)):
        """Runs under `timeout`; the JSON lines that it printed."""
        done = subprocess.run(["timeout", "-k", "5", str(seconds), *map(str, command)], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode in (124, 137):
            raise TimeoutError(f"no end after {seconds} s")
        lines = []
        for text in done.stdout.splitlines():
            if text.startswith("{"):
                try:
                    lines.append(json.loads(text))
                except ValueError:
                    pass
        if done.returncode not in accept and not may_fail:
            raise RuntimeError((done.stderr or done.stdout).strip()[-500:] or f"exit status {done.returncode}")
        self.code, self.said = done.returncode, done.stdout + done.stderr
        return lines

    def lathe(self, seconds, verb, *args, may_fail=False):
        return self.command(seconds, self.bin["lathe"], verb, *args, "--json", "--store", self.store, may_fail=may_fail)

    def stage(self, name, seconds, work):
        start, line = time.monotonic(), {"stage": name, "limit_s": seconds}
        try:
            self.done[name] = work(seconds)
            line.update(status="ok", found=self.done[name])
        except Refused as why:
            line.update(status="skipped", reason=str(why))
        except TimeoutError as why:
            line.update(status="timeout", reason=str(why))
        except Exception as why:  # a stage that fails costs itself only
            line.update(status="failed", reason=f"{why}")
        if line["status"] != "ok":
            self.notes[name] = line["reason"]
        line["seconds"] = round(time.monotonic() - start, 2)
        self.append(line)
        print(f'gpu: {name}: {line["status"]}{": " + line["reason"] if "reason" in line else ""}', file=sys.stderr)
        return line["status"]

    def append(self, line):
        with open(self.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    # The stages.
    def versions(self, seconds):
        info = self.lathe(seconds, "info", "--device", self.number)[-1]
        if info["state"] == "no_driver":
            raise Refused(info["driver_note"])
        smi = shutil.which("nvidia-smi")
        info["smi"] = None
        if smi and not self.fake:
            query = "--query-gpu=name,driver_version,clocks.max.sm,power.limit"
            info["smi"] = subprocess.run([smi, query, "--format=csv,noheader"], capture_output=True, text=True, check=False).stdout.strip()
        return info

    def conformance(self, seconds):
        if not self.bin["fake_cuda"].exists():
            raise Refused("no emulator here to compare with")
        command = [self.bin["conformance"], "--device", self.number, "--reference-cuda", self.bin["fake_cuda"], "--reference-store",
                   self.out / "reference"]
        if (ROOT / "reference").exists() and not (self.out / "reference").exists():
            shutil.copytree(ROOT / "reference", self.out / "reference")
            for path in [self.out / "reference", *(self.out / "reference").rglob("*")]:
                path.chmod(0o700 if path.is_dir() else 0o600)
        command += ["--reference-nvrtc", self.bin["fake_nvrtc"]]
        for option, variable in (("--cuda", "LATHE_CUDA"), ("--nvrtc", "LATHE_NVRTC")):
            if variable in self.env:
                command += [option, self.env[variable]]
        lines = self.command(seconds, *command, may_fail=True)
        if not lines or lines[-1]["event"] == "error":
            raise RuntimeError(lines[-1]["message"] if lines else self.said.strip()[-300:])
        return {k: lines[-1][k] for k in ("checked", "failures", "worst_ulp")}

    def correctness(self, seconds):
        checked, failed, reasons, unserved = 0, 0, [], set()
        seeds, repeats = (1, 1) if self.fake else (2, 3)
        for seed in range(seeds):
            for _ in range(repeats):  # an error that moves is a race
                lines = self.lathe(seconds // (seeds * repeats), "verify", self.manifest, "--device", self.number, "--seed", seed, may_fail=True)
                if not lines or lines[-1]["event"] != "summary":
                    raise RuntimeError(self.said.strip()[-300:])
                checked += lines[-1]["checked"]
                failed += lines[-1]["failed"]
                for row in lines:
                    if row["event"] == "row" and row["refused"]:
                        unserved.add(row["op"])
                    elif row["event"] == "row" and not row["ok"]:
                        reasons.append(f'{row["op"]}: {row["reason"]}')
        return {"checked": checked, "failed": failed, "reasons": reasons[:10], "not_served": sorted(unserved)}

    def ceilings(self, seconds):
        shapes = [line["name"].split("_", 1)[1] for line in workload(self.fake) if line["name"].startswith("gemm_")]
        shapes += [] if self.fake else ["bf16:4096x4096x4096", "bf16:8192x8192x8192"]
        command = [self.bin["peer"], "--device", self.number, *shapes]
        if "LATHE_CUDA" in self.env:
            command += ["--cuda", self.env["LATHE_CUDA"]]
        lines = self.command(seconds, *command, accept=(0, NO_LIBRARY))
        if self.code == NO_LIBRARY:
            raise Refused(lines[-1]["message"])
        return {row["product"]: row["us"] for row in lines if row["event"] == "row" and "us" in row}

    def warmup(self, seconds):
        lines = self.lathe(seconds, "warmup", self.manifest, "--device", self.number, "--budget", max(seconds // 2, 1), may_fail=True)
        if not lines or lines[-1]["event"] != "summary":
            raise RuntimeError(self.said.strip()[-300:])
        found = {k: lines[-1][k] for k in ("ops", "compiled_nvrtc", "searches", "measurements", "rejected", "failed", "pending")}
        found["rows"] = [{k: row[k] for k in ("op", "tier", "schedule", "us", "default_us")} for row in lines if row["event"] == "row"]
        found["errors"] = [row["message"] for row in lines if row["event"] == "error"]
        return found

    def times(self, seconds):
        lines = self.lathe(seconds, "bench", self.manifest, "--device", self.number, "--row-ms", 20 if self.fake else 400, may_fail=True)
        rows = [row for row in lines if row["event"] == "row"]
        if not rows:
            raise RuntimeError(self.said.strip()[-300:])
        keys = ("op", "tier", "us", "spread", "gbs", "tflops", "copy_gbs", "of_copy")
        return {"rows": [{k: row[k] for k in keys} for row in rows], "errors": [row["message"] for row in lines if row["event"] == "error"]}

    def profiler(self, tool, arguments, seconds):
        path = shutil.which(tool)
        if path is None:
            raise Refused(f"{tool} is not installed")
        if self.fake:
            raise Refused("an emulator has nothing to profile")
        done = subprocess.run(["timeout", "-k", "5", str(seconds), path, *arguments, str(self.bin["conformance"]), "--device", self.number,
                               "--reference-cuda", str(self.bin["fake_cuda"]), "--reference-store", str(self.out / "reference")],
                              env=self.env, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        for refusal in ("ERR_NVGPUCTRPERM", "Permission", "not supported", "Unable to find injection", "Target application"):
            if refusal in text and done.returncode != 0:
                raise Refused(f"{tool}: " + next(line for line in text.splitlines() if refusal in line).strip()[:200])
        if done.returncode != 0:
            raise RuntimeError(text.strip()[-300:])
        return text.splitlines()[-30:]

    def summary(self):
        found = self.done
        rows = found.get("times", {}).get("rows", [])
        named = lambda prefix: [row for row in rows if row["op"].startswith(prefix)]
        why = {}

        def of_copy(field, prefixes):
            shares = [row["of_copy"] for p in prefixes for row in named(p)]
            if not shares:
                why[field] = self.notes.get("times", "no such operator is served yet")
            return round(statistics.median(shares), 3) if shares else None

        def of_attention(field, prefix, rate):
            rates = [rate(row) for row in named(prefix)]
            if not rates:
                why[field] = self.notes.get("times", "it is not served")
            return float(f"{max(rates):.3g}") if rates else None

        peer = found.get("ceilings")
        gemm = {}
        for row in named("gemm_"):
            shape = row["op"].split("_", 1)[1]
            if peer and shape in peer:
                gemm[shape] = round(peer[shape] / row["us"], 3)
        if not gemm:
            why["gemm"] = self.notes.get("ceilings") or "no product is served yet"
        ratios = list(gemm.values())
        info = found.get("versions", {})
        conformance = found.get("conformance")
        out = {
            "gpu": info.get("target", {}).get("name"), "driver": info.get("driver"),
            "conformance": conformance["checked"] if conformance else None,
            "conformance_failures": len(conformance["failures"]) if conformance else None,
            "checked": found.get("correctness", {}).get("checked"), "failed": found.get("correctness", {}).get("failed"),
            "gemm": gemm or None, "geomean": round(statistics.geometric_mean(ratios), 3) if ratios else None,
            "worst": min(ratios) if ratios else None,
            "rows_of_copy": of_copy("rows_of_copy", ("rows_", "chain_")), "gemv_of_copy": of_copy("gemv_of_copy", ("gemv_",)),
            "prefill_tflops": of_attention("prefill_tflops", "prefill_", lambda row: row["tflops"]),
            "decode_tbs": of_attention("decode_tbs", "decode_", lambda row: row["gbs"] / 1000),
        }
        for field, stage in (("gpu", "versions"), ("driver", "versions"), ("conformance", "conformance"),
                             ("conformance_failures", "conformance"), ("checked", "correctness"), ("failed", "correctness")):
            if out[field] is None:
                why[field] = self.notes.get(stage, "not found")
        for field in ("geomean", "worst"):
            if out[field] is None:
                why[field] = why.get("gemm", "")
        out["emulated"] = self.fake
        out["why_null"] = why
        return out


def run_stages(args):
    run = Run(args)
    limits = (lambda seconds: max(seconds, 60)) if args.fake else (lambda seconds: seconds)
    stages = [("versions", 10, run.versions), ("conformance", 60, run.conformance), ("correctness", 70, run.correctness),
              ("ceilings", 40, run.ceilings), ("warmup", 180, run.warmup), ("times", 80, run.times),
              ("ncu", 40, lambda s: run.profiler("ncu", ["--clock-control", "none", "-c", "2"], s))]
    for tool in ("memcheck", "racecheck", "synccheck"):
        stages.append((tool, 25, lambda s, t=tool: run.profiler("compute-sanitizer", ["--tool", t], s)))
    states = {}
    for name, seconds, work in stages:
        states[name] = run.stage(name, limits(seconds), work)
        if name == "versions" and states[name] != "ok":
            break  # no device: nothing else says anything
    summary = run.summary()
    run.append({"stage": "summary", **summary})
    if args.json:
        print(json.dumps(summary))
    else:
        for key, value in summary.items():
            if key != "why_null":
                print(f'{key}: {value if value is not None else "- (" + summary["why_null"].get(key, "") + ")"}')
        print(f"results: {run.results}")
    bad = [n for n, s in states.items() if s in ("failed", "timeout")]
    return 1 if bad or states["versions"] != "ok" or summary["failed"] or summary["conformance_failures"] else 0


def libraries(program):
    """What a program needs beside the system, from ldd."""
    out = {}
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        m = re.match(r"\s*(\S+) => (/\S+)", line)
        if m and not SYSTEM.match(m[1]):
            out[m[1]] = m[2]
    return out


def pack(folder):
    target = pathlib.Path(folder).resolve()
    if target.exists() and any(target.iterdir()):
        sys.exit(f"gpu: {target} is not empty")
    bin_ = programs()
    missing = [str(p) for p in bin_.values() if not p.exists()]
    if missing:
        sys.exit("gpu: not built: " + ", ".join(missing))
    try:
        (target / "bin").mkdir(parents=True)
    except OSError as error:
        sys.exit(f"gpu: --pack {folder}: {error.strerror}")
    (target / "lib").mkdir()
    (target / "scripts").mkdir()
    strip = shutil.which("strip")
    needed = {}
    for key, path in bin_.items():
        to = target / ("lib" if key.startswith("fake") else "bin") / path.name
        shutil.copy2(path, to)
        needed.update(libraries(path))
    for name, path in needed.items():
        shutil.copy2(path, target / "lib" / name)
    for path in [*(target / "bin").iterdir(), *(target / "lib").iterdir()]:
        path.chmod(0o755)
        if strip:
            subprocess.run([strip, "--strip-unneeded", path], check=False)
    for name in ("gpu.sh", "gpu_stages.py"):
        shutil.copy2(ROOT / "scripts" / name, target / "scripts" / name)
    # Code and ranked decisions for the GPUs that may be there, and code for the emulator, so that neither compiler is needed.
    env = {k: v for k, v in os.environ.items() if not k.startswith("LATHE_") or k == "LATHE_NVRTC"}
    notes = []
    with tempfile.TemporaryDirectory() as scratch:
        manifest = pathlib.Path(scratch) / "workload.jsonl"
        manifest.write_text("".join(json.dumps(line) + "\n" for line in workload(False)))
        for gpu in ("h100", "h200"):
            done = subprocess.run([bin_["lathe"], "warmup", manifest, "--device", gpu, "--store", target / "store", "--json"], env=env,
                                  capture_output=True, text=True, check=False)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            if not any(line.get("event") == "row" for line in lines):
                notes.append(f"nothing for {gpu}: " + (lines[0].get("message", "") if lines else done.stderr.strip()[-200:]))
            notes += [f'{gpu}: {line["message"]}' for line in lines if line.get("event") == "error"]
        subprocess.run([bin_["conformance"], "--cuda", bin_["fake_cuda"], "--nvrtc", bin_["fake_nvrtc"], "--reference-cuda", bin_["fake_cuda"],
                        "--reference-nvrtc", bin_["fake_nvrtc"], "--reference-store", target / "reference"],
                       env=env, capture_output=True, check=True)
    files = sorted(p for p in target.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(target)): {"bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()} for p in files}
    total = sum(v["bytes"] for v in manifest.values())
    (target / "MANIFEST.json").write_text(json.dumps({"bytes": total, "notes": notes, "files": manifest}, indent=1) + "\n")
    print(json.dumps({"folder": str(target), "files": len(files), "bytes": total, "cubins": len(list(target.rglob("*.cub"))), "notes": notes}))
    if total > MOST_BYTES:
        sys.exit(f"gpu: {total} bytes, expected at most {MOST_BYTES}")
    return 0


def main():
    parser = argparse.ArgumentParser(prog="gpu.sh")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--fake", action="store_true")
    what.add_argument("--device", nargs="?", const=0, type=int)
    what.add_argument("--pack", metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    return pack(args.pack) if args.pack else run_stages(args)


if __name__ == "__main__":
    sys.exit(main())
