#!/bin/bash
# slurm/run.sbatch on GPUs, in a private Slurm of two nodes with two pretend cards each, with the program over the stand-ins of
# CUDA and NCCL: one card a task, however it is asked for; the result is that of one rank. Usage: gpus.sh DIFFUSE_STANDIN. Exit
# 77: cannot be tried here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
program=$1
for tool in slurmctld slurmd munged srun sbatch unshare; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: the sandbox's nodes need root"; exit 77; }
unshare --mount --uts --ipc true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }

work=$(mktemp -d)
export SLURM_SANDBOX=$work/slurm SLURM_CONF=$work/slurm/slurm.conf SLURM_SANDBOX_PORT=17100
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export DIFFUSE_STANDIN_DEVICES=2
trap 'timeout 60 "$here/down.sh"; rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; for log in *.log slurm/log/slurmctld.log; do echo "-- $log"; tail -n 30 "$log"; done; exit 1; }

# Says what each task sees, then is the program.
cat >seen.sh <<E
#!/bin/bash
echo "\$SLURM_PROCID \$SLURMD_NODENAME \$CUDA_VISIBLE_DEVICES" >>"$work/seen.\$SLURM_JOB_ID"
exec "$program" "\$@"
E
chmod +x seen.sh
export DIFFUSE=$work/seen.sh

timeout 60 "$here/up.sh" 2 2 >up.log 2>&1 || fail "the sandbox does not start"
python3 - "$top/demo/lm" <<'P' >spec.json
import json, sys
print(json.dumps({"model": sys.argv[1], "generate": {"ignore_eos": True, "max_new_tokens": 12},
                  "requests": [{"id": f"r{i}", "prompt": f"Once upon a time {i}"} for i in range(6)]}))
P
"$program" pack spec.json -o job.h5 >pack.log || fail "pack"
"$program" run job.h5 -o whole.h5 --trace --device cuda 2>whole.log || fail "the run of one rank"

# submit NAME FLAGS...: waits for the job and prints its exit code.
submit() {
  local name=$1
  shift
  timeout 120 sbatch --wait --parsable -N 2 --ntasks-per-node=2 -o "$name.log" "$@" "$top/slurm/run.sbatch" job.h5 "$name.h5" --trace >"$name.id"
  echo $?
}
seen() { sort -u "seen.$(cat "$1.id")"; }  # a start that died is tried once more

# Bound: each task sees one card, and no two of a node the same.
code=$(SBATCH_GPUS_PER_TASK=1 submit bound)
[ "$code" = 0 ] || fail "a card a task: exit code $code"
[ "$(seen bound)" = "$(printf '0 node1 0\n1 node1 1\n2 node2 0\n3 node2 1')" ] || fail "tasks see other cards: $(seen bound)"
grep -q "device: cuda" bound.log || fail "it does not say that it runs on CUDA"
grep -q "hidden rows go over nccl" bound.log || fail "it does not say how rows travel"
"$program" compare whole.h5 bound.h5 || fail "four bound ranks say something else than one"

# Not bound: each task sees all cards of its node, and takes the one of its number.
code=$(submit shared --gpus-per-node=2)
[ "$code" = 0 ] || fail "cards a node: exit code $code"
[ "$(seen shared | cut -d' ' -f3 | sort -u)" = 0,1 ] || fail "tasks see other cards: $(seen shared)"
"$program" compare whole.h5 shared.h5 || fail "four unbound ranks say something else than one"

# A start that dies is tried once more, and one that dies again is not.
cat >dies.sh <<E
#!/bin/bash
[ "\$SLURM_STEP_ID" -ge "\$LIVES" ] || kill -SEGV \$\$
exec "$program" "\$@"
E
chmod +x dies.sh
code=$(LIVES=1 DIFFUSE=$work/dies.sh SBATCH_GPUS_PER_TASK=1 submit once)
[ "$code" = 0 ] || fail "a start that died once: exit code $code"
grep -q "trying once more" once.log || fail "it does not say that it tries again"
"$program" compare whole.h5 once.h5 || fail "the second start says something else"
code=$(LIVES=9 DIFFUSE=$work/dies.sh SBATCH_GPUS_PER_TASK=1 submit twice)
[ "$code" = 139 ] || fail "a start that died twice: exit code $code"
# The others stay in MPI's start where one rank alone has died.
cat >one-dies.sh <<E
#!/bin/bash
[ "\$SLURM_STEP_ID" -ge 1 ] || [ "\$SLURM_PROCID" != 2 ] || kill -SEGV \$\$
exec "$program" "\$@"
E
chmod +x one-dies.sh
code=$(DIFFUSE=$work/one-dies.sh SBATCH_GPUS_PER_TASK=1 submit alone)
[ "$code" = 0 ] || fail "a start of which one rank died: exit code $code"
grep -q "trying once more" alone.log || fail "it does not say that it tries again where one rank died"
"$program" compare whole.h5 alone.h5 || fail "the start behind one rank's death says something else"

# Two tasks and one card.
code=$(submit few --gpus-per-node=1)
[ "$code" = 69 ] || fail "two ranks on one card: exit code $code"
grep -q "rank 0 (host node1) and rank 1 share a card" few.log || fail "it does not say who shares a card"
echo "passed: a card a task, bound and not, 4 ranks on 2 nodes, identical to one rank; two ranks on one card refused"
