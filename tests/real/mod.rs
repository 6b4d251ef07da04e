//! Fixtures: real runtimes, real clients and the real binary, each in a folder of its own and gone when dropped.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod accounts;
pub(crate) mod collector;
pub(crate) mod containerd;
pub(crate) mod crictl;
pub(crate) mod crio;
pub(crate) mod differential;
pub(crate) mod execs;
pub(crate) mod http;
pub(crate) mod image;
pub(crate) mod judge;
pub(crate) mod kubelet;
pub(crate) mod leftovers;
pub(crate) mod life;
pub(crate) mod lifecycle;
pub(crate) mod machine;
pub(crate) mod mistakes;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod parity;
pub(crate) mod play;
pub(crate) mod probing;
pub(crate) mod procrun;
pub(crate) mod registry;
pub(crate) mod restarts;
pub(crate) mod server;
pub(crate) mod shim;
pub(crate) mod story;
pub(crate) mod survival;
