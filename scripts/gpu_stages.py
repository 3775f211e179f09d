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
MOST_SECONDS = 600  # of all stages
NO_LIBRARY = 3  # exit status of gpu_peer without cuBLASLt
FAKES = ("cuda", "nvrtc", "cublaslt")
JOBS = os.cpu_count() or 1
# Part of the system everywhere.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so)")


def operator(name, tensors, nodes, outputs, cold=False, dtype="f32", other=None):
    """other: tensors of another type, or constants: fields of theirs by name."""
    of = lambda t, d: {"dtype": dtype, "dims": d, **(other or {}).get(t, {})}
    line = {"name": name, "graph": {"tensors": {t: of(t, d) for t, d in tensors.items()}, "nodes": nodes, "outputs": outputs}}
    return {**line, "cache": "cold"} if cold else line


def node(op, ins, out, **attrs):
    return {"op": op, "in": ins, "out": out, **({"attrs": attrs} if attrs else {})}


def product(name, m, n, k, dtype="f32", turned=False, cold=False):
    """y[m, n] = a[m, k] * b[k, n]; turned: b has rows of k, as weights of linear layers have."""
    return operator(name, {"a": [m, k], "b": [n, k] if turned else [k, n]},
                    [node("matmul", ["a", "b"], "y", **({"transpose_b": True} if turned else {}))], ["y"], cold, dtype)


def attention(name, q, kv, cold=False, exact=False):
    """Weights are rounded to bf16, as everybody's are; exact: they keep their bits."""
    line = operator(name, {"q": q, "k": kv, "v": kv}, [node("attention", ["q", "k", "v"], "y", causal=True)], ["y"], cold, "bf16")
    return line if exact else {**line, "allowed": ["reassociate", "contract", "bf16_dots"]}


def append(name, tokens, dtype, cache, heads, depth, rows):
    """Heads with a norm, turned, into a cache of rows, whose slots are drawn: some are drawn twice, or are -1."""
    half = depth // 2
    tensors = {"x": [tokens, heads, depth], "slots": [tokens], "cache": [rows, heads, depth], **({"scales": [rows, heads]} if cache == "i8" else {}),
               "cos": [rows, half], "sin": [rows, half], "positions": [tokens], "norm": [depth]}
    other = {t: {"dtype": "f32"} for t in ("scales", "cos", "sin", "norm")}
    other.update({"slots": {"dtype": "i32"}, "positions": {"dtype": "i32"}, "cache": {"dtype": cache}})
    op = "kv_append_int8" if cache == "i8" else "kv_append"
    return operator(name, tensors, [node(op, list(tensors), "y")], ["y"], False, dtype, other)


