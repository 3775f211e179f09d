#!/usr/bin/env bash
# Checks of the GPU back end. None needs a GPU.
#   scripts/gpu.sh --static [--json]   runs the tests of tests/gpu and says what they covered: kernels that the real NVRTC
#                                      compiled (skipped without it), calls that the emulator ran, what a second process
#                                      served without compiling. Exit status 1 if something failed.
# LATHE_GPU_TESTS names the test binary; default: that of the dev build.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${1:-}" = --static ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tests=${LATHE_GPU_TESTS:-build/dev/tests/gpu/test_gpu}
[ -x "$tests" ] || { echo "gpu: $tests is not built" >&2; exit 2; }
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$tests" --gtest_brief=1 --gtest_output="json:$report" >&2 || true
python3 - "$report" "${2:-}" <<'PY'
import json, sys

cases = [c for s in json.load(open(sys.argv[1]))["testsuites"] for c in s["testsuite"] if c.get("status") == "RUN"]
number = lambda name: sum(int(c.get(name, 0)) for c in cases)
failed = [f'{c["classname"]}.{c["name"]}' for c in cases if c.get("failures")]
skipped = [c["skipped"][0]["message"].strip().splitlines()[-1] for c in cases if c.get("skipped")]
served = [c for c in cases if c["name"] == "AnotherProcessServesIt"]
out = {
    "state": "failed" if failed else "ok",
    "nvrtc": next((c["nvrtc"] for c in cases if "nvrtc" in c), None),
    "kernels": number("kernels"),
    "emulated": number("emulated"),
    "fake_served": len([c for c in served if not c.get("failures")]),
    "failures": failed,
    "skipped": len(skipped),
}
if sys.argv[2] == "--json":
    print(json.dumps(out))
else:
    for key, value in out.items():
        print(f"{key}: {value}")
    for reason in sorted(set(skipped)):
        print(f"skipped: {reason}")
sys.exit(1 if failed else 0)
PY
