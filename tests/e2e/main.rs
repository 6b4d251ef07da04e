//! The real thing: containerd, runc, CNI and crictl.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
