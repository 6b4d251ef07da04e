//! The admin API: HTTP on a unix socket, its public part on a loopback address, and its metrics on
//! any address.
//!
//! ```text
//! admin socket (0600) ──► users ──► everything, by the class of the caller
//! loopback TCP ──► host check ──► web page, /metrics /healthz /readyz, /pods with --http-pods
//! --metrics-listen ──► TLS, certificate or token ──► /metrics /healthz /readyz
//! ```

mod access;
pub mod api;
mod caller;
mod client;
mod host_check;
mod interpret;
mod listener;
#[cfg(test)]
mod metric_reference;
mod metrics_access;
mod queries;
mod readiness;
mod refusal;
mod refusal_log;
mod routes;
mod server;
mod slots;
mod state;
mod users;

pub use client::{Client, ClientError, Followed};
pub(crate) use interpret::{FuzzCaller, interpret_requests};
pub use metrics_access::{MetricsAccess, TokenAccess};
pub(crate) use refusal::refusal;
pub(crate) use routes::INDEX;
pub use server::{MetricsEndpoint, serve_admin, serve_metrics, serve_public};
pub(crate) use state::MAX_PAGE_STREAMS;
pub use state::{Admin, ApiMetrics, ApiState, ServerInfo};
pub use users::AdminUsers;

/// Response header with the version of the API. Any change other than a new field raises the
/// version.
pub(crate) const API_HEADER: &str = "probeshim-api";

/// The version of the API.
pub(crate) const API_VERSION: &str = "1";
