#!/bin/sh
# Installs what the tests need, builds everything and runs all tests. PRESET=asan or tsan for a run under sanitizers; TESTS=none only builds.
set -e
cd "$(dirname "$0")/.."
preset=${PRESET:-release}
scripts/install-packages.sh --tests
cmake --preset "$preset" -DDIFFUSE_TESTS=ON -DDIFFUSE_UNITY=ON >/dev/null
cmake --build --preset "$preset" --target "${TARGET:-all}"
if [ "${TESTS:-}" = none ]; then exit 0; fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# In thirds of a core: see cmake/DiffuseTargets.cmake.
ctest --preset "$preset" -j "$((3 * $(nproc)))" "$@"
