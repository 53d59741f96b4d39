#!/bin/sh
# Installs, builds, and runs the main job on the demo checkpoint over three ranks: its text, and the table that holds
# the split runs against the whole one.
set -e
cd "$(dirname "$0")/.."
scripts/install-packages.sh
cmake --preset release -DDIFFUSE_TESTS=OFF -DDIFFUSE_UNITY=ON >/dev/null
cmake --build --preset release --target diffuse

diffuse=build/release/bin/diffuse
out=build/quickstart
# mpirun asks root to say so, and a small machine to share its cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks="mpirun -n 3 --oversubscribe --bind-to none"
rm -rf "$out" && mkdir -p "$out"

set -x
$diffuse check demo/lm
$diffuse plan demo/lm --ranks 3
$diffuse pack jobs/chat.json -o $out/demo.h5
$ranks $diffuse run $out/demo.h5 -o $out/answers.h5 --threads 1
$diffuse show $out/answers.h5
$ranks $diffuse verify $out/demo.h5 -o $out/report --ranks 2,3 --threads 1
