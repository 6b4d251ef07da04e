//! What a running probeshim tells of itself: an HTTP API on a unix socket, and the public part of it on loopback.
//!
//! ```text
//! admin socket (0600) ──► everything        loopback TCP ──► guard ──► /metrics /healthz /readyz
//! ```

mod client;
mod guard;
mod listener;
mod routes;
mod server;
pub mod shape;
mod upstream;

pub use client::{Client, ClientError, Followed};
pub use server::{Admin, Facts, serve_admin, serve_public};
pub use shape::CallsQuery;

/// The name of the header that every answer carries: the version of the API, which changes when a field does other than appear.
const API_HEADER: &str = "probeshim-api";

/// The version of the API.
const API_VERSION: &str = "1";
