# Sets a kubelet up as packages of Kubernetes and kubeadm do. A payload sources this file after node.sh.

# The socket of the runtime, which the kubelet uses without probeshim.
runtime=/run/containerd-2.2/containerd.sock

# The unit that runs the kubelet.
kubelet_unit=kubelet

# install_kubelet before-1.34|since-1.34: writes the unit and the files of that version of kubeadm, and starts the kubelet.
install_kubelet() {
  mkdir -p /var/lib/kubelet /etc/systemd/system/kubelet.service.d /etc/default
  sed "s#/run/probeshim.sock#$runtime#" "$node/kubelet.yaml" >/var/lib/kubelet/config.yaml
  local arguments=--hostname-override=node
  if [ "$1" = before-1.34 ]; then
    arguments+=" --container-runtime-endpoint=unix://$runtime"
  else
    echo "containerRuntimeEndpoint: unix://$runtime" >/var/lib/kubelet/instance-config.yaml
  fi
  echo "KUBELET_KUBEADM_ARGS=\"$arguments\"" >/var/lib/kubelet/kubeadm-flags.env
  echo "KUBELET_EXTRA_ARGS=--v=1" >/etc/default/kubelet
  cat >/etc/systemd/system/kubelet.service <<'END'
[Unit]
Description=kubelet
StartLimitIntervalSec=0
[Service]
ExecStart=/payload/tools/kubelet-1.36/kubelet
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
END
  cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'END'
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/payload/tools/kubelet-1.36/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
END
  systemctl daemon-reload
  systemctl start kubelet
  wait_kubelet
}

# wait_kubelet: waits until the kubelet answers.
wait_kubelet() { wait_until shows ok timeout 30 busybox wget -q -O - http://127.0.0.1:10248/healthz; }

# state UNIT PROPERTY: prints a property of a unit.
state() { systemctl show --value --property "$2" "$1"; }

# is_another_process PID: returns whether probeshim has another process than this one.
is_another_process() {
  local pid
  pid=$(state probeshim MainPID) && [[ $pid =~ ^[1-9] && $pid != "$1" ]]
}

# wait_endpoint SOCKET: waits until the kubelet runs with this endpoint, and answers.
wait_endpoint() {
  wait_until shows "unix://$1" kubelet_endpoint
  wait_kubelet
}

# kubelet_endpoint: prints the last endpoint on the kubelet's command line, which has precedence, or that of its configuration.
# Prints nothing if the kubelet does not run.
kubelet_endpoint() {
  local pid arguments
  pid=$(state "$kubelet_unit" MainPID)
  arguments=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline") || return 0
  [[ $arguments == */kubelet-1.36/kubelet* ]] || return 0
  if ! sed -n 's/^--container-runtime-endpoint=//p' <<<"$arguments" | tail -n 1 | grep .; then
    sed -n 's/^containerRuntimeEndpoint: //p' /var/lib/kubelet/config.yaml
  fi
}

# tree: prints each file that an installation could have changed, with its mode, link and content.
tree() {
  local dir dirs=()
  for dir in /etc /usr/local /var/lib/probeshim; do
    if [ -e "$dir" ]; then dirs+=("$dir"); fi
  done
  find "${dirs[@]}" -printf '%m %p %l\n' | sort -k 2
  find "${dirs[@]}" -type f -exec sha256sum {} + | sort -k 2
}
