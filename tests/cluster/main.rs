//! `make cluster-test`: a cluster whose kubelet has probeshim as its runtime.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acceptance;
mod deployment;
mod objects;
mod upstream;
