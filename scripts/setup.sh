#!/usr/bin/env bash
# Installs what Lathe builds with (Debian packages; LLVM 19 for the second code generator). Idempotent; root, or with sudo.
# Nothing is fetched when everything is there already.
set -euo pipefail
packages=(g++ cmake ninja-build ccache pkg-config python3 binutils libfmt-dev libtbb-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
          libsodium-dev libxbyak-dev llvm-19-dev libgtest-dev libgmock-dev libisl-dev)
missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
