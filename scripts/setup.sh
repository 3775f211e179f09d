#!/usr/bin/env bash
# Installs what Lathe builds and tests with: Debian packages only (LLVM 19 for the second code generator). Idempotent; as root, or with
# sudo. Says nothing and fetches nothing when everything is there already.
set -euo pipefail
packages=(
  g++ cmake ninja-build ccache pkg-config python3                                                  # to build
  libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libsodium-dev libxbyak-dev libtbb-dev   # the library
  llvm-19-dev                                                                                      # the LLVM plug-in
  libgtest-dev libgmock-dev libisl-dev libgmp-dev binutils gdb clang-format-19                     # the tests
)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
quietly() { # output only if it fails
  local log
  log=$(mktemp)
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "setup: failed: $*" >&2
    return 1
  fi
  rm -f "$log"
}
echo "setup: installing ${missing[*]} (a minute or two)"
quietly apt-get update -q
quietly apt-get install -y -q --no-install-recommends "${missing[@]}"
echo "setup: done"
