//! Pods of `play` survive kills of probeshim and of containerd.

use fixtures::need;
use fixtures::scenarios::survival::{beside_a_kubelet, containerd_ends, walks};

#[test]
fn played_pods_survive_ten_series_of_random_kills_of_probeshim() {
    need!(walks(10));
}

#[test]
fn played_containers_in_back_off_survive_a_restart_of_containerd() {
    need!(containerd_ends());
}

#[test]
fn client_containers_are_not_restarted_while_a_kubelet_is_present() {
    need!(beside_a_kubelet());
}
