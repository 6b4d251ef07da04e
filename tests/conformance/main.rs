//! `make conformance`: the most demanding clients and the other runtimes, first directly and then
//! through the relay.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "how many cases of critest pass is shown")]

mod critest;
mod execs;
mod holds;
mod kubelet;
mod life;
mod survival;
