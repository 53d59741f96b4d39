#!/bin/sh
# Installs what Diffuse builds and runs with, on Debian 12. As root, or through sudo.
set -e
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
packages="
  g++ cmake ninja-build pkg-config git ca-certificates
  libopenmpi-dev openmpi-bin libhdf5-dev
  nlohmann-json3-dev libcli11-dev libhwy-dev libicu-dev libpcre2-dev libssl-dev libxxhash-dev
  libavformat-dev libavcodec-dev libavutil-dev libkissfft-dev zlib1g-dev
"
# For the tests alone: GoogleTest, h5py for the job files that users write, a Slurm to try the batch scripts in.
if [ "$1" = --tests ]; then
  packages="$packages libgtest-dev libgmock-dev libbenchmark-dev python3 python3-h5py slurmd slurmctld slurm-client munge iproute2"
fi
# For CI: the checks of style and faults.
if [ "$2" = --ci ]; then
  packages="$packages clang-format clang-tidy ccache"
fi
missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
echo "installing:$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
