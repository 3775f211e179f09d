#!/usr/bin/env bash
# Fetches from PyPI into build/nvidia: NVRTC, NVIDIA's compiler as a library; nvdisasm and cuobjdump; the headers that the
# project's own declarations are compared with. 110 MB. Optional: nothing else needs them; what tests with them skips without.
# No GPU and no driver is needed.
#   scripts/setup_gpu.sh              fetches, prints the path of NVRTC 12.9
#   scripts/setup_gpu.sh 13           fetches NVRTC 13 alone into build/nvidia13, 170 MB, for LATHE_TEST_NVRTC; prints its path
#   scripts/setup_gpu.sh --path [13]  prints the path of the NVRTC that is there; fails if there is none
set -euo pipefail
cd "$(dirname "$0")/.."
fetch=yes
if [ "${1:-}" = --path ]; then
  fetch=no
  shift
fi
case "${1:-12}" in
  12)
    folder=build/nvidia
    inside=cuda_nvrtc/lib
    packages=("nvidia-cuda-nvrtc-cu12==12.9.*" "nvidia-cuda-runtime-cu12==12.9.*" nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump)
    ;;
  13)
    folder=build/nvidia13
    inside=cu13/lib
    packages=("nvidia-cuda-nvrtc==13.*")
    ;;
  *) echo "setup_gpu: $1: expected 12 or 13" >&2; exit 2 ;;
esac

if [ "$fetch" = yes ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
fi
path=$(ls "$PWD/$folder"/lib/python3*/site-packages/nvidia/"$inside"/libnvrtc.so.* 2>/dev/null | head -1) || true
[ -n "$path" ] || { echo "no NVRTC in $folder: run scripts/setup_gpu.sh" >&2; exit 1; }
echo "$path"
