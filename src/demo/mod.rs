//! The demo: two pods that are played, and an account of what happens to them.

mod output;

pub use output::{DemoEnd, Endpoints, Reporter};

/// The manifests of its pods.
pub const PODS: &str = include_str!("pods.yaml");
