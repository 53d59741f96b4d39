#!/bin/sh
# nccl_fault_test.sh MPIEXEC BINARY: how a job ends whose ranks are linked over NCCL (the stand-in), when a rank stops, dies or
# throws, or the library fails. It must end within seconds, with the right status and one line that says why.
mpiexec=$1
binary=$2
failures=0
export DIFFUSE_STANDIN_DEVICES=4
host=$(hostname)

# expect FAULT RANKS STATUS TEXT [NAME=VALUE of the environment]: TEXT must stand in the line; STATUS may be "any" for not 0.
expect() {
  begin=$(date +%s)
  output=$(env ${5:+"$5"} timeout -s KILL 40 "$mpiexec" -n "$2" --oversubscribe "$binary" "$1" 2>&1)
  status=$?
  seconds=$(($(date +%s) - begin))
  problem=
  [ "$3" = any ] && [ "$status" -eq 0 ] && problem="status 0"
  [ "$3" != any ] && [ "$status" -ne "$3" ] && problem="status $status instead of $3"
  case $output in *"$4"*) ;; *) problem="$problem; '$4' is not said" ;; esac
  lines=$(echo "$output" | grep -c '^diffuse: ')
  [ "$3" != 0 ] && [ "$3" != any ] && [ "$lines" -ne 1 ] && problem="$problem; $lines lines say why"
  [ "$seconds" -gt 20 ] && problem="$problem; took $seconds s"
  if [ -n "$problem" ]; then
    failures=$((failures + 1))
    echo "FAILED $1 on $2 ranks ${5:-}: $problem"
    echo "$output"
  else
    echo "ok $1 on $2 ranks ${5:-}: status $status after $seconds s"
  fi
}

expect none 3 0 ""
expect stop 2 74 "for rank 1 (host $host): layer 11 of request 'a7', step 301; it gives no sign of life"
expect stop 4 74 "rank 3 (host $host)"
expect stop-early 2 74 "for rank 1 (host $host): gathering the ids of the links; it gives no sign of life"
expect die 3 any ""
expect throw 3 65 "rank 2 says: a stranger's weights"
expect size 2 74 "1000 x uint8"
expect circle 2 74 "the ranks wait for one another in a circle"
expect one-device 2 74 "the link between the GPUs: invalid usage (Duplicate GPU detected"
expect none 3 74 "rank 1 says: NCCL failed while receiving from rank 0 (host $host): layer 12 of request 'a7', step 301" \
  DIFFUSE_STANDIN_FAIL=ncclRecv:2@1
expect none 3 74 "rank 2 says: NCCL failed while receiving from rank 1" DIFFUSE_STANDIN_FAIL=ncclAsyncError:7@2=3
expect none 2 74 "rank 1 says: NCCL failed while receiving from rank 0" DIFFUSE_STANDIN_FAIL=ncclCommInitRankConfig:1@1
export DIFFUSE_STANDIN_NCCL_ABORT_HANGS=1
expect none 2 74 "and the GPU does not come back" DIFFUSE_STANDIN_FAIL=ncclSend:2@0
exit "$failures"
