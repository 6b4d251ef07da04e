//! A real kubelet on the runtime itself and through the relay: the same pods, the same restarts, the same answers.

use fixtures::accounts;
use fixtures::need;
use fixtures::node::{Node, Part};
use fixtures::runtime::Runtime as _;

/// Probes for which the kubelet is watched undisturbed, one a second.
const UNDISTURBED: usize = 60;

/// Times that each part is restarted, each time with a pod that has just been asked for.
const ROUNDS: usize = 3;

#[test]
fn lives_the_same_life() {
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
fn survives_restarts_on_the_runtime_itself() {
    survives_restarts(need!(Node::start(false)), &[Part::Containerd, Part::Kubelet]);
}

#[test]
fn survives_restarts_through_the_relay() {
    survives_restarts(need!(Node::start(true)), &[Part::Probeshim, Part::Containerd, Part::Kubelet]);
}

/// Restarts each part again and again: pods that run go on, and those that are just being made run in the end, none twice.
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
