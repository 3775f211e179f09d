#!/usr/bin/env bash
# Prints files and lines of source code per folder: the library's, then programs, benchmarks and tests. No limit, a look.
set -euo pipefail
cd "$(dirname "$0")/.."
count() { # folder
  find "$1" -maxdepth 1 -type f \( -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.def' -o -name '*.inc' \) -exec cat {} + | wc -l
}
files() {
  find "$1" -maxdepth 1 -type f \( -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.def' -o -name '*.inc' \) | wc -l
}
sum() { # title, folders
  local title=$1 total=0 lines folder
  shift
  echo "$title"
  while IFS= read -r folder; do
    lines=$(count "$folder")
    [ "$lines" -gt 0 ] || continue
    printf '  %-28s %4d files %7d lines\n' "$folder" "$(files "$folder")" "$lines"
    total=$((total + lines))
  done < <(find "$@" -type d | sort)
  printf '  %-28s            %7d lines\n' all "$total"
}
sum "the library" include ir ops search jit runtime
sum "programs" tools examples
sum "benchmarks" bench
sum "tests" tests
