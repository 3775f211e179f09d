#!/usr/bin/env bash
# From nothing to served operators: installs, builds, warms the operators of Qwen2.5-0.5B up on this machine, then serves them from a
# second process that neither compiles nor searches. About ten minutes on two cores, at most two of them the warm-up.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
echo "== build (build/release)"
cmake --preset release -DLATHE_TESTS=OFF >/dev/null
cmake --build --preset release
lathe=build/release/tools/lathe
workload=bench/workloads/qwen2.5-0.5b.jsonl
export LATHE_CACHE_DIR="${LATHE_CACHE_DIR:-$PWD/build/store}"
echo
echo "== warm-up: search, verify, time, keep (store: $LATHE_CACHE_DIR)"
"$lathe" warmup "$workload" || [ $? -eq 3 ] # 3: time was up; what was found serves, the next run goes on
echo
echo "== a second process serves it all from the store; a compilation would be an error"
LATHE_SEAL=error "$lathe" bench "$workload"
