//! End-to-end tests with containerd, runc, CNI and crictl, directly and through the relay.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod capture;
mod clients;
mod direct;
mod direct_attacks;
mod direct_chaos;
mod direct_hostile;
mod direct_limits;
mod direct_orphans;
mod direct_scripts;
mod execs;
mod faults;
mod images;
mod incidents;
mod killing;
mod kubelet;
mod life;
mod limits;
mod objects;
mod page;
mod pauses;
mod probe_names;
mod probing;
mod procrun;
mod prometheus;
mod traces;
mod volumes;
