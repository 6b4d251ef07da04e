#!/bin/bash
# Installs probeshim in front of a kubelet, lets each way back happen, and removes it.
. node/node.sh
. kubelet-unit.sh

# record CODE NAME COMMAND...: writes the output of the command to out/NAME. Fails unless it exits with CODE.
record() {
  local expected=$1 name=$2 code=0
  shift 2
  "$@" </dev/null >"out/$name" 2>&1 || code=$?
  if [ $code != "$expected" ]; then
    echo "$name: exit code $code instead of $expected:"
    cat "out/$name"
    return 1
  fi
}

start_containerd 2.2
chgrp adm "$runtime"
install_kubelet before-1.34
tree >out/tree-before
record 0 doctor-before probeshim doctor

echo "install: dry run"
record 0 dry-run probeshim install --kubelet --dry-run
tree >out/tree-dry-run
kubelet_endpoint >out/endpoint-before

echo "install: confirmed"
record 0 install probeshim install --kubelet --yes --confirm 10m
kubelet_endpoint >out/endpoint-installed
crictl --runtime-endpoint unix:///run/probeshim/probeshim.sock version >out/version
stat -c '%U:%G %a' "$runtime" /run/probeshim/probeshim.sock >out/access
record 0 doctor-installed probeshim doctor
record 0 status-installed probeshim status
record 0 calls-installed probeshim calls --peer kubelet --last 5
probeshim calls --output json --peer kubelet --last 200 >out/calls.json
# Nothing is left to do, so neither the kubelet nor probeshim restarts.
pids() { state kubelet MainPID && state probeshim MainPID; }
pids >out/pids-before
record 0 install-again probeshim install --kubelet --yes --confirm 10m
pids >out/pids-after

echo "bypass: five crashes"
# The unit counts the crashes of a minute. An emulated machine may need longer for five, so those of an hour count here. The
# reset forgets earlier starts.
mkdir -p /run/systemd/system/probeshim.service.d
printf '[Unit]\nStartLimitIntervalSec=1h\n' >/run/systemd/system/probeshim.service.d/limit.conf
systemctl daemon-reload
systemctl reset-failed probeshim
for crash in 1 2 3 4 5; do
  pid=$(state probeshim MainPID)
  kill -KILL "$pid"
  if [ "$crash" != 5 ]; then wait_until is_another_process "$pid"; fi
done
wait_until shows failed state probeshim ActiveState
wait_endpoint "$runtime"
systemctl show --property ActiveState,Result probeshim >out/state-bypassed
rm -r /run/systemd/system/probeshim.service.d
systemctl daemon-reload
record 1 doctor-bypassed probeshim doctor

echo "revert: not confirmed"
# Enter comes from a terminal only.
record 1 install-unconfirmed probeshim install --kubelet --confirm 60s
wait_endpoint "$runtime"

echo "confirm: from another process"
record 0 install-waiting probeshim install --kubelet --confirm 10m &
installing=$!
wait_until grep -q 'otherwise it is reverted' out/install-waiting
record 0 doctor-waiting probeshim doctor
record 0 confirm probeshim confirm
wait $installing
kubelet_endpoint >out/endpoint-confirmed

echo "doctor: an upgrade changed the flags"
echo "KUBELET_EXTRA_ARGS=--v=2" >/etc/default/kubelet
record 0 doctor-upgraded probeshim doctor
echo "KUBELET_EXTRA_ARGS=--v=1" >/etc/default/kubelet

echo "bypass: systemd refuses to reload while /run is almost full"
size=$(($(df --output=size /run | tail -n 1)))
mount -o remount,size=$(($(df --output=used /run | tail -n 1) + 8192))k /run
systemctl start --no-block probeshim-bypass
is_repeated() { [ "$(state probeshim-bypass NRestarts)" -gt 0 ]; }
wait_until is_repeated
kubelet_endpoint >out/endpoint-full
mount -o remount,size="${size}k" /run
wait_endpoint "$runtime"
wait_until shows inactive state probeshim-bypass ActiveState
ls /etc/systemd/system/kubelet.service.d >out/files-bypassed

echo "uninstall: continues one that was killed before systemd read the units again"
record 0 install-third probeshim install --kubelet --yes --confirm 10m
rm /etc/systemd/system/kubelet.service.d/zz-probeshim.*
record 1 dry-run-stale probeshim install --kubelet --dry-run
record 0 uninstall-interrupted probeshim uninstall --yes
kubelet_endpoint >out/endpoint-interrupted

echo "uninstall"
# Programs with any umask write files and directories of systemd. Links under the temporary names are not followed.
echo "of another program" >/root/other
ln -s /root/other /usr/local/bin/.probeshim.new
ln -s /root/other /etc/systemd/system/.probeshim.service.new
umask 000
record 0 install-fourth probeshim install --kubelet --yes --confirm 10m
umask 022
cp /root/other out/other
find /usr/local/bin /etc/systemd/system /var/lib/probeshim -perm /022 ! -type l >out/writable
record 0 uninstall probeshim uninstall --yes --purge
# The removal has waited for the kubelet.
busybox wget -q -O - http://127.0.0.1:10248/healthz >out/healthz-removed
kubelet_endpoint >out/endpoint-removed
tree >out/tree-after
systemctl list-units --all --plain --no-legend 'probeshim*' >out/units-after

echo "a lost record is rebuilt from the unit"
record 0 install-fifth probeshim install --kubelet --yes --confirm 10m
rm -r /var/lib/probeshim
record 0 doctor-lost probeshim doctor
record 1 install-own probeshim install --kubelet --upstream unix:///run/probeshim/probeshim.sock --yes
record 0 install-lost probeshim install --kubelet --yes --confirm 10m
kubelet_endpoint >out/endpoint-lost
grep ^ExecStart= /etc/systemd/system/probeshim.service >out/command-lost
rm /var/lib/probeshim/install.json
record 0 uninstall-lost probeshim uninstall --yes --purge
kubelet_endpoint >out/endpoint-lost-removed
tree >out/tree-lost

echo "mounts: units of run --enforce restart and of play have the mount namespace of the host"
# in_host_namespace: returns whether the service has the mount namespace of the host.
in_host_namespace() {
  [ "$(readlink "/proc/$(state probeshim MainPID)/ns/mnt")" = "$(readlink /proc/1/ns/mnt)" ]
}
record 0 install-observer probeshim install --upstream "$runtime"
wait_until shows active state probeshim ActiveState
if in_host_namespace; then
  echo "the observer has the mount namespace of the host"
  exit 1
fi
mkdir /etc/probeshim
echo "enforce: restart" >/etc/probeshim/config.yaml
record 0 install-restart probeshim install
wait_until in_host_namespace
# A unit for play has the same hardening.
properties=()
while read -r line; do properties+=(--property "$line"); done \
  < <(grep -E '^(NoNewPrivileges|LockPersonality|RestrictRealtime|SystemCallArchitectures)=' /etc/systemd/system/probeshim.service)
[ ${#properties[@]} -gt 0 ]
record 0 uninstall-restart probeshim uninstall --yes --purge
systemctl stop kubelet
mkfifo fifo
systemd-run --quiet --unit play --service-type notify "${properties[@]}" \
  /payload/bin/probeshim play /payload/mounts.json --upstream "$runtime" --state-dir /payload/state --record-limit off
read_fifo >out/mounts
systemctl stop play
