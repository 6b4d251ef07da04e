//! `probeshim run`

use std::path::PathBuf;

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

    /// Manifests that tell which probes there are, a file or a folder of them, in YAML or JSON: Pod, Deployment, DaemonSet, StatefulSet,
    /// ReplicaSet, Job, CronJob, List. May be given more than once
    #[arg(long, value_name = "PATH")]
    pods: Vec<PathBuf>,

    /// Where calls are recorded on disk [default: /var/lib/probeshim, without root $XDG_STATE_HOME/probeshim]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// How much of the disk they may take, 1MiB to 1TiB, or off [default: 64MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    record: Option<String>,

    /// Where a span for each call about a pod or container is sent: http://HOST:PORT of a collector (gRPC where the port is 4317, else
    /// HTTP), on for what the OTEL_ variables say, or off [default: on where OTEL_EXPORTER_OTLP_ENDPOINT is set, else off]
    #[arg(long, value_name = "URL", allow_hyphen_values = true)]
    otlp: Option<String>,

    /// Whether the runtime is asked which pods and containers there are, and for its events. off: only what passes is seen, and not where the
    /// time of an ExecSync goes [default: on]
    #[arg(long, value_name = "on|off")]
    watch_runtime: Option<String>,

    /// How long an ExecSync may take before it is looked at as slow, 0s to 24h [default: 1s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    slow: Option<String>,

    /// Show of commands only the program, never its arguments: in no call, event, log, metric or trace
    #[arg(long)]
    redact_commands: bool,

    /// How long calls in flight may go on after SIGTERM or SIGINT, 0s to 24h [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    drain_timeout: Option<String>,

    /// off, error, warn, info, debug (adds a line for each call), trace, or tracing directives [default: info]
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    log: Option<String>,
}

impl From<Run> for Flags {
    fn from(run: Run) -> Self {
        let Run {
            listen,
            upstream,
            admin,
            http,
            pods,
            state,
            record,
            otlp,
            watch_runtime,
            slow,
            redact_commands,
            drain_timeout,
            log,
        } = run;
        Self {
            listen,
            upstream,
            admin,
            http,
            pods,
            state,
            record,
            otlp,
            watch_runtime,
            slow,
            redact_commands,
            drain_timeout,
            log,
        }
    }
}
