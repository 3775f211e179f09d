#!/usr/bin/env bash
# Fetches from PyPI into build/nvidia: NVRTC, NVIDIA's compiler as a library; nvdisasm and cuobjdump; the headers that the
# project's own declarations are compared with. 110 MB. Optional: nothing else needs them; what tests with them skips without.
# No GPU and no driver is needed.
#   scripts/setup_gpu.sh           fetches, prints the path of NVRTC
#   scripts/setup_gpu.sh --path    prints the path of the NVRTC that is there; fails if there is none
set -euo pipefail
cd "$(dirname "$0")/.."
readonly folder=build/nvidia

library() { ls "$PWD/$folder"/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.* 2>/dev/null | head -1; }

if [ "${1:-}" != --path ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "nvidia-cuda-nvrtc-cu12==12.9.*" "nvidia-cuda-runtime-cu12==12.9.*" \
    nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump
fi
path=$(library)
[ -n "$path" ] || { echo "no NVRTC in $folder: run scripts/setup_gpu.sh" >&2; exit 1; }
echo "$path"
