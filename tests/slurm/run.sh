#!/bin/bash
# slurm/run.sbatch in a private Slurm of four nodes: 4 ranks on 4 nodes, stopped by USR1 in the middle, requeued, resumed;
# the result is that of an uninterrupted run. Then an array. Usage: run.sh DIFFUSE. Exit 77: cannot be tried here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
export DIFFUSE=$1
for tool in slurmctld slurmd munged srun sbatch unshare; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: the sandbox's nodes need root"; exit 77; }
unshare --mount --uts --ipc true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }

work=$(mktemp -d)
export SLURM_SANDBOX=$work/slurm SLURM_CONF=$work/slurm/slurm.conf
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
trap 'timeout 60 "$here/down.sh"; rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; for log in *.log slurm/log/slurmctld.log; do echo "-- $log"; tail -n 30 "$log"; done; exit 1; }
until_() {  # seconds, condition
  for _ in $(seq $(($1 * 5))); do eval "$2" && return 0; sleep 0.2; done
  return 1
}
state() { scontrol show job "$1" | grep -oE "$2=[^ ]+" | head -1 | cut -d= -f2; }

timeout 60 "$here/up.sh" 4 2 >up.log 2>&1 || fail "the sandbox does not start"
python3 - "$top/demo/lm" <<'P' >spec.json
import json, sys
print(json.dumps({"model": sys.argv[1], "generate": {"ignore_eos": True, "max_new_tokens": 700},
                  "requests": [{"id": f"r{i}", "prompt": f"Once upon a time {i}"} for i in range(24)]}))
P
"$DIFFUSE" pack spec.json -o job.h5 >pack.log || fail "pack"
"$DIFFUSE" run job.h5 -o whole.h5 --trace --threads 1 2>whole.log || fail "the uninterrupted run"

id=$(sbatch --parsable -N 4 -o job.log "$top/slurm/run.sbatch" job.h5 out.h5 --trace --threads 1 --group 1 --groups 4) || fail "sbatch"
until_ 60 '[ "$(stat -c %s out.h5.journal 2>/dev/null || echo 0)" -gt 20000 ]' || fail "no request is finished"
scancel --batch --signal=USR1 "$id"
until_ 120 '[ "$(state "$id" JobState)" = COMPLETED ]' || fail "the job does not complete after its requeue"
[ "$(state "$id" Restarts)" = 1 ] || fail "it was not requeued once: $(state "$id" Restarts)"
grep -q "stopped on request" job.log || fail "it did not stop at a safe point"
grep -q "were finished before" job.log || fail "it did not go on"
grep -q "rank 3/4 node4" job.log || grep -q "hosts.*node4" <("$DIFFUSE" show out.h5 --summary) || fail "it did not run on four nodes"
"$DIFFUSE" compare whole.h5 out.h5 || fail "the resumed run says something else"

# A job that its user cancels stops at a safe point too, and stays cancelled.
id=$(sbatch --parsable -N 2 -o cancelled.log "$top/slurm/run.sbatch" job.h5 cancelled.h5 --threads 1 --group 1) || fail "sbatch"
until_ 60 '[ "$(stat -c %s cancelled.h5.journal 2>/dev/null || echo 0)" -gt 5000 ]' || fail "the job to cancel does not begin"
scancel "$id"
until_ 60 'grep -q "^20.* exit code" cancelled.log' || fail "the cancelled job does not end"
until_ 60 '[ -z "$(squeue -h -j "$id" 2>/dev/null)" ]' || fail "the cancelled job is in the queue again"
[ "$(state "$id" JobState) $(state "$id" Restarts)" = "CANCELLED 0" ] || fail "it is $(state "$id" JobState), restarted $(state "$id" Restarts) times"
grep -q "stopped on request" cancelled.log || fail "the cancelled job did not stop at a safe point"

# An array: the task whose job number is the array's own is stopped; only that one is requeued.
for i in 0 1; do
  sed "s/\"id\": \"r/&part$i-/g; s/: 700/: 300/" spec.json >"part$i.json"
  "$DIFFUSE" pack "part$i.json" -o "part$i.h5" >>pack.log || fail "pack of a part"
done
array=$(sbatch --parsable -N 2 --array=0-1 -o 'array-%a.log' "$top/slurm/run.sbatch" 'part%a.h5' 'answer%a.h5' --threads 1 --group 1) ||
  fail "sbatch of an array"
tasks() { squeue -h -r -j "$array" -o "$1" 2>/dev/null; }
begun() { [ "$(stat -c %s "answer$1.h5.journal" 2>/dev/null || echo 0)" -gt 2000 ]; }
until_ 60 'begun 0 && begun 1' || fail "the tasks of the array do not run side by side"
first=$(tasks '%A %K' | awk -v a="$array" '$1 == a {print $2}')
scancel --batch --signal=USR1 "${array}_$first"
until_ 120 '[ -z "$(tasks %i)" ]' || fail "the array does not end"
[ "$(grep -c "^20.* exit code" "array-$first.log")" = 2 ] || fail "task $first was not stopped and requeued"
[ "$(grep -c "^20.* exit code" "array-$((1 - first)).log")" = 1 ] || fail "task $((1 - first)) was disturbed"
"$DIFFUSE" merge all.h5 answer0.h5 answer1.h5 || fail "the parts do not merge"
"$DIFFUSE" show all.h5 --summary | grep -q "48 requests: 48 done" || fail "the merged result is not whole"
echo "passed: 4 ranks on 4 nodes, stopped, requeued, resumed, identical; one cancelled; an array of 2, one of them requeued"
