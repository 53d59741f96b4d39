#!/usr/bin/env bash
# down.sh - stop what up.sh started (recorded pids, then step daemons found by this
# sandbox's own mount namespaces; never by name) and remove the sandbox.  KEEP=1 keeps the files.
D=${SLURM_SANDBOX:-/tmp/slurm-sandbox}; export SLURM_CONF=$D/slurm.conf
[ -d "$D" ] || exit 0
scancel -u "$(id -un)" 2>/dev/null
for _ in $(seq 1 60); do [ -z "$(squeue -h 2>/dev/null)" ] && break; sleep 0.2; done
slurmds=$(cat "$D"/spool/*.pid 2>/dev/null); pids="$slurmds $(cat "$D/ctld/pid" "$D/munge/pid" 2>/dev/null)"
ns=$(for p in $slurmds; do readlink "/proc/$p/ns/mnt"; done)          # one per pretend node
for p in $pids; do kill "$p" 2>/dev/null; done
alive() { for p in $pids; do kill -0 "$p" 2>/dev/null && return 0; done; return 1; }
for _ in $(seq 1 50); do alive || break; sleep 0.1; done
# A step killed mid-launch can keep its slurmd waiting: whatever still lives in our namespaces goes.
for q in /proc/[0-9]*; do m=$(readlink "$q/ns/mnt" 2>/dev/null) || continue
  for n in $ns; do [ "$m" = "$n" ] && kill -9 "${q#/proc/}" 2>/dev/null; done; done
for _ in $(seq 1 20); do alive || break; sleep 0.1; done
alive && echo "slurm-down: still alive: $pids" >&2
[ "${KEEP:-0}" = 1 ] || rm -rf "$D"