def few_bits(name, m, n, k, dtype, classes=(), op="matmul", experts=0):
    """Weights of q4_0, of which experts each token names two, or by which rows are sorted (op)."""
    x, ids = {"grouped_matmul": ([m, k], {"ids": [experts + 1]}), "expert_matmul": ([m, 1, k], {"ids": [m, 2]})}.get(op, ([m, k], {}))
    dims, of = {"x": x, "w": [experts, n, k // 32 * 18][not ids:], **ids}, {"w": {"dtype": "u8", "const": True}, "ids": {"dtype": "i32"}}
    line = operator(name, dims, [node(f"quantized_{op}", list(dims), "y", format="q4_0")], ["y"], True, dtype, of)
    return {**line, "allowed": ["reassociate", "contract", *classes]}


# Linear layers of models: tokens, outputs, inputs (llama3-8b, qwen2.5-7b, qwen2.5-0.5b).
LAYERS = [(2048, 6144, 4096), (2048, 14336, 4096), (2048, 4096, 14336), (512, 14336, 4096), (128, 4096, 14336), (16, 14336, 4096), (2048, 18944, 3584),
          (385, 4864, 896)]


def workload(tiny):
    """Operators to check and time. Their names say what they stand for: chain_, rows_, append_, gemv_, int4_, attention_; prefill_ and decode_, of which
    there is one each; gemm_f32_, gemm_bf16_ and gemm_model_ with their sizes, which are timed beside cuBLASLt."""
    n, rows, width = (3001, 5, 97) if tiny else (1 << 26, 16384, 4096)
    lines = [
        operator("chain_silu_mul", {"g": [n], "u": [n]}, [node("silu", ["g"], "s"), node("mul", ["s", "u"], "y")], ["y"], True),
        operator("chain_relu", {"x": [n]}, [node("relu", ["x"], "y")], ["y"], True),
        operator("chain_bias", {"x": [rows, width], "b": [width]}, [node("add", ["x", "b"], "y")], ["y"], True),
        operator("rows_softmax", {"x": [rows, width]}, [node("softmax", ["x"], "y")], ["y"], True),
        operator("rows_rmsnorm", {"x": [rows, width], "w": [width]}, [node("rmsnorm", ["x", "w"], "y")], ["y"], True),
        operator("move_transpose", {"x": [rows, width]}, [node("transpose", ["x"], "y", perm=[1, 0])], ["y"], True),
    ]
    for tokens in (1, 7) if tiny else (1, 512):
        shape = (3, 20, 11) if tiny else (8, 128, 4096)
        lines += [append(f"append_{cache}_{tokens}", tokens, dtype, cache, *shape) for dtype, cache in (("bf16", "bf16"), ("f32", "i8"))]
    sizes = [(33, 40)] if tiny else [(8192, 8192), (4096, 4096)]
    lines += [product(f"gemv_{t}_1x{n}x{k}", 1, n, k, t, True, True) for t in ("f32", "bf16") for n, k in sizes]
    few, many, (n, k), experts = (9, 9, (33, 64), (3, 33, 64)) if tiny else (16, 128, (4096, 4096), (32, 768, 2048))
    chosen_by = ("expert_matmul", 4), ("grouped_matmul", 32), ("grouped_matmul", 5 if tiny else 512)
    lines += [*(few_bits(f"int4_{m}x{n}x{k}", m, n, k, "bf16") for m in (1, few)),
              *(few_bits(f"int4_rounded_{t}", many, n, k, t, ["quantised_activations"]) for t in ("f32", "bf16")),
              *(few_bits(f"int4_{op}_{m}", m, *experts[1:], "bf16", (), op, experts[0]) for op, m in chosen_by)]
    heads, kept, depth, length, sequences = (4, 2, 24, 37, 2) if tiny else (16, 4, 128, 8192, 32)
    prompts = [("prefill", length)] + [("attention", other) for other in (() if tiny else (2048, 16384))]
    lines += [attention(f"decode_{sequences}x{length}", [sequences, heads, 1, depth], [sequences, kept, length, depth], True),
              *(attention(f"{what}_{t}", [heads, t, depth], [kept, t, depth]) for what, t in prompts)]
    if not tiny:
        lines += [attention(f"attention_exact_{length}", [heads, length, depth], [kept, length, depth], exact=True),
                  attention(f"attention_1x1x{length}", [1, heads, 1, depth], [1, kept, length, depth], True)]
    cubes = [("f32", 48), ("bf16", 40)] if tiny else [("f32", 4096), ("f32", 2048), ("bf16", 4096), ("bf16", 8192)]
    lines += [product(f"gemm_{dtype}_{s}x{s}x{s}", s, s, s, dtype) for dtype, s in cubes]
    lines += [product(f"gemm_model_{m}x{n}x{k}", m, n, k, "bf16", True) for m, n, k in ([(17, 40, 24)] if tiny else LAYERS)]
    return lines[::-1]  # a warm-up may not come to the last ones


def large(tiny):
    """Operators that are checked at the sizes that large tiles, roles and persistent blocks are for: whole tiles and not."""
    if tiny:
        return [product("whole_33x40x48", 33, 40, 48, "bf16"), attention("whole_attention_37", [4, 37, 24], [2, 37, 24])]
    return [product("whole_2048x2048x2048", 2048, 2048, 2048, "bf16"), product("whole_1160x1032x1000t", 1160, 1032, 1000, "bf16", True),
            product("whole_f32_1000x1030x517", 1000, 1030, 517), product("whole_2049x4104x776", 2049, 4104, 776, "bf16", True),
            product("whole_2560x3080x1536", 2560, 3080, 1536, "bf16"),  # by clusters
            product("whole_128x4096x4096t", 128, 4096, 4096, "bf16", True), attention("whole_attention_1999", [8, 1999, 128], [2, 1999, 128]),
            attention("whole_exact_1024", [8, 1024, 128], [2, 1024, 128], exact=True),
            attention("whole_decode_3x4001", [3, 8, 1, 128], [3, 2, 4001, 128])]


def chosen(lines, names):
    """Those whose names begin so; all where there are no names."""
    return [line for line in lines if not names or line["name"].startswith(tuple(names))]


def programs():
    """The folders of the command line and of the programs of bench/gpu, and the fakes: of a pack, else of a build."""
    if (ROOT / "bin/lathe").exists():
        return {"lathe": ROOT / "bin/lathe", "worker": ROOT / "bin/lathe-worker", "conformance": ROOT / "bin/gpu_conformance",
                "peer": ROOT / "bin/gpu_peer", "ceilings": ROOT / "bin/gpu_ceilings", "calls": ROOT / "bin/gpu_calls",
                **{f"fake_{name}": ROOT / f"lib/libfake_{name}.so" for name in FAKES}}
    builds = [os.environ.get("LATHE_GPU_BUILD"), "build/release", "build/dev"]
    build = next((ROOT / b for b in builds if b and (ROOT / b / "bench/gpu/gpu_peer").exists()), ROOT / "build/dev")
    fakes = next((ROOT / b for b in builds if b and (ROOT / b / "tests/gpu" / "libfake_cuda.so").exists()), build)
    return {"lathe": build / "tools/lathe", "worker": build / "tools/lathe-worker", "conformance": build / "bench/gpu/gpu_conformance",
            "peer": build / "bench/gpu/gpu_peer", "ceilings": build / "bench/gpu/gpu_ceilings", "calls": build / "bench/gpu/gpu_calls",
            **{f"fake_{name}": fakes / f"tests/gpu/libfake_{name}.so" for name in FAKES}}


class Refused(Exception):
    """The machine does not have it, or does not allow it."""


class Run:
    def __init__(self, args):
        self.fake, self.number = args.fake, str(args.device if args.device is not None else 0)
        self.bin = programs()
        missing = [str(p) for k, p in self.bin.items() if not p.exists() and (self.fake or not k.startswith("fake_"))]
        if missing:
            sys.exit("gpu: not built: " + ", ".join(missing))
        self.out = pathlib.Path(args.out or ROOT / "build/gpu").resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.results = self.out / ("fake.jsonl" if self.fake else "device.jsonl")
        self.manifest = self.out / "workload.jsonl"
        self.manifest.write_text("".join(json.dumps(line) + "\n" for line in chosen(workload(self.fake), args.only)))
        self.large = self.out / "large.jsonl"
        self.large.write_text("".join(json.dumps(line) + "\n" for line in chosen(large(self.fake), args.only)))
        self.store = self.out / "store"
        if (ROOT / "store").exists() and not self.store.exists():
            shutil.copytree(ROOT / "store", self.store)  # of a pack
            for path in [self.store, *self.store.rglob("*")]:
                path.chmod(0o700 if path.is_dir() else 0o600)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LATHE_") or k in ("LATHE_CUDA", "LATHE_NVRTC")}
        self.env["LATHE_WORKER"] = str(self.bin["worker"])
        self.env["LATHE_CACHE_DIR"] = str(self.store)
        if (ROOT / "bin/lathe").exists():  # a pack brings its libraries
            self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(ROOT / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]))
        if self.fake:
            self.env.update(LATHE_CUDA=str(self.bin["fake_cuda"]), LATHE_NVRTC=str(self.bin["fake_nvrtc"]))
        self.done = {}  # stage: what it found
        self.notes = {}  # stage: why it found nothing

    def command(self, seconds, *command, may_fail=False, partial=False):
        """Runs under `timeout`; the JSON lines that it printed. partial: those until then, where it does not end in time (self.late)."""
        done = subprocess.run(["timeout", "-k", "5", str(seconds), *map(str, command)], env=self.env, capture_output=True, text=True, check=False)
        lines = []
        for text in done.stdout.splitlines():
            if text.startswith("{"):
                try:
                    lines.append(json.loads(text))
                except ValueError:
                    pass
        self.code, self.said = done.returncode, done.stdout + done.stderr
        self.late = [f"no end after {seconds} s"] if done.returncode in (124, 137) else []
        if self.late and not (partial and lines):
            raise TimeoutError(self.late[0])
        if done.returncode != 0 and not may_fail:
            raise RuntimeError((done.stderr or done.stdout).strip()[-500:] or f"exit status {done.returncode}")
        return lines

    def lathe(self, seconds, verb, *args, may_fail=False, partial=False):
        return self.command(seconds, self.bin["lathe"], verb, *args, "--json", "--store", self.store, may_fail=may_fail, partial=partial)

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
            done = subprocess.run(["timeout", "5", smi, query, "--format=csv,noheader"], capture_output=True, text=True, check=False)
            info["smi"] = done.stdout.strip()
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
        command += ["--reference-nvrtc", self.bin["fake_nvrtc"], *self.libraries()]
        command += ["--store", self.out / "reference" if self.fake else self.store]  # one emulator runs what the other one has compiled
        lines = self.command(seconds, *command, may_fail=True)
        if not lines or lines[-1]["event"] == "error":
            raise RuntimeError(lines[-1]["message"] if lines else self.said.strip()[-300:])
        return {k: lines[-1][k] for k in ("checked", "failures", "worst_ulp")}

    def calls(self, seconds):
        options = ["--cuda", self.env["LATHE_CUDA"]] if "LATHE_CUDA" in self.env else []
        lines = self.command(seconds, self.bin["calls"], "--device", self.number, *options, may_fail=True)
        if not lines or lines[-1]["event"] == "error" or lines[-1]["failures"]:
            raise RuntimeError((lines[-1].get("message") or "; ".join(lines[-1]["failures"])) if lines else self.said.strip()[-300:])
        return {k: lines[-1][k] for k in ("checked", "execute_us", "pinned_us")}

    def correctness(self, seconds):
        """Small and odd sizes, large ones, then the former with other seeds, and again, since an error that moves is a race."""
        found = {"checked": 0, "failed": 0, "reasons": [], "not_served": set()}
        seeds, repeats = (1, 1) if self.fake else (2, 3)
        runs = [(self.manifest, ["--seed", seed]) for seed in range(seeds) for _ in range(repeats)]
        if self.large.stat().st_size > 0:
            runs.insert(1, (self.large, ["--whole"]))
        ends = time.monotonic() + seconds
        for manifest, options in runs:
            left = int(ends - time.monotonic())
            if left < 1:
                break
            lines = self.lathe(left, "verify", manifest, "--device", self.number, *options, "--jobs", JOBS, may_fail=True, partial=True)
            if self.late:  # of what it said until then, what is wrong counts
                found["incomplete"] = self.late[0]
                rows = [row for row in lines if row["event"] == "row" and not row["refused"]]
                lines.append({"event": "summary", "checked": len(rows), "failed": sum(not row["ok"] for row in rows)})
            if not lines or lines[-1]["event"] != "summary":
                raise RuntimeError(self.said.strip()[-300:])
            found["checked"] += lines[-1]["checked"]
            found["failed"] += lines[-1]["failed"]
            for row in lines:
                if row["event"] == "row" and row["refused"]:
                    found["not_served"].add(row["op"])
                elif row["event"] == "row" and not row["ok"]:
                    found["reasons"].append(f'{row["op"]}: {row["reason"]}')
        return {**found, "reasons": found["reasons"][:10], "not_served": sorted(found["not_served"])}

    def libraries(self):
        """What gpu_conformance and gpu_ceilings are told instead of the environment."""
        pairs = (("--cuda", "LATHE_CUDA"), ("--nvrtc", "LATHE_NVRTC"))
        return [part for option, variable in pairs if variable in self.env for part in (option, self.env[variable])]

    def ceilings(self, seconds):
        line = self.command(seconds, self.bin["ceilings"], "--device", self.number, *self.libraries(), may_fail=True)
        if not line or line[-1]["event"] == "error":
            raise RuntimeError(line[-1]["message"] if line else self.said.strip()[-300:])
        return {k: v for k, v in line[-1].items() if k not in ("schema", "event")}

    def products(self, seconds):
        command = [self.bin["peer"], "--device", self.number, "--store", self.store, "--row-ms", 20 if self.fake else 400]
        if self.fake:
            command += ["--cublaslt", self.bin["fake_cublaslt"], "--rounds", 1]
        lines = self.command(seconds, *command, self.manifest, may_fail=True, partial=True)
        if self.code == NO_LIBRARY:
            raise Refused(lines[-1]["message"])
        rows = [row for row in lines if row["event"] == "row"]
        if not rows:
            raise RuntimeError(self.said.strip()[-300:])
        return {"rows": [row for row in rows if "us" in row], "errors": [f'{row["op"]}: {row["note"]}' for row in rows if "us" not in row] + self.late}

    def warmup(self, seconds):
        few = ("--candidates", 3) if self.fake else ()  # the emulator's times say nothing
        lines = self.lathe(seconds, "warmup", self.manifest, "--device", self.number, "--budget", max(seconds * 3 // 4, 1), "--jobs", JOBS, *few,
                           may_fail=True, partial=True)
        if not lines or lines[-1]["event"] != "summary":
            raise RuntimeError(self.said.strip()[-300:])
        found = {k: lines[-1][k] for k in ("ops", "compiled_nvrtc", "searches", "measurements", "rejected", "failed", "pending")}
        found["rows"] = [{k: row[k] for k in ("op", "tier", "schedule", "us", "default_us")} for row in lines if row["event"] == "row"]
        found["errors"] = [row["message"] for row in lines if row["event"] == "error"] + self.late
        return found

    def times(self, seconds):
        lines = self.lathe(seconds, "bench", self.manifest, "--device", self.number, "--row-ms", 20 if self.fake else 400, may_fail=True, partial=True)
        rows = [row for row in lines if row["event"] == "row"]
        if not rows:
            raise RuntimeError(self.said.strip()[-300:])
        keys = ("op", "tier", "us", "spread", "gbs", "tflops", "copy_gbs", "of_copy")
        return {"rows": [{k: row[k] for k in keys} for row in rows], "errors": [row["message"] for row in lines if row["event"] == "error"] + self.late}

    def profiler(self, tool, arguments, seconds):
        path = shutil.which(tool, path=self.env.get("PATH"))
        if path is None:
            raise Refused(f"{tool} is not installed")
        if self.fake:
            raise Refused("an emulator has nothing to profile")
        only = [part for name in ("add", "warps", "roles") for part in ("--only", name)]
        self.command(seconds, path, *arguments, self.bin["conformance"], "--device", self.number, "--reference-cuda", self.bin["fake_cuda"],
                     "--reference-store", self.out / "reference", *self.libraries(), *only, may_fail=True)
        if self.code != 0:
            for refusal in ("ERR_NVGPUCTRPERM", "Permission", "not supported", "Unable to find injection", "Target application"):
                if refusal in self.said:
                    raise Refused(f"{tool}: " + next(line for line in self.said.splitlines() if refusal in line).strip()[:200])
            raise RuntimeError(self.said.strip()[-300:])
        return self.said.splitlines()[-30:]

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

        gemm = {row["op"].removeprefix("gemm_"): float(f'{row["of_peer"]:.3g}') for row in found.get("products", {}).get("rows", [])
                if row["op"].startswith("gemm_")}
        if not gemm:
            why["gemm"] = self.notes.get("products") or "no product is served"
        ratios = [ratio for shape, ratio in gemm.items() if shape.startswith("model_")]
        info = found.get("versions", {})
        conformance = found.get("conformance")
        out = {
            "gpu": info.get("target", {}).get("name"), "driver": info.get("driver"),
            "conformance": conformance["checked"] if conformance else None,
            "conformance_failures": len(conformance["failures"]) if conformance else None,
            "checked": found.get("correctness", {}).get("checked"), "failed": found.get("correctness", {}).get("failed"),
            "gemm": gemm or None, "geomean": float(f"{statistics.geometric_mean(ratios):.3g}") if ratios else None,
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
                why[field] = why.get("gemm", "no layer of a model is served")
        out["emulated"] = self.fake
        out["why_null"] = why
        return out


def stages_of():
    """Name, seconds, what a Run does."""
    stages = [("versions", 10, Run.versions), ("conformance", 60, Run.conformance), ("calls", 15, Run.calls), ("correctness", 80, Run.correctness),
              ("ceilings", 30, Run.ceilings), ("warmup", 165, Run.warmup), ("times", 80, Run.times), ("products", 60, Run.products),
              ("ncu", 35, lambda run, s: run.profiler("ncu", ["--clock-control", "none", "-c", "2"], s))]
    for tool in ("memcheck", "racecheck", "synccheck"):
        stages.append((tool, 20, lambda run, s, t=tool: run.profiler("compute-sanitizer", ["--tool", t], s)))
    return stages


def run_stages(args):
    run = Run(args)
    limits = (lambda seconds: max(seconds, 200)) if args.fake else (lambda seconds: seconds)
    states = {}
    for name, seconds, work in stages_of():
        if args.stage and name not in args.stage and name != "versions":
            run.notes[name] = "not asked for"
            continue
        states[name] = run.stage(name, limits(seconds), lambda s, work=work: work(run, s))
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


def pack(folder, only):
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
        manifest.write_text("".join(json.dumps(line) + "\n" for line in chosen(workload(False) + large(False), only)))
        for gpu in ("h100", "h200"):
            done = subprocess.run([bin_["lathe"], "warmup", manifest, "--device", gpu, "--jobs", str(JOBS), "--store", target / "store", "--json"], env=env,
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
    parser.add_argument("--only", action="append", metavar="NAME", help="operators whose names begin so")
    parser.add_argument("--stage", action="append", metavar="NAME", choices=[name for name, _, _ in stages_of()], help="these stages alone")
    args = parser.parse_args()
    return pack(args.pack, args.only) if args.pack else run_stages(args)


if __name__ == "__main__":
    sys.exit(main())
