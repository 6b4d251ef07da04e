//! A real kubelet directly on the runtime and through the relay: both have the same pods, restarts
//! and answers.

use fixtures::accounts;
use fixtures::need;
use fixtures::node::{Node, Part};
use fixtures::runtime::Runtime as _;

/// Number of probes, one per second, during which the kubelet is observed without disturbance.
const UNDISTURBED: usize = 60;

/// Number of restarts of each part, each with a pod that has just been requested.
const ROUNDS: usize = 3;

#[test]
fn a_kubelet_behaves_the_same_directly_and_relayed() {
    let direct = need!(Node::start(false)).live();
    let node = need!(Node::start(true));
    assert_eq!(node.live(), direct);
    node.wait_for_probes(UNDISTURBED);
    let errors = node.transport_errors();
    assert!(errors.is_empty(), "{errors:#?}");
    let shim = node.shim.as_ref().unwrap();
    accounts::agree(|| accounts::by_code(&shim.counted()), || node.containerd.accounts().unwrap());
}

#[test]
fn an_unrelayed_kubelet_survives_restarts() {
    survives_restarts(need!(Node::start(false)), &[Part::Containerd, Part::Kubelet]);
}

#[test]
fn a_relayed_kubelet_survives_restarts() {
    survives_restarts(need!(Node::start(true)), &[Part::Probeshim, Part::Containerd, Part::Kubelet]);
}

/// Restarts each part repeatedly. Running pods keep their containers, and pods that are being
/// created run in the end, none twice.
fn survives_restarts(mut node: Node, parts: &[Part]) {
    node.live();
    for round in 0..ROUNDS {
        for part in parts {
            let before = node.running();
            node.runs_another(&format!("late-{round}-{part:?}").to_lowercase());
            node.restart(*part);
            let after = node.running();
            assert_eq!(node.containers_ever(), [1, 1], "{part:?} was restarted");
            for (pod, container) in before {
                assert_eq!(after.get(&pod), Some(&container), "{pod}, when {part:?} was restarted");
            }
        }
    }
}
