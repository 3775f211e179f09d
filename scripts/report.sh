#!/usr/bin/env bash
# Warms workloads up, benches them from the store, keeps the JSON lines under bench/results/ and prints them as a table.
# Usage: scripts/report.sh [workload ...]     default: limits and qwen2.5-0.5b. Needs a release build (scripts/quickstart.sh makes one).
# A workload is a file, or the name of one in bench/workloads. One with least values, as in bench/limits-llm.targets.json, is warmed up into a store
# of its own, empty before, and judged at the end by the median of three runs, since machines are shared; status 1: a row misses its value.
set -euo pipefail
cd "$(dirname "$0")/.."
lathe=${LATHE:-build/release/tools/lathe}
[ -x "$lathe" ] || { echo "report: no $lathe: cmake --preset release && cmake --build --preset release" >&2; exit 1; }
[ $# -gt 0 ] || set -- bench/workloads/limits.jsonl bench/workloads/qwen2.5-0.5b.jsonl
export LATHE_CACHE_DIR="${LATHE_CACHE_DIR:-$PWD/build/store}"
mkdir -p bench/results
"$lathe" info --json | python3 -c 'import json, sys; d = json.load(sys.stdin); print(json.dumps({k: d[k] for k in ("schema", "target", "backends")}))' >bench/results/machine.json
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
missed=0
for workload in "$@"; do
  name=$(basename "$workload" .jsonl)
  [ -f "$workload" ] || workload=bench/workloads/$name.jsonl
  targets=bench/$name.targets.json
  store=$LATHE_CACHE_DIR
  [ ! -f "$targets" ] || store=$own/$name
  LATHE_CACHE_DIR=$store "$lathe" warmup "$workload" --json >"bench/results/$name.warmup.jsonl" || [ $? -eq 3 ] # 3: the budget is spent; what was found serves
  LATHE_CACHE_DIR=$store LATHE_SEAL=error "$lathe" bench "$workload" --json >"bench/results/$name.bench.jsonl"
  [ -f "$targets" ] || continue
  for run in 2 3; do
    LATHE_CACHE_DIR=$store LATHE_SEAL=error "$lathe" bench "$workload" --json >"$own/$run.jsonl"
  done
  cat "bench/results/$name.bench.jsonl" "$own"/[23].jsonl >"$own/runs.jsonl"
  python3 bench/judge.py "$targets" "$own/runs.jsonl" bench/results/machine.json || missed=1
done
python3 bench/make_table.py bench/results | tee bench/results/README.md
exit "$missed"
