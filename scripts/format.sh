#!/usr/bin/env bash
# Formats all C and C++ sources with clang-format 19 as .clang-format says; with --check it changes nothing, lists the files that differ
# and fails. Comments are left as they are: tests/size_test.cc sees to their width.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=clang-format-19
command -v "$tool" >/dev/null || { echo "format: $tool is not installed; scripts/setup.sh installs it" >&2; exit 77; }
case "$("$tool" --version)" in
  *"version 19."*) ;;
  *) echo "format: expected version 19 of clang-format, found $("$tool" --version)" >&2; exit 1 ;;
esac
mode=(-i)
case "${1:-}" in
  --check) mode=(--dry-run --Werror --ferror-limit=1) ;;
  "") ;;
  *) echo "format: $1: expected --check or nothing" >&2; exit 2 ;;
esac
find bench examples include ir jit ops runtime search tests tools -type f \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print0 |
  xargs -0 "$tool" --style=file "${mode[@]}"
