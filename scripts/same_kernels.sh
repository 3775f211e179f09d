#!/usr/bin/env bash
# same_kernels.sh A B: builds two commits and says how many of the kernels that the second one generates differ from the first one's: every row
# of bench/workloads at each hinted shape on each described machine, every row of bench/tables. Also compares the digests of what a warm-up
# without measurements stores. Exit status 0: nothing changed; 1: the changed lines were printed; 2: a commit could not be built.
#
#   scripts/same_kernels.sh main HEAD
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: scripts/same_kernels.sh A B, two commits" >&2
  exit 2
fi
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
work=${LATHE_SAME_KERNELS_DIR:-${TMPDIR:-/tmp}/lathe-same-kernels}
mkdir -p "$work"

# Builds commit $1 in a checkout of its own, kept for the next time, and lists its kernels in $2.
list_kernels() {
  local commit=$1 out=$2
  local tree=$work/$commit
  if [ ! -d "$tree" ]; then
    git -C "$root" worktree prune
    git -C "$root" worktree add --detach --force "$tree" "$commit" >/dev/null 2>&1
  fi
  if ! grep -q 'add_executable(kernel_list ' "$tree/bench/CMakeLists.txt"; then
    echo "same_kernels: $commit has no bench/kernel_list" >&2
    return 2
  fi
  echo "same_kernels: building $commit" >&2
  cmake -S "$tree" -B "$tree/build/kernels" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLATHE_BENCH=ON -DLATHE_LLVM=OFF >"$tree/build.log" 2>&1 &&
    cmake --build "$tree/build/kernels" --target kernel_list lathe >>"$tree/build.log" 2>&1 || {
    echo "same_kernels: $commit does not build: $tree/build.log" >&2
    return 2
  }
  # The list of inputs is the second commit's for both: a row more is no changed kernel.
  "$tree/build/kernels/bench/kernel_list" "$root"/bench/workloads/*.jsonl --tables "$root/bench/tables" "$root/bench/tables/avx2" >"$out"
  local store
  store=$(mktemp -d)
  for manifest in "$root"/bench/workloads/*.jsonl; do
    "$tree/build/kernels/tools/lathe" warmup "$manifest" --tier 1 --store "$store" | grep -o 'digest [0-9a-f]*' | sed "s|^|$(basename "$manifest") |"
  done >"$out.digests"
  rm -rf "$store"
}

a=$(git -C "$root" rev-parse --short "$1^{commit}")
b=$(git -C "$root" rev-parse --short "$2^{commit}")
list_kernels "$a" "$work/$a.txt" || exit 2
list_kernels "$b" "$work/$b.txt" || exit 2
total=$(wc -l <"$work/$b.txt")
changed=$(diff "$work/$a.txt" "$work/$b.txt" | grep -c '^>' || true)
diff "$work/$a.txt.digests" "$work/$b.txt.digests" || true
diff "$work/$a.txt" "$work/$b.txt" | grep '^[<>]' | cut -c1-300 | head -40 || true
echo "$changed of $total kernels changed"
[ "$changed" -eq 0 ] && cmp -s "$work/$a.txt.digests" "$work/$b.txt.digests"
