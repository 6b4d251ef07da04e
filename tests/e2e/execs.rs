//! Where the time of an ExecSync goes, on real containerd: what probeshim says of calls whose answer is known.

use crate::real::containerd::{Containerd, Version};
use crate::real::execs;
use crate::support::skip::need;

#[test]
fn are_explained_by_containerd_2_2() {
    need!(execs::are_explained(&need!(Containerd::start(Version::V2_2))));
}

#[test]
fn are_explained_by_containerd_1_6() {
    need!(execs::are_explained(&need!(Containerd::start(Version::V1_6))));
}
