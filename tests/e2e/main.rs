//! The real thing: containerd, runc, CNI and crictl, directly and through the relay.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what servers logged is shown with the test that failed")]

mod clients;
mod execs;
mod killing;
mod kubelet;
mod life;
mod objects;
mod probing;
mod procrun;
#[path = "../real/mod.rs"]
mod real;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod volumes;
