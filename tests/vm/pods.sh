#!/bin/bash
# Runs pods behind probeshim: with crictl on each containerd, then with a kubelet and with play.
. node/node.sh

cat /proc/1/comm >out/init
stat --file-system --format %T /sys/fs/cgroup >out/cgroup-file-system
cp /sys/fs/cgroup/cgroup.controllers out/
cat /sys/module/apparmor/parameters/mode >out/apparmor-mode

# run_pod NAME RUNTIME: leaves its results in out/NAME.
run_pod() {
  local out=out/$1 pod container pid cgroup
  echo "pod: $1"
  mkdir "$out"
  pod=$(crictl runp --runtime "$2" pod.json)
  container=$(crictl create "$pod" container.json pod.json)
  crictl start "$container"
  crictl inspectp "$pod" >"$out/sandbox.json"
  crictl exec --sync "$container" cat /proc/self/attr/current >"$out/apparmor"
  pid=$(crictl inspect --output go-template --template '{{.info.pid}}' "$container")
  cgroup=$(cut -d : -f 3 "/proc/$pid/cgroup")
  echo "$cgroup" >"$out/cgroup"
  cat "/sys/fs/cgroup$cgroup/memory.max" >"$out/memory-max"
  crictl rmp --force "$pod"
}

# run_throttled: executes a command that works until its CPU limit has throttled it in twenty periods.
run_throttled() {
  local pod container
  echo "pod: throttled"
  pod=$(crictl runp pod.json)
  container=$(crictl create "$pod" limited.json pod.json)
  crictl start "$container"
  # shellcheck disable=SC2016 # the shell in the container expands it
  crictl exec --sync "$container" sh -c \
    'n() { sed -n "s/^nr_throttled //p" /sys/fs/cgroup/cpu.stat; }; while [ "$(n)" -lt 20 ]; do :; done'
  crictl rmp --force "$pod"
}

start_containerd 1.6
start_probeshim 1.6
crictl version >out/version-1.6
run_pod containerd-1.6-runc runc
run_pod containerd-1.6-crun crun
probeshim calls --output json >out/calls-1.6.json
systemctl stop probeshim.socket probeshim.service containerd-1.6

start_containerd 2.2
start_probeshim 2.2
crictl version >out/version-2.2
run_pod containerd-2.2-runc runc
run_throttled
echo "pod: kubelet"
mkdir out/kubelet
# The container writes into it; until then, the reader waits.
mkfifo fifo
start_kubelet
read_fifo >out/kubelet/apparmor
probeshim calls --output json >out/calls-2.2.json
systemctl stop kubelet probeshim.socket probeshim.service

echo "pod: play"
cat >look.sh <<'END'
probeshim pods vm/oom --output json >out/oom.json
find /sys/fs/cgroup/probeshim.slice -name 'cri-containerd-*.scope' >out/play-scopes
# With the events of the cgroups below, and of those that were removed.
cat /sys/fs/cgroup/probeshim.slice/memory.events >out/play-memory-events
END
probeshim play oom.json --upstream /run/containerd-2.2/containerd.sock --instance play \
  --until restarts=1 -- bash look.sh
find /sys/fs/cgroup/probeshim.slice -name 'cri-containerd-*.scope' >out/scopes-after-play
