#!/bin/bash
# Executes commands that read from a disk, before and after its rate is limited for their container, and queries the lints.
. node/node.sh

start_containerd 2.2
start_probeshim 2.2
pod=$(crictl runp pod.json)
container=$(crictl create "$pod" container.json pod.json)
crictl start "$container"
crictl exec --sync "$container" dd if=/dev/zero of=/data bs=1M count=8 conv=fsync

# read_data: reads the file past the page cache.
read_data() { crictl exec --sync "$container" dd if=/data of=/dev/null bs=64K iflag=direct; }

# On a slow machine each attempt is slow, and most of them have to be those that wait for the disk.
echo "disk: not limited"
for _ in 1 2; do read_data; done
probeshim lint --output json >out/before.json

echo "disk: limited"
pid=$(crictl inspect --output go-template --template '{{.info.pid}}' "$container")
# systemd enables the controller for the scope of the container.
systemctl set-property --runtime "$(basename "$(cut -d : -f 3 "/proc/$pid/cgroup")")" "IOReadBandwidthMax=/dev/vda 1M"
for _ in 1 2 3 4 5 6; do read_data; done
# A call is recorded when its evidence has arrived.
for _ in $(seq 100); do
  probeshim lint --output json >out/lint.json
  if grep -q slow-disk out/lint.json; then break; fi
  sleep 0.1
done
probeshim lint
probeshim calls --output json >out/calls.json
