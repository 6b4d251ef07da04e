#!/bin/bash
# Executes commands without the runtime: in pods of crictl on runc and crun, and as probes of a kubelet.
. node/node.sh

# state: prints how many containers are in which state of their verification.
state() { probeshim status | sed -n 's/^containers *//p'; }

# compare NAME RUNTIME VERSION: verifies a container, and leaves what a command sees with and without the runtime in out/NAME.
compare() {
  local out=out/$1 pod container
  echo "compare: $1"
  mkdir "$out"
  pod=$(crictl runp --runtime "$2" pod.json)
  container=$(crictl create "$pod" container.json pod.json)
  crictl start "$container"
  for _ in $(seq 50); do
    crictl exec --sync "$container" true
    case $(state) in [0-9]*" verified" | *"left to the runtime"*) break ;; esac
  done
  state >"$out/state"
  crictl exec --sync "$container" /bin/attributes >"$out/direct"
  crictl --runtime-endpoint "unix:///run/containerd-$3/containerd.sock" exec --sync "$container" /bin/attributes \
    >"$out/runtime"
  probeshim bench exec --container "$container" --calls 20 --output json -- true >"$out/bench.json"
  # The timeout is long, because an emulated machine is slow.
  probeshim bench exec --storm --container "$container" --rates 1,2,3,4 --duration-per-step 10s --timeout 10 \
    --endpoint "runtime=/run/containerd-$3/containerd.sock" --endpoint direct=/run/probeshim.sock \
    -- true >"$out/storm"
  crictl rmp --force "$pod"
}

start_containerd 1.6
start_probeshim 1.6 --exec direct-all
compare containerd-1.6-runc runc 1.6
compare containerd-1.6-crun crun 1.6
systemctl stop probeshim.socket probeshim.service containerd-1.6

start_containerd 2.2
start_probeshim 2.2 --exec direct --manifests /payload/manifests
echo "kubelet"
start_kubelet
# is_executed: returns whether probeshim has executed a probe.
is_executed() { probeshim calls --method ExecSync --output json >out/calls.json && grep -q '"direct"' out/calls.json; }
wait_until is_executed
