#!/bin/sh
# Installs a build into a prefix of its own, moves it (the package is relocatable), and builds and runs the examples against it.
#   consume.sh cmake|pkgconfig|c99 <source dir> <build dir> [C compiler]
set -eu
how=$1 source=$2 build=$3 cc=${4:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/made" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/made" "$work/prefix"
lib=$(dirname "$(find "$work/prefix" -name 'liblathe.so' | head -1)")
export LATHE_CACHE_DIR="$work/cache" LD_LIBRARY_PATH="$lib"
mkdir -p "$work/out"
[ -x "$work/prefix/libexec/lathe-worker" ] && "$work/prefix/bin/lathe" info >/dev/null
foreign=$(nm -D --defined-only "$lib/liblathe.so" | awk '{print $3}' | grep -v -e '^lathe_' -e '^LATHE_' -e '^__jit_debug_' || true)
[ -z "$foreign" ] || { echo "exported, and not of the C ABI: $foreign"; exit 1; }
case $how in
  cmake)
    cmake -G Ninja -S "$source/examples" -B "$work/out" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1 &&
      cmake --build "$work/out" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    ;;
  pkgconfig)
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    for name in readme one_call warmup_and_seal own_pool fused_group quantised_model on_a_gpu; do
      # shellcheck disable=SC2046
      "$cc" -std=c99 -Wall -Wextra -Werror -Wno-unused-function "$source/examples/$name.c" -o "$work/out/$name" $(pkg-config --cflags --libs lathe) -lm
    done
    # The archive wants what Libs.private names, and nothing else.
    # shellcheck disable=SC2046
    "$cc" -std=c99 "$source/examples/one_call.c" -o "$work/out/one_call_static" $(pkg-config --cflags --static --libs lathe | sed 's/-llathe/-l:liblathe.a/')
    ;;
  c99)
    for name in readme one_call fused_group quantised_model on_a_gpu; do
      "$cc" -std=c99 -pedantic-errors -Wall -Wextra -Werror -Wno-unused-function -I"$work/prefix/include" "$source/examples/$name.c" -L"$lib" -llathe -lm -o "$work/out/$name"
    done
    "$cc" -std=c99 -pedantic-errors -Wall -Wextra -Werror -I"$work/prefix/include" "$source/tests/capi_test.c" -L"$lib" -llathe -o "$work/out/capi_test"
    ;;
esac
ran=0
for program in "$work"/out/*; do
  if [ -f "$program" ] && [ -x "$program" ]; then
    "$program"
    ran=$((ran + 1))
  fi
done
[ "$ran" -ge 3 ]
