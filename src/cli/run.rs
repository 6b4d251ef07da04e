//! `probeshim run`

use clap::Args;

use crate::config::Flags;

/// The flags of `run`, as they were written.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct Run {
    /// Where clients connect: unix:///PATH or a bare path
    /// [default: unix:///run/probeshim/probeshim.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    listen: Option<String>,

    /// The runtime's socket [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URI", allow_hyphen_values = true)]
    upstream: Option<String>,

    /// The admin socket, which `probeshim calls` and the like ask
    /// [default: unix:///run/probeshim/admin.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    admin: Option<String>,

    /// Where /metrics, /healthz and /readyz are served: a loopback address and a port, 0 for any, or off
    /// [default: 127.0.0.1:9754]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true, verbatim_doc_comment)]
    http: Option<String>,

    /// How long calls in flight may go on after SIGTERM or SIGINT, 0s to 24h [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    drain_timeout: Option<String>,

    /// off, error, warn, info, debug (adds a line for each call), trace, or tracing directives [default: info]
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    log: Option<String>,
}

impl From<Run> for Flags {
    fn from(run: Run) -> Self {
        let Run { listen, upstream, admin, http, drain_timeout, log } = run;
        Self { listen, upstream, admin, http, drain_timeout, log }
    }
}
