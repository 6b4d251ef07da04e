//! Kubelets of distributions whose flags are not in a unit or drop-in of systemd. Their
//! administrator switches them by hand.

use super::systemctl::{ServiceManager, ServiceManagerError, property};
use crate::distributions::{K0S_CONTAINERD, MICROK8S_CONTAINERD};

/// Endpoint of probeshim, as a flag of a kubelet.
const FLAG: &str = "--container-runtime-endpoint=unix:///run/probeshim/probeshim.sock";

/// A distribution whose kubelet is switched by hand.
struct ManualKubelet {
    name: &'static str,
    units: &'static [&'static str],
    /// Socket of its containerd.
    containerd: &'static str,
    /// Returns the lines to write and the commands to run; the parameter is the unit.
    switch: fn(&str) -> String,
}

const KUBELETS: [ManualKubelet; 2] = [
    ManualKubelet {
        name: "MicroK8s",
        units: &["snap.microk8s.daemon-kubelite.service"],
        containerd: MICROK8S_CONTAINERD,
        switch: |_| {
            format!(
                "add this line at the end of /var/snap/microk8s/current/args/kubelet:\n  {FLAG}\nand run:\n  \
                 snap restart microk8s.daemon-kubelite"
            )
        },
    },
    ManualKubelet {
        name: "k0s",
        units: &["k0sworker.service", "k0scontroller.service"],
        containerd: K0S_CONTAINERD,
        switch: |unit| {
            format!(
                "add this flag at the end of ExecStart= in /etc/systemd/system/{unit} (or to its --kubelet-extra-args):\n  \
                 --kubelet-extra-args={FLAG}\nand run:\n  systemctl daemon-reload && systemctl restart {unit}"
            )
        },
    },
];

/// Returns how the kubelet of this node is switched by hand; `None` if it has none of these
/// distributions.
pub(super) fn instructions(manager: &dyn ServiceManager) -> Result<Option<String>, ServiceManagerError> {
    for kubelet in &KUBELETS {
        for unit in kubelet.units {
            if property(manager, unit, "LoadState")? == "loaded" {
                let ManualKubelet { name, containerd, switch, .. } = kubelet;
                return Ok(Some(format!(
                    "{unit} runs the kubelet of {name}, which takes no drop-in; install the service alone:\n  \
                     probeshim install --upstream unix://{containerd}\nthen {}\nTo switch the kubelet back, remove \
                     what you added and restart it before `probeshim uninstall`",
                    switch(unit)
                )));
            }
        }
    }
    Ok(None)
}
