#!/bin/bash
# Installs probeshim on imitated nodes of other distributions.
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
install_kubelet before-1.34

echo "layouts of other distributions, imitated: RKE2 passes arguments of its configuration to its kubelet"
systemctl stop kubelet
rm -r /etc/systemd/system/kubelet.service /etc/systemd/system/kubelet.service.d
mkdir -p /run/k3s/containerd /etc/rancher/rke2
ln -s "$runtime" /run/k3s/containerd/containerd.sock
cat >/usr/local/bin/rke2 <<'END'
#!/bin/bash
arguments=()
for file in /etc/rancher/rke2/config.yaml.d/*.yaml; do
  while read -r argument; do arguments+=("--$argument"); done < <(sed -n 's/^- //p' "$file" 2>/dev/null)
done
exec /payload/tools/kubelet-1.36/kubelet --config=/var/lib/kubelet/config.yaml --hostname-override=node \
  --container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock "${arguments[@]}"
END
chmod +x /usr/local/bin/rke2
printf '[Service]\nExecStart=/usr/local/bin/rke2 agent\nRestart=always\n' >/etc/systemd/system/rke2-agent.service
systemctl daemon-reload
systemctl start rke2-agent
kubelet_unit=rke2-agent
wait_kubelet
record 0 install-rke2 probeshim install --kubelet --yes --confirm 10m
kubelet_endpoint >out/endpoint-rke2
cat /etc/rancher/rke2/config.yaml.d/zz-probeshim.yaml >out/config-rke2
record 0 uninstall-rke2 probeshim uninstall --yes --purge
wait_endpoint /run/k3s/containerd/containerd.sock
ls -A /etc/rancher/rke2 >out/files-rke2

echo "layouts of other distributions, imitated: MicroK8s and k0s are switched by hand"
systemctl stop rke2-agent
rm /etc/systemd/system/rke2-agent.service
for unit in snap.microk8s.daemon-kubelite k0sworker; do
  printf '[Service]\nExecStart=/bin/true\n' >"/etc/systemd/system/$unit.service"
  systemctl daemon-reload
  record 1 "install-$unit" probeshim install --kubelet --yes
  rm "/etc/systemd/system/$unit.service"
done
systemctl daemon-reload
record 1 install-none probeshim install --kubelet --yes
