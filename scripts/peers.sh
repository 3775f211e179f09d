#!/usr/bin/env bash
# Puts what bench/compare.py measures Lathe against into build/peers: a Python environment with the peers that PyPI has, and ggml with llama-bench,
# built from the sources of llama-cpp-python. Optional: neither the build nor the tests need it. What is there is kept, and what cannot be had is
# said; the others still come. Status 1: one of those asked for is missing.
# Usage: scripts/peers.sh [PEER ...]     onnxruntime, openblas, ggml (five minutes to build), torch (5 GB); default: all
# Versions are in bench/compare/requirements.txt. FOLDER: PEERS=FOLDER, default build/peers.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${PEERS:-build/peers}
all=(onnxruntime openblas ggml torch)
[ $# -gt 0 ] || set -- "${all[@]}"
for peer in "$@"; do
  [[ " ${all[*]} " == *" $peer "* ]] || { echo "peers: $peer: expected one of ${all[*]}" >&2; exit 2; }
done
mkdir -p "$folder"
folder=$(realpath "$folder")
python=$folder/bin/python log=$folder/log.txt
missing=()

version() { sed -n "s/^\($1==[^ ]*\).*/\1/p" bench/compare/requirements.txt; }

# What went wrong goes into the log; the last line of it is told.
quietly() { "$@" >>"$log" 2>&1; }
lacks() {
  echo "peers: $1: not there: $2 ($log says more)" >&2
  missing+=("$1")
}

install() { # peer, packages
  local peer=$1 wanted=()
  shift
  for package in "$@"; do wanted+=("$(version "$package")"); done
  quietly "$python" -m pip install --disable-pip-version-check "${wanted[@]}" || lacks "$peer" "pip could not install ${wanted[*]}"
}

build_ggml() {
  local made sources wanted
  wanted=$(version llama-cpp-python)
  [ "$(cat "$folder/ggml/version" 2>/dev/null || true)" != "$wanted" ] || return 0
  # Nothing of what is left of an earlier attempt is trusted.
  made=$folder/ggml.making
  rm -rf "$made"
  mkdir -p "$made/sources"
  quietly "$python" -m pip download --disable-pip-version-check --no-deps --no-binary :all: --dest "$made" "$wanted" ||
    { lacks ggml "pip could not fetch the sources of $wanted"; return 0; }
  tar -xzf "$made"/*.tar.gz -C "$made/sources" --strip-components=1
  sources=$made/sources/vendor/llama.cpp
  [ -f "$sources/CMakeLists.txt" ] || { lacks ggml "$wanted has no vendor/llama.cpp"; return 0; }
  local options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DCMAKE_INSTALL_RPATH='$ORIGIN' -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
    -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF)
  if command -v ccache >/dev/null; then options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  quietly cmake -G Ninja -S "$sources" -B "$made/build" "${options[@]}" || { lacks ggml "cmake refused its sources"; return 0; }
  quietly cmake --build "$made/build" --target llama-bench || { lacks ggml "its build failed"; return 0; }
  mv "$made/build/bin" "$made/bin"
  [ -x "$made/bin/llama-bench" ] && [ -e "$made/bin/libggml-cpu.so" ] || { lacks ggml "its build made no llama-bench or no libggml-cpu.so"; return 0; }
  rm -rf "$made/build" "$made/sources" "$made"/*.tar.gz "$folder/ggml"
  echo "$wanted" >"$made/version"
  mv "$made" "$folder/ggml"
}

# Debian has venv in a package of its own; this one is not among those that Lathe is built with.
if ! "$python" -c '' 2>/dev/null; then
  rm -rf "$folder/bin" "$folder/lib" "$folder/pyvenv.cfg"
  if ! quietly python3 -m venv "$folder" && command -v apt-get >/dev/null; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-venv || true
    quietly python3 -m venv "$folder" || true
  fi
  "$python" -c '' 2>/dev/null || { echo "peers: expected python3 with venv (Debian: python3-venv); $log says more" >&2; exit 1; }
fi
install numpy numpy
for peer in "$@"; do
  case $peer in
    onnxruntime) install onnxruntime onnx onnxruntime ;;
    openblas) install openblas scipy-openblas32 ;;
    torch) install torch torch ;;
    ggml) build_ggml ;;
  esac
done
[ ${#missing[@]} -eq 0 ] || exit 1
echo "$folder"
