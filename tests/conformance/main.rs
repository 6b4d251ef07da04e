//! `make conformance`: the most demanding clients and the other runtimes, directly and through the relay in turn.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what servers logged is shown with the test that failed")]

mod critest;
mod execs;
mod kubelet;
mod life;
#[path = "../real/mod.rs"]
mod real;
#[path = "../support/mod.rs"]
mod support;
mod survival;
