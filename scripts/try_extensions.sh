#!/usr/bin/env bash
# try_extensions.sh [family] [dtype] [target]: follows docs/add_a_family.md, docs/add_a_dtype.md and docs/add_a_target.md
# to the letter (all three if none is named), each in a copy of the last commit: applies the example of the guide
# (tests/extensions/<name>), builds, runs the example's tests and the house rules, and counts the files outside the
# example's own that it had to touch.
# Needs what scripts/setup.sh installs; takes some ten minutes each. Exit status 0: all work and touch no more than they
# may.
set -euo pipefail
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
[ $# -gt 0 ] || set -- family dtype target
work=${LATHE_EXTENSIONS_DIR:-$root/build/extensions}
mkdir -p "$work"
failed=0

for name in "$@"; do
  example=$root/tests/extensions/$name
  [ -f "$example/edits.txt" ] || { echo "try_extensions: no example \"$name\", expected family, dtype or target" >&2; exit 2; }
  tree=$work/$name
  mkdir -p "$tree"
  find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  git -C "$root" archive HEAD | tar -x -C "$tree"
  git -C "$root" diff HEAD --binary | (cd "$tree" && git apply --allow-empty 2>/dev/null || true)
  cp -r "$example" "$tree/tests/extensions/"
  touched=$(python3 "$tree/tests/extensions/apply.py" "$tree" "$name")
  read -r limit filter < <(python3 "$tree/tests/extensions/apply.py" --about "$tree" "$name")
  echo "try_extensions: $name touches $touched files beside its own, of $limit it may"
  [ "$touched" -le "$limit" ] || failed=1
  cmake -S "$tree" -B "$tree/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DLATHE_TESTS=ON >"$tree/build.log" 2>&1
  targets=(test_ir test_ops test_search test_jit test_runtime test_sweep test_house)
  if ! cmake --build "$tree/build" --target "${targets[@]}" >>"$tree/build.log" 2>&1; then
    tail -30 "$tree/build.log" >&2
    echo "try_extensions: $name does not build: $tree/build.log" >&2
    failed=1
    continue
  fi
  for program in "${targets[@]}"; do
    select=$filter
    [ "$program" != test_house ] || select='Layering*:Docs*:Option*'
    if ! "$tree/build/tests/$program" --gtest_brief=1 --gtest_filter="$select" >"$tree/$program.log" 2>&1; then
      tail -30 "$tree/$program.log" >&2
      echo "try_extensions: $name fails in $program: $tree/$program.log" >&2
      failed=1
    fi
  done
  grep -h "^\[  PASSED  \]" "$tree"/test_*.log | sort | uniq -c | sed "s/^/try_extensions: $name: /"
done
exit $failed
