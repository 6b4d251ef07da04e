#!/bin/bash
# Upgrades an installed probeshim in front of a kubelet while a call is in flight and others begin and end. Then kills it,
# and lets it hang.
. node/node.sh
. kubelet-unit.sh

# A failed test shows this log too. The console has the last lines of all services only.
trap 'journalctl --no-pager --unit probeshim >out/journal' EXIT

start_containerd 2.2
install_kubelet before-1.34
# The call in flight takes longer than all upgrades together.
mkdir /etc/probeshim
echo "drainTimeout: 1h" >/etc/probeshim/config.yaml
probeshim install --kubelet --yes --confirm 10m
sed s#/run/probeshim.sock#/run/probeshim/probeshim.sock# "$CRI_CONFIG_FILE" >crictl.yaml
export CRI_CONFIG_FILE=/payload/crictl.yaml
pid() { state probeshim MainPID; }
# watchdog_timeouts: prints how often the watchdog has ended the service.
watchdog_timeouts() { journalctl --unit probeshim --output cat | grep -c 'Watchdog timeout' || true; }
# serves_after PID: returns whether another process than this one serves calls.
serves_after() { is_another_process "$1" && crictl version >/dev/null 2>&1; }
container=$(crictl ps --quiet --name main)

echo "upgrades: twenty, with a call in flight"
crictl exec --sync --timeout 3600 "$container" sh -c \
  'touch /tmp/began; until [ -e /tmp/upgraded ]; do sleep 1; done; echo finished' >out/slow 2>&1 &
slow=$!
wait_until crictl exec --sync --timeout 60 "$container" test -e /tmp/began 2>/dev/null

# call_until_stopped: makes calls, counts those that succeed, and writes the others to out/failed-calls.
call_until_stopped() {
  local count=0 error
  until [ -e stop-calls ]; do
    if error=$(crictl exec --sync "$container" true 2>&1); then
      count=$((count + 1))
    else
      echo "$error" >>out/failed-calls
    fi
  done
  echo "$count" >out/calls
}
: >out/failed-calls
call_until_stopped &
client=$!

pid >out/pids
cp bin/probeshim /usr/local/bin/even
cp bin/probeshim /usr/local/bin/odd
for upgrade in $(seq 20); do
  before=$(pid)
  # Each upgrade replaces the file by another one.
  if [ $((upgrade % 2)) = 0 ]; then ln /usr/local/bin/even /usr/local/bin/new; else ln /usr/local/bin/odd /usr/local/bin/new; fi
  mv /usr/local/bin/new /usr/local/bin/probeshim
  systemctl reload probeshim
  wait_until is_another_process "$before"
  pid >>out/pids
  crictl exec --sync "$container" true
done
touch stop-calls
wait "$client"
kill -0 "$slow"
crictl exec --sync "$container" touch /tmp/upgraded
wait "$slow"
systemctl show --property ActiveState,NRestarts probeshim >out/state-upgraded

echo "crash: SIGKILL"
before=$(pid)
kill -KILL "$before"
wait_until serves_after "$before"

echo "hang: SIGSTOP"
before=$(pid)
kill -STOP "$before"
wait_until serves_after "$before"
watchdog_timeouts >out/watchdog
systemctl show --property ActiveState,NRestarts probeshim >out/state-restarted
kubelet_endpoint >out/endpoint-restarted

echo "hang: again, at the start"
printf '#!/bin/sh\nexec sleep infinity\n' >/usr/local/bin/new
chmod 755 /usr/local/bin/new
mv /usr/local/bin/new /usr/local/bin/probeshim
kill -KILL "$(pid)"
wait_endpoint "$runtime"
kubelet_endpoint >out/endpoint-bypassed
