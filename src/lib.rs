//! probeshim is a proxy between the kubelet (or crictl) and a container runtime. It forwards every
//! CRI call byte for byte, and shows each call.
//!
//! A module uses only modules above it; only `app` uses all of them. The blank lines between the
//! modules keep rustfmt from sorting them.
//!
//! ```text
//! kubelet / crictl ⇄ socket ⇄ relay ⇄ socket of the runtime ──containerd's events, lists──┐
//!                              │ captures                                                 │
//!                             tap ──► inventory ──► probe ──► execsync ◄──────────────────┘
//!                                         │           └──► prober ──► kubelet ──► runtime, pods
//!                                         └──► history ──► admin ──► cli
//! ```

#![warn(missing_debug_implementations, missing_docs)]

pub mod memory;

pub mod terminal;

pub mod suggest;

pub mod regular_file;

pub mod format_version;

pub mod redact;

pub mod object_ref;

pub mod events;

pub mod file_id;

pub mod lockfile;

mod niceness;

mod token_bucket;

mod distributions;

mod processes;

pub mod net;

mod ascii_url;

pub mod gofmt;

pub mod exec_output;

pub mod duration;

pub mod deadline;

pub mod hex;

pub mod build_info;

pub mod telemetry;

pub mod metrics;

pub mod socket;

pub mod state;

pub mod tls;

pub mod https;

pub mod api_server;

pub mod authorization;

pub mod local_kubelet;

pub mod cri;

pub mod containerd;

pub mod relay;

pub mod tap;

pub mod manifest;

pub mod inventory;

pub mod probe;

pub mod policy;

pub mod direct;

pub mod handler;

pub mod kill;

pub mod prober;

pub mod kubelet;

pub mod execsync;

pub mod procrun;

pub mod bench;

pub mod history;

pub mod lint;

pub mod capture;

pub mod replay;

pub mod config;

pub mod engine;

pub mod admin;

pub mod report;

pub mod overview;

pub mod web;

pub mod top;

/// Installs probeshim as a service, and undoes that.
pub mod install;

pub mod cli;

pub mod progress;

pub mod demo;

pub mod app;

// Public for the fuzz targets and the test of their corpora only.
#[doc(hidden)]
pub mod fuzzing;
