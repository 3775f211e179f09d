#!/usr/bin/env bash
# Installs what is needed, builds, runs every test, and says which were skipped and why. Usage: scripts/test.sh [ctest arguments]
# Half an hour to three quarters on two cores from nothing. Tests that depend on who runs them give up root themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
echo "== build (build/dev)"
cmake --preset dev >/dev/null
cmake --build --preset dev
echo "== test"
failed=0
ctest --preset dev -j "$(nproc)" --output-junit junit.xml "$@" || failed=$?
python3 scripts/skipped.py build/dev/junit.xml
exit "$failed"
