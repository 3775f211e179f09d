#!/usr/bin/env bash
# Runs the suites of search and runtime as each machine of tests/common/machines.def, on what build/dev has, and says what was skipped and why.
# Usage: scripts/test_machines.sh [machine[-feature] ...] [-- ctest arguments]. Not part of scripts/test.sh, which runs only what is sensitive as each.
set -euo pipefail
cd "$(dirname "$0")/.."
machines=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do machines+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#machines[@]} -gt 0 ] || mapfile -t machines < <(sed -n 's/^LATHE_MACHINE(\([a-z0-9_]*\),.*/\1/p' tests/common/machines.def)
failed=0
for machine in "${machines[@]}"; do
  echo "== as $machine"
  LATHE_TEST_MACHINE="$machine" ctest --preset dev -L '^(search|runtime)$' -j "$(nproc)" --output-junit "junit-$machine.xml" "$@" || failed=$?
  python3 scripts/skipped.py "build/dev/junit-$machine.xml"
done
exit "$failed"
