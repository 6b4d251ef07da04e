//! `probeshim install` on imitated nodes of other distributions of Kubernetes.

use fixtures::need;
use fixtures::vm::Vm;

use crate::payload::node_with_kubelet_unit;

#[test]
fn kubelets_of_other_distributions_are_switched_or_the_lines_to_write_are_shown() {
    let vm = need!(Vm::new());
    let outcome = vm.run(need!(node_with_kubelet_unit(include_str!("layouts.sh"))));
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
    let text = |name: &str| outcome.text(name);
    let shows = |name: &str, part: &str| {
        let shown = text(name);
        assert!(shown.contains(part), "{name} does not show {part:?}:\n{shown}");
    };
    shows("install-rke2", "confirmed");
    shows("config-rke2", "kubelet-arg+:\n- container-runtime-endpoint=unix:///run/probeshim/probeshim.sock");
    assert_eq!(
        (text("endpoint-rke2"), text("files-rke2")),
        ("unix:///run/probeshim/probeshim.sock".to_owned(), String::new())
    );
    shows("install-snap.microk8s.daemon-kubelite", "snap restart microk8s.daemon-kubelite");
    shows("install-k0sworker", "systemctl daemon-reload && systemctl restart k0sworker.service");
    shows(
        "install-none",
        "no kubelet was found: this node has no unit kubelet.service, nor one of k3s, RKE2",
    );
}
