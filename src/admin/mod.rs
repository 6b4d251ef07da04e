//! The admin API: HTTP on a unix socket, and its public part on a loopback address.
//!
//! ```text
//! admin socket (0600) ──► everything
//! loopback TCP ──► host check ──► /metrics /healthz /readyz, and /pods with --http-pods
//! ```

pub mod api;
mod client;
mod host_check;
mod listener;
#[cfg(test)]
mod metric_reference;
mod readiness;
mod routes;
mod server;
mod slots;
mod state;

pub use client::{Client, ClientError, Followed};
pub use server::{serve_admin, serve_public};
pub use state::{Admin, ApiMetrics, ApiState, ServerInfo};

/// Response header with the version of the API. Any change other than a new field raises the
/// version.
const API_HEADER: &str = "probeshim-api";

/// The version of the API.
const API_VERSION: &str = "1";
