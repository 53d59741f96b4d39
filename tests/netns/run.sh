#!/bin/bash
# Ranks on two machines that share nothing but a network: two network namespaces joined by a cable, two ranks in each, over
# TCP, without sshd. The result is that of one rank. Usage: run.sh DIFFUSE. Exit 77: cannot be tried here.
set -u
diffuse=$1
top=$(cd "$(dirname "$0")/../.." && pwd)
skip() { echo "skipped: $*"; exit 77; }
for tool in ip unshare mpirun; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
a=diffuse-a$$ b=diffuse-b$$
ip netns add "$a" 2>/dev/null || skip "no network namespaces here"
work=$(mktemp -d)
trap 'ip netns del "$a"; ip netns del "$b" 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/log"; exit 1; }
ip netns add "$b" && ip link add va netns "$a" type veth peer name vb netns "$b" || skip "no virtual cables here"
ip -n "$a" addr add 10.77.0.1/24 dev va && ip -n "$b" addr add 10.77.0.2/24 dev vb || fail "addresses"
for n in "$a va" "$b vb"; do set -- $n; ip -n "$1" link set lo up; ip -n "$1" link set "$2" up; done
printf '10.77.0.1 %s\n10.77.0.2 %s\n127.0.0.1 localhost\n' "$a" "$b" >"$work/hosts"

# A machine of its own: host name, host table, shared memory. mpirun calls it where it would call ssh.
cat >"$work/on" <<E2
#!/bin/bash
host=\$1; shift
exec ip netns exec "\$host" unshare --uts --ipc --mount bash -c \\
  'hostname "\$0"; mount -t tmpfs none /dev/shm; mount --bind $work/hosts /etc/hosts; eval "\$@"' "\$host" "\$@"
E2
chmod +x "$work/on"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

printf '"Once upon a time"\n"The robot walked"\n"In the village"\n' >"$work/prompts.jsonl"
"$diffuse" pack "$work/prompts.jsonl" --model "$top/demo/lm" -o "$work/job.h5" >"$work/log" 2>&1 || fail "pack"
"$diffuse" run "$work/job.h5" -o "$work/whole.h5" --trace >"$work/log" 2>&1 || fail "the run of one rank"
timeout 120 "$work/on" "$a" mpirun -H "$a:2,$b:2" --mca plm rsh --mca plm_rsh_agent "$work/on" --mca pml ob1 \
  --mca btl self,vader,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
  "$diffuse" run "$work/job.h5" -o "$work/split.h5" --trace >"$work/log" 2>&1 || fail "the run over two machines"
"$diffuse" compare "$work/whole.h5" "$work/split.h5" >>"$work/log" 2>&1 || fail "the split run says something else"
"$diffuse" show "$work/split.h5" --summary | grep -q "hosts: \[\"$a\",\"$a\",\"$b\",\"$b\"\]" || fail "it did not run on both machines"
packets=$(ip netns exec "$b" cat /sys/class/net/vb/statistics/rx_packets)
[ "$packets" -gt 50 ] || fail "only $packets packets crossed the cable"
echo "passed: 4 ranks on 2 machines over TCP, identical; $packets packets"
