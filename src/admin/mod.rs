//! What a running probeshim tells of itself: an HTTP API on a unix socket, and the public part of it on loopback.
//!
//! ```text
//! admin socket (0600) ──► everything        loopback TCP ──► guard ──► /metrics /healthz /readyz, /pods if that is asked for
//! ```

pub mod api;
mod client;
mod host_check;
mod listener;
mod readiness;
mod routes;
mod server;
mod slots;
mod state;

pub use client::{Client, ClientError, Followed};
pub use server::{serve_admin, serve_public};
pub use state::{Admin, ApiMetrics, ApiState, ServerInfo};

/// The header of every answer that tells the version of the API, which is raised by any change other than a new field.
const API_HEADER: &str = "probeshim-api";

/// The version of the API.
const API_VERSION: &str = "1";
