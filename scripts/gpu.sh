#!/usr/bin/env bash
# Checks and measurements of the GPU back end. All but --device need no GPU.
#   scripts/gpu.sh --static [--json]         runs the tests of tests/gpu and says what they covered: kernels that the real NVRTC
#                                            compiled (skipped without it), calls that the emulator ran, bugs that were planted
#                                            and caught, what a second process served without compiling
#   scripts/gpu.sh --fake [--json]           every stage of --device on the emulator, with tiny shapes: tests the stages
#   scripts/gpu.sh --device [N] [--json]     device N (default 0): versions, conformance, correctness, ceilings, times beside
#                                            cuBLASLt where the machine has it, profilers; ten minutes at most
#   scripts/gpu.sh --pack FOLDER             what --device needs on a machine without a build, at most 48 MB: programs with their
#                                            libraries, code in a store, workloads, a list of it all; FOLDER/scripts/gpu.sh runs it
# --out FOLDER: where --fake and --device append their results (default build/gpu). --only NAME: operators whose names begin
# so; --stage NAME: that stage and `versions` alone; each several times over for several. Exit status 1: something failed.
# LATHE_GPU_TESTS names the test binary, LATHE_GPU_BUILD the build (default: build/release if it is there, else build/dev).
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  --static)
    tests=${LATHE_GPU_TESTS:-build/dev/tests/gpu/test_gpu}
    [ -x "$tests" ] || { echo "gpu: $tests is not built" >&2; exit 2; }
    report=$(mktemp)
    trap 'rm -f "$report"' EXIT
    LATHE_TEST_MATRIX=all "$tests" --gtest_brief=1 --gtest_output="json:$report" >&2 || true
    python3 scripts/gpu_static.py "$report" "${2:-}"
    ;;
  --fake | --device | --pack) exec python3 scripts/gpu_stages.py "$@" ;;
  *)
    echo "gpu: ${1:-nothing}: expected --static, --fake, --device or --pack" >&2
    sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
