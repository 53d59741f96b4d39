#!/bin/bash
# Everything that is to be seen on a real card, in one go: builds, holds the kernels against the CPU, runs the golden cases, and
# measures models against what the card could do. The first argument that is no flag and all after it are model folders.
#
#   tests/gpu/run.sh [flags] SMOLLM2_FOLDER QWEN2.5_FOLDER
#
#   --build DIR      a build folder that is there already (default: the preset `cuda` is built first)
#   --out DIR        where logs, figures.json and figures.md go (default: gpu-figures)
#   --streams LIST   requests at once in the decode figures (default: 1,8,64)
#   --prefill N      tokens of the prefill figure (default: 2048)
#   --video WxHxF    size of the videos in the figures of the demo's pictures (default: 256x256x17)
#   --steps N        steps of the demo's pictures (default: 20)
#   --repeat N       runs of each figure, of which the best counts (default: 3)
#   --program FILE, --kernels FILE, --card FILE    what stands in for the build's own: the tests of this script use them
#
# Each step that fails is named at the end, and the exit code is 1; the others run all the same.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build='' out=gpu-figures streams=1,8,64 prefill=2048 video=256x256x17 steps=20 repeat=3 program='' kernels='' card=''
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2 ;;
    --out) out=$2 ;;
    --streams) streams=$2 ;;
    --prefill) prefill=$2 ;;
    --video) video=$2 ;;
    --steps) steps=$2 ;;
    --repeat) repeat=$2 ;;
    --program) program=$2 ;;
    --kernels) kernels=$2 ;;
    --card) card=$2 ;;
    --*) echo "run.sh: unknown flag $1" >&2; exit 2 ;;
    *) break ;;
  esac
  shift 2
done
models=("$@")
python=${DIFFUSE_PYTHON3:-python3}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
rm -f "$out"/*.log "$out"/bench-*.json
failed=()

# step NAME COMMAND...: its output goes to NAME.log.
step() {
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    echo "ok      $name ($((SECONDS - begin)) s)"
  else
    echo "FAILED  $name ($((SECONDS - begin)) s): the end of $out/$name.log:"
    tail -n 15 "$out/$name.log"
    failed+=("$name")
  fi
}

build() {
  cd "$top" && cmake --preset cuda -DDIFFUSE_TESTS=ON && cmake --build --preset cuda --target diffuse test_backend card
}
# A filter that matches nothing passes too.
kernels_on_card() { "$kernels" --gtest_filter='*cuda_in_*' && grep -q 'PASSED  \] [1-9]' "$out/kernels.log"; }
card() { "$build/tests/gpu/card" >"$card"; }
bench() {
  "$program" bench "$2" --device cuda --compute "$3" --graphs "$4" --streams "$streams" --prefill "$prefill" --chunk "$prefill" --repeat "$repeat" \
    --json >"$out/bench-$1-$3-$4.json"
}
bench_pictures() {
  local width height frames
  IFS=x read -r width height frames <<<"$video"
  "$program" bench "$top/demo/wan" --device cuda --compute "$1" --streams 1,2 --width "$width" --height "$height" --num-frames "$frames" \
    --steps "$steps" --repeat "$repeat" --json >"$out/bench-pictures-$1.json"
}

if [ -z "$build$program" ]; then
  build=$top/build/cuda
  step build build
  [ ${#failed[@]} = 0 ] || exit 1
fi
program=${program:-$build/bin/diffuse}
kernels=${kernels:-$build/tests/backend/test_backend}
if [ -z "$card" ]; then
  card=$out/card.json
  step card card
  [ ${#failed[@]} = 0 ] || exit 1
fi
cat "$card"

# The backend's tests on the card: every operation against the formula, f32 and bf16, and every row alone and in company.
step kernels kernels_on_card
# Golden cases: one rank on the card, f32, tokens, codes and transcripts as the reference's.
step golden "$python" "$here/golden.py" "$program" "$top/tests/data/golden"
# Whole against split on one card: carries go over MPI, through the host.
cat >"$out/prompts.jsonl" <<'P'
"Once upon a time"
"The robot walked"
"In the village there was"
P
step pack "$program" pack "$out/prompts.jsonl" --model "$top/demo/lm" -o "$out/job.h5"
# Steps that are launched as graphs against plain ones.
graphs() {
  for graphs in auto off; do
    "$program" run "$out/job.h5" -o "$out/graphs-$graphs.h5" --device cuda --no-resume --graphs "$graphs" || return 1
  done
  "$program" compare "$out/graphs-auto.h5" "$out/graphs-off.h5"
}
step graphs graphs
# Pictures of the trained demo: enough steps that they show something.
sed "s|\"../demo/wan\"|\"$top/demo/wan\"|; s|\"num_inference_steps\": [0-9]*|\"num_inference_steps\": $steps|" "$top/jobs/video.json" \
  >"$out/pictures.json"
step pack-pictures "$program" pack "$out/pictures.json" -o "$out/pictures.h5"
# The card against the CPU, within the table of tolerances.
for compute in f32 bf16; do
  step "across-$compute" "$program" verify "$out/job.h5" -o "$out/across-$compute" --device cuda --compute "$compute" --against cpu --ranks 1
  step "across-pictures-$compute" "$program" verify "$out/pictures.h5" -o "$out/across-pictures-$compute" --device cuda \
    --compute "$compute" --against cpu --ranks 1
done
for ranks in 2 3; do
  step "split-$ranks-ranks-over-mpi" mpirun -n "$ranks" --oversubscribe --bind-to none "$program" verify "$out/job.h5" \
    -o "$out/split-$ranks" --device cuda --transport mpi
done
step split-pictures-over-mpi mpirun -n 2 --oversubscribe --bind-to none "$program" verify "$out/pictures.h5" -o "$out/split-pictures" \
  --device cuda --transport mpi
# Over NCCL, where there is a card for each rank.
cards=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
if [ "$cards" -gt 1 ]; then
  step split-over-nccl mpirun -n "$cards" --bind-to none "$program" verify "$out/job.h5" -o "$out/split-nccl" --device cuda --transport nccl
  step split-pictures-over-nccl mpirun -n "$cards" --bind-to none "$program" verify "$out/pictures.h5" -o "$out/split-pictures-nccl" \
    --device cuda --transport nccl
else
  echo "left out: ranks over NCCL need two cards, and here is $cards"
fi
for i in "${!models[@]}"; do
  for compute in bf16 f32; do
    for graphs in auto off; do
      step "bench-$i-$compute-graphs-$graphs" bench "$i" "${models[i]}" "$compute" "$graphs"
    done
  done
done
for compute in bf16 f32; do
  step "bench-pictures-$compute" bench_pictures "$compute"
done
step figures "$python" "$here/figures.py" "$card" "$out" "${models[@]}"
[ -s "$out/figures.md" ] && cat "$out/figures.md"
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all passed"
