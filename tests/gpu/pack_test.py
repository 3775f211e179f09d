#!/usr/bin/env python3
# A pack of scripts/gpu.sh keeps its limit, and its stages run on the emulator where there is no repository: pack_test.py BUILD.
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MOST_BYTES = 48 << 20
ONLY = ("--only", "chain_relu", "--only", "gemv_bf16")


def run(command, folder, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LATHE_")}
    done = subprocess.run([str(c) for c in command], cwd=folder, env={**env, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        nvrtc = {"LATHE_NVRTC": str(build / "tests/gpu/libfake_nvrtc.so")}
        packed = run([ROOT / "scripts/gpu.sh", "--pack", folder / "pack", *ONLY], ROOT, LATHE_GPU_BUILD=str(build), **nvrtc)
        files = [p for p in (folder / "pack").rglob("*") if p.is_file() and p.name != "MANIFEST.json"]
        assert packed["bytes"] == sum(p.stat().st_size for p in files) <= MOST_BYTES and packed["cubins"] > 0 and not packed["notes"], packed
        # Somewhere else, under another name.
        elsewhere = folder / "elsewhere"
        shutil.move(folder / "pack", elsewhere)
        summary = run([elsewhere / "scripts/gpu.sh", "--fake", "--json", "--out", folder / "out", *ONLY], folder)
        stages = {line["stage"]: line for line in map(json.loads, (folder / "out/fake.jsonl").read_text().splitlines())}
        for name in ("versions", "conformance", "correctness", "warmup", "times"):
            assert stages[name]["status"] == "ok", stages[name]
        assert summary["emulated"] and summary["checked"] > 0 and summary["failed"] == 0 and summary["conformance_failures"] == 0, summary
        assert stages["times"]["found"]["rows"], stages["times"]


if __name__ == "__main__":
    main()
