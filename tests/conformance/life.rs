//! The whole life of a pod on the other runtimes, directly and through the relay: both have the
//! same output and exit codes.

use std::fs;

use fixtures::containerd::{Containerd, Version};
use fixtures::crio::Crio;
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::life;
use fixtures::shim::Probeshim;

#[test]
fn the_life_of_a_pod_on_containerd_1_7_is_the_same_directly_and_relayed() {
    let containerd = need!(Containerd::start(Version::V1_7));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    need!(life::compare(&containerd, shim));
}

#[test]
fn the_life_of_a_pod_on_containerd_2_0_is_the_same_directly_and_relayed() {
    let containerd = need!(Containerd::start(Version::V2_0));
    let shim = Probeshim::start(containerd.folder(), &containerd.socket());
    need!(life::compare(&containerd, shim));
}

#[test]
fn the_life_of_a_pod_on_crio_is_the_same_directly_and_relayed() {
    let crio = need!(Crio::start());
    let shim = Probeshim::start(crio.folder(), &crio.socket());
    need!(life::compare(&crio, shim));
}

#[test]
fn the_life_of_a_pod_on_crio_is_the_same_behind_a_socket_named_crio_sock() {
    let crio = need!(Crio::start());
    // The kubelet recognizes CRI-O by the end of this path.
    let folder = crio.folder().join("run/crio");
    fs::create_dir_all(&folder).unwrap();
    let shim = Probeshim::listening(&folder.join("crio.sock"), crio.folder(), &crio.socket());
    need!(life::compare(&crio, shim));
}
