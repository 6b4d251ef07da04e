//! Pods of `play` survive kills of probeshim and of containerd.

use fixtures::need;
use fixtures::scenarios::survival::{beside_a_kubelet, containerd_ends, walks};

#[test]
fn ten_random_walks() {
    need!(walks(10));
}

#[test]
fn containerd_is_killed_and_restarted_while_containers_are_in_back_off() {
    need!(containerd_ends());
}

#[test]
fn beside_a_kubelet_nothing_is_restarted() {
    need!(beside_a_kubelet());
}
