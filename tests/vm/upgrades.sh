#!/bin/bash
# Upgrades an installed probeshim in front of a kubelet while a call is in flight, kills it, and lets it hang.
. node/node.sh
. kubelet-unit.sh

start_containerd 2.2
install_kubelet before-1.34
# A call in flight may take longer than all upgrades together.
mkdir /etc/probeshim
echo "drainTimeout: 10m" >/etc/probeshim/config.yaml
probeshim install --kubelet --yes --confirm 10m
sed -e s#/run/probeshim.sock#/run/probeshim/probeshim.sock# -e 's/^timeout: .*/timeout: 600/' "$CRI_CONFIG_FILE" >crictl.yaml
export CRI_CONFIG_FILE=/payload/crictl.yaml
pid() { systemctl show --value --property MainPID probeshim; }
# served: waits until a process other than $1 serves calls.
served() {
  until [ "$(pid)" != "$1" ] && [ "$(pid)" != 0 ] && crictl version >/dev/null 2>&1; do sleep 0.1; done
}
container=$(crictl ps --quiet --name main)

echo "upgrades: twenty, with a call in flight"
crictl exec --sync --timeout 600 "$container" sh -c 'until [ -e /tmp/upgraded ]; do sleep 1; done; echo finished' >out/slow 2>&1 &
slow=$!
until probeshim calls --peer crictl --method ExecSync --output json | grep -q ExecSync; do sleep 0.2; done
for _ in $(seq 20); do
  before=$(pid)
  pid >>out/pids
  # Each upgrade replaces the file.
  cp /usr/local/bin/probeshim /usr/local/bin/new && mv /usr/local/bin/new /usr/local/bin/probeshim
  systemctl reload probeshim
  until [ "$(pid)" != "$before" ]; do sleep 0.05; done
done
until crictl exec --sync "$container" touch /tmp/upgraded; do sleep 0.2; done
wait "$slow" || true
systemctl show --property ActiveState,NRestarts probeshim >out/state-upgraded

echo "crash: SIGKILL"
before=$(pid)
kill -KILL "$before"
served "$before"

echo "hang: SIGSTOP"
before=$(pid)
kill -STOP "$before"
served "$before"
journalctl --unit probeshim --output cat | grep -o 'Watchdog timeout' | head -n 1 >out/watchdog
systemctl show --property ActiveState,NRestarts probeshim >out/state-killed
