#!/usr/bin/env bash
# up.sh - a real, private Slurm on one machine: no systemd, no accounting DB,
#               no cgroups, no sshd, loopback only.  Run as root (or inside a root sandbox).
# Usage: up.sh [NODES] [CPUS_PER_NODE]       default: 4 nodes x 2 (fake) CPUs
# Then:  export SLURM_CONF=$SLURM_SANDBOX/slurm.conf ; sinfo ; sbatch job.sh ; down.sh
# Needs slurmctld, slurmd, slurm-client and munge (scripts/install-packages.sh --tests installs them).
set -euo pipefail
N=${1:-4} CPUS=${2:-2}
D=${SLURM_SANDBOX:-/tmp/slurm-sandbox}            # everything lives here; rm -rf to forget it
P=${SLURM_SANDBOX_PORT:-17000}                    # first of N+2 loopback ports
HOST=$(hostname -s)
mkdir -p "$D"/{munge,ctld,log,spool}; chmod 755 "$D" "$D/munge"

# 1. munge: own key and socket.  munged refuses a key readable by others or a dir others can write.
[ -s "$D/munge/munge.key" ] || { head -c 128 /dev/urandom > "$D/munge/munge.key"; chmod 600 "$D/munge/munge.key"; }
munged --key-file="$D/munge/munge.key" --socket="$D/munge/s" --pid-file="$D/munge/pid" \
       --log-file="$D/log/munged.log" --seed-file="$D/munge/seed" --force 2>"$D/log/munged.err"

# 2. slurm.conf.  cred_expire=5: a requeued job waits that long before it may start (default 120 s).
#    One slurmd per pretend node, all on 127.0.0.1, each on its own port; %n in the
#    paths (also TmpFS, where PMIx puts its per-node files) keeps them apart.  config_overrides lets CPUs exceed real ones.
MEM=$(awk '/MemTotal/{print int($2/1024*0.9)}' /proc/meminfo)
cat > "$D/slurm.conf" <<C
ClusterName=sandbox
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$P
AuthType=auth/munge
AuthInfo=socket=$D/munge/s,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$D/ctld
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/ctld/pid
SlurmdPidFile=$D/spool/%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TmpFS=$D/tmp/%n
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$D/log/jobcomp.txt
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
SlurmdParameters=config_overrides
MpiDefault=pmix
JobRequeue=1
KillWait=5
MinJobAge=3600
ReturnToService=2
SlurmdTimeout=15
NodeName=node[1-$N] NodeHostname=node[1-$N] NodeAddr=127.0.0.1 Port=$((P+1))-$((P+N)) CPUs=$CPUS RealMemory=$MEM Gres=gpu:$CPUS State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
C
# Pretend GPUs, so --gpus-per-task and CUDA_VISIBLE_DEVICES can be tested on a CPU-only machine.
for g in $(seq 0 $((CPUS-1))); do [ -e "$D/nvidia$g" ] || mknod "$D/nvidia$g" c 1 3; done   # twins of /dev/null
echo "NodeName=node[1-$N] Name=gpu File=$D/nvidia[0-$((CPUS-1))] Flags=nvidia_gpu_env" > "$D/gres.conf"
export SLURM_CONF=$D/slurm.conf

# 3. daemons; each forks itself into the background and writes its pid file.
slurmctld
for i in $(seq 1 "$N"); do mkdir -p "$D/spool/node$i" "$D/tmp/node$i"; chmod 1777 "$D/tmp/node$i"; 
  # Own hostname and own /dev/shm per pretend node: without this Open MPI's shared-memory transport
  # ("vader") takes all nodes for one host, its segment files collide and ranks crash (seen: SIGSEGV
  # in MPI_Init at 2 nodes x 2 ranks).  The price is only CLONE_NEWNS + NEWUTS + NEWIPC, so root.
  unshare --mount --uts --ipc bash -c 'mount -t tmpfs none /dev/shm; hostname "$0"; exec slurmd -N "$0"' "node$i"
done

# 4. wait until every node is idle (bounded).
for _ in $(seq 1 100); do
  [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = "$N" ] && { sinfo; exit 0; }
  sleep 0.1
done
echo "slurm-up: nodes did not become idle; see $D/log" >&2; sinfo >&2 || true; exit 1
