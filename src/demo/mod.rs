//! The demo: manifests of two pods, and the introduction on the terminal.

mod introduction;

pub use introduction::{Endpoints, introduction};

/// Manifests of the demo's pods.
pub const PODS: &str = include_str!("pods.yaml");
