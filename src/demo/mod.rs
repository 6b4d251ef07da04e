//! The demo: manifests of two pods, and the output on the terminal.

mod output;

pub use output::{DemoEnd, Endpoints, Reporter};

/// Manifests of the demo's pods.
pub const PODS: &str = include_str!("pods.yaml");
