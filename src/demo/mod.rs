//! The demo: manifests of its pods, and the introduction on the terminal.

mod introduction;

pub use introduction::{Endpoints, introduction};

/// Manifests of the demo's pods.
pub const PODS: &str = include_str!("pods.yaml");
