#!/bin/sh
# mpi_fault_test.sh MPIEXEC BINARY: how a job ends when a rank stops, dies, throws, or exchanges nonsense. It
# must end within seconds, with the right status and a message that says why.
mpiexec=$1
binary=$2
failures=0

# expect FAULT RANKS STATUS TEXT: TEXT must stand in what the job says; STATUS may be "any" for not 0.
expect() {
  begin=$(date +%s)
  output=$(timeout -s KILL 40 "$mpiexec" -n "$2" --oversubscribe "$binary" "$1" 2>&1)
  status=$?
  # Now and then Open MPI's mpirun itself crashes while it ends a job.
  case $output in *PMIx_server_finalize*)
    output=$(timeout -s KILL 40 "$mpiexec" -n "$2" --oversubscribe "$binary" "$1" 2>&1)
    status=$?
    begin=$(date +%s)
    ;;
  esac
  seconds=$(($(date +%s) - begin))
  problem=
  [ "$3" = any ] && [ "$status" -eq 0 ] && problem="status 0"
  [ "$3" != any ] && [ "$status" -ne "$3" ] && problem="status $status instead of $3"
  case $output in *"$4"*) ;; *) problem="$problem; '$4' is not said" ;; esac
  lines=$(echo "$output" | grep -c -e ' says: ' -e '^diffuse: ')
  [ "$3" != 0 ] && [ "$3" != any ] && [ "$lines" -ne 1 ] && problem="$problem; $lines lines say why"
  [ "$seconds" -gt 20 ] && problem="$problem; took $seconds s"
  if [ -n "$problem" ]; then
    failures=$((failures + 1))
    echo "FAILED $1 on $2 ranks: $problem"
    echo "$output"
  else
    echo "ok $1 on $2 ranks: status $status after $seconds s"
  fi
}

expect none 3 0 ""
expect stop 2 74 "for rank 1 (host $(hostname)): layer 12 of request 'a7', step 301; it gives no sign of life"
expect stop 4 74 "rank 3 (host $(hostname))"
expect throw 3 65 "rank 2 says: a stranger's weights"
expect drop 3 74 "rank 2 says: the transport was given up"
expect die 3 any ""
expect size 2 70 "a message of 1000 bytes from rank 0 was expected to have 996 bytes (rows of step 7)"
expect large 2 70 "a message of 992 bytes from rank 0 was expected to have 1048576 bytes (rows of step 8)"
expect circle 3 74 "the ranks wait for one another in a circle"

# Before, between and after the work, where all ranks meet. Before heartbeats run, MPI alone knows who is missing.
host=$(hostname)
expect stop-starting 3 74 "waited 6 s for MPI to start: not all ranks have come"
expect stop-arriving 3 74 "rank 0 says: waited 2 s for rank 2: the start of the job"
expect stop-meeting 3 74 "rank 0 says: waited 2 s for rank 2 (host $host): gathering the ranks' colours; it gives no sign of life"
expect slow-meeting 3 0 ""
expect stop-parting 3 74 "for rank 2 (host $host): its end of the work; it gives no sign of life"
expect stop-at-the-end 3 74 "waited 6 s for MPI to end: not all ranks have come"
exit "$failures"
