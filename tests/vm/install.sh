#!/bin/bash
# Installs probeshim in front of a kubelet, lets each way back happen, and removes it.
. node/node.sh
. kubelet-unit.sh

# record NAME COMMAND...: writes the output of the command and its exit code to out/NAME.
record() {
  local name=$1 code=0
  shift
  "$@" </dev/null >"out/$name" 2>&1 || code=$?
  echo "exit code $code" >>"out/$name"
}

start_containerd 2.2
chgrp adm "$runtime"
install_kubelet before-1.34
tree >out/tree-before
record doctor-before probeshim doctor

echo "install: dry run"
record dry-run probeshim install --kubelet --dry-run
tree >out/tree-dry-run
kubelet_endpoint >out/endpoint-before

echo "install: confirmed"
record install probeshim install --kubelet --yes --confirm 10m
kubelet_endpoint >out/endpoint-installed
crictl --runtime-endpoint unix:///run/probeshim/probeshim.sock version >out/version
stat -c '%U:%G %a' "$runtime" /run/probeshim/probeshim.sock >out/access
record doctor-installed probeshim doctor
record status-installed probeshim status
record calls-installed probeshim calls --peer kubelet --last 5
probeshim calls --output json --peer kubelet --last 200 >out/calls.json
# Nothing is left to do, so neither the kubelet nor probeshim restarts.
pids() { systemctl show --value --property MainPID kubelet probeshim; }
pids >out/pids-before
record install-again probeshim install --kubelet --yes --confirm 10m
pids >out/pids-after

echo "bypass: five crashes"
# The start of the service is older than a minute, so that it does not count.
until [ "$(ps -o etimes= -p "$(systemctl show --value --property MainPID probeshim)")" -gt 60 ]; do sleep 1; done
crashes=0
until [ "$(systemctl show --value --property ActiveState probeshim)" = failed ]; do
  pid=$(systemctl show --value --property MainPID probeshim)
  if [ "$pid" != 0 ]; then
    kill -KILL "$pid"
    crashes=$((crashes + 1))
    until [ "$(systemctl show --value --property MainPID probeshim)" != "$pid" ]; do sleep 0.05; done
  fi
done
echo $crashes >out/crashes
until [ "$(kubelet_endpoint)" = "unix://$runtime" ]; do sleep 0.2; done
wait_kubelet
systemctl show --property ActiveState,Result probeshim >out/state-bypassed
record doctor-bypassed probeshim doctor

echo "revert: not confirmed"
# Enter comes from a terminal only.
record install-unconfirmed probeshim install --kubelet --confirm 30s
until [ "$(kubelet_endpoint)" = "unix://$runtime" ]; do sleep 0.2; done
wait_kubelet

echo "confirm: from another process"
record install-waiting probeshim install --kubelet --confirm 10m &
installing=$!
until grep -q 'otherwise it is reverted' out/install-waiting; do sleep 0.2; done
record confirm probeshim confirm
wait $installing
kubelet_endpoint >out/endpoint-confirmed

echo "doctor: an upgrade changed the flags"
echo "KUBELET_EXTRA_ARGS=--v=2" >/etc/default/kubelet
record doctor-upgraded probeshim doctor
echo "KUBELET_EXTRA_ARGS=--v=1" >/etc/default/kubelet

echo "bypass: systemd refuses to reload while /run is almost full"
size=$(($(df --output=size /run | tail -n 1)))
mount -o remount,size=$(($(df --output=used /run | tail -n 1) + 8192))k /run
systemctl start --no-block probeshim-bypass
until [ "$(systemctl show --value --property NRestarts probeshim-bypass)" -gt 0 ]; do sleep 0.2; done
kubelet_endpoint >out/endpoint-full
mount -o remount,size="${size}k" /run
until [ "$(kubelet_endpoint)" = "unix://$runtime" ]; do sleep 0.2; done
wait_kubelet
until [ "$(systemctl show --value --property ActiveState probeshim-bypass)" = inactive ]; do sleep 0.2; done
ls /etc/systemd/system/kubelet.service.d >out/files-bypassed

echo "uninstall: continues one that was killed before systemd read the units again"
record install-third probeshim install --kubelet --yes --confirm 10m
rm /etc/systemd/system/kubelet.service.d/zz-probeshim.*
record dry-run-stale probeshim install --kubelet --dry-run
record uninstall-interrupted probeshim uninstall --yes
kubelet_endpoint >out/endpoint-interrupted

echo "uninstall"
record install-fourth probeshim install --kubelet --yes --confirm 10m
record uninstall probeshim uninstall --yes --purge
# The removal has waited for the kubelet.
busybox wget -q -O - http://127.0.0.1:10248/healthz >out/healthz-removed
kubelet_endpoint >out/endpoint-removed
tree >out/tree-after
systemctl list-units --all --plain --no-legend 'probeshim*' >out/units-after

echo "mounts: units of run --enforce restart and of play have the mount namespace of the host"
# in_host_namespace: returns whether the service has the mount namespace of the host.
in_host_namespace() {
  [ "$(readlink "/proc/$(systemctl show --value --property MainPID probeshim)/ns/mnt")" = "$(readlink /proc/1/ns/mnt)" ]
}
record install-observer probeshim install --upstream "$runtime"
until [ "$(systemctl show --value --property ActiveState probeshim)" = active ]; do sleep 0.2; done
! in_host_namespace
mkdir /etc/probeshim
echo "enforce: restart" >/etc/probeshim/config.yaml
record install-restart probeshim install
until in_host_namespace; do sleep 0.2; done
# A unit for play has the same hardening.
properties=()
while read -r line; do properties+=(--property "$line"); done \
  < <(grep -E '^(NoNewPrivileges|LockPersonality|RestrictRealtime|SystemCallArchitectures)=' /etc/systemd/system/probeshim.service)
[ ${#properties[@]} -gt 0 ]
record uninstall-restart probeshim uninstall --yes --purge
systemctl stop kubelet
mkfifo fifo
systemd-run --quiet --unit play --service-type notify "${properties[@]}" \
  /payload/bin/probeshim play /payload/mounts.json --upstream "$runtime" --state-dir /payload/state --record-limit off
cat fifo >out/mounts
systemctl stop play
