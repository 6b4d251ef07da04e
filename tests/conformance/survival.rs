//! What is played lives through the end of those who keep it.

use crate::real::survival::{containerd_is_killed, walks};
use crate::support::skip::need;

#[test]
fn ten_random_walks() {
    need!(walks(10));
}

#[test]
fn containerd_is_killed_while_containers_are_in_back_off() {
    need!(containerd_is_killed());
}
