//! Flags of `run`, which `play` has as well.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    BoundedDuration, ByteSize, DirPath, ExecLimitFlags, FaultFlag, FilePath, InstanceName, LoopbackAddress,
    MetricsFlags, OrOff, STATE_DIR_VARIABLE, whole_number,
};
use crate::probe::Selector;
use crate::prober::{EnforcementMode, KillLimit};
use crate::socket::SocketPath;
use crate::telemetry;
use crate::telemetry::traces::TraceConfig;

/// Largest uid. The number after it means that there is no uid.
pub(super) const MAX_UID: u64 = (u32::MAX - 1) as u64;

/// Flags of `run`. An absent flag has its default.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct Flags {
    /// The flag that names the instance.
    #[command(flatten)]
    pub instance: InstanceArg,

    /// Socket on which clients connect: unix:///PATH or a bare path
    /// [default: unix:///run/probeshim/probeshim.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(
        long,
        value_name = "URI",
        allow_hyphen_values = true,
        verbatim_doc_comment,
        env = "PROBESHIM_LISTEN",
        hide_env_values = true
    )]
    pub listen: Option<SocketPath>,

    /// Socket of the container runtime
    /// [default: $CONTAINER_RUNTIME_ENDPOINT, or unix:///run/containerd/containerd.sock, or that of
    /// k3s, RKE2, MicroK8s or k0s]
    #[arg(
        long,
        value_name = "URI",
        allow_hyphen_values = true,
        verbatim_doc_comment,
        env = "PROBESHIM_UPSTREAM",
        hide_env_values = true
    )]
    pub upstream: Option<SocketPath>,

    /// Admin socket, to which `probeshim calls` and similar commands connect
    /// [default: unix:///run/probeshim/admin.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(
        long,
        value_name = "URI",
        allow_hyphen_values = true,
        verbatim_doc_comment,
        env = "PROBESHIM_ADMIN",
        hide_env_values = true
    )]
    pub admin: Option<SocketPath>,

    /// Additional user who may read at the admin socket: calls with their commands and output,
    /// probes, events and results. Root and the user of probeshim have all rights. The socket then
    /// has mode 0666, and probeshim checks the uid of each client. May be repeated
    #[arg(long, value_name = "UID", allow_hyphen_values = true, value_parser = whole_number::<u32, 0, MAX_UID>)]
    pub allow_uid: Vec<u32>,

    /// Additional user who may read at the admin socket, and also set an enforcement mode up to
    /// that of --enforce, pause probes, delete pods of play, and add and end fault rules. Only root
    /// and the user of probeshim may capture calls and add rules that change messages (set, remove,
    /// exit, repeat, truncate, reverse). May be repeated
    #[arg(long, value_name = "UID", allow_hyphen_values = true, value_parser = whole_number::<u32, 0, MAX_UID>)]
    pub allow_control_uid: Vec<u32>,

    /// Loopback address and port of the web page, /metrics, /metrics/probes, /healthz, /readyz and,
    /// with --http-pods, /pods, or off;
    /// port 0 selects a free port [default: 127.0.0.1:9754, with --instance a free port]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true, verbatim_doc_comment)]
    pub http: Option<OrOff<LoopbackAddress>>,

    /// Serve /pods on --http too, as a kubelet does on its read-only port, and show commands,
    /// output and query strings on the web page. Every user of this machine can then read the
    /// commands, annotations and query strings of pods. The admin socket always serves /pods
    #[arg(long)]
    pub http_pods: bool,

    /// Flags of the address at which Prometheus reads the metrics.
    #[command(flatten)]
    pub metrics: MetricsFlags,

    /// Configuration file in YAML: these flags under names such as drainTimeout, a kubelet to query
    /// for its pods, and rules for probes. `probeshim schema` describes it. Flags take precedence
    /// [default: /etc/probeshim/config.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// File or directory of manifests from which probes are read, in YAML or JSON: Pod, Deployment,
    /// DaemonSet, StatefulSet, ReplicaSet, Job, CronJob, List. May be repeated
    #[arg(long, value_name = "PATH")]
    pub manifests: Vec<PathBuf>,

    /// Kubeconfig of the kubelet, such as /etc/kubernetes/kubelet.conf: the pods of this node and
    /// their probes are read from its API server. It takes the place of kubelet in the
    /// configuration file
    #[arg(long, value_name = "FILE")]
    pub kubelet_kubeconfig: Option<FilePath>,

    /// Enforcement mode: the action when a liveness or startup probe fails [default: off]
    #[arg(long, value_name = "MODE", allow_hyphen_values = true, value_enum)]
    pub enforce: Option<EnforcementMode>,

    /// Maximum number of kills within a period, such as 5/1h, or off for no limit. Further kills
    /// are skipped and reported [default: 30/10m]
    #[arg(long, value_name = "N/DURATION", allow_hyphen_values = true)]
    pub max_kills: Option<OrOff<KillLimit>>,

    /// Containers that are never killed: KEY=PATTERN, or several separated by commas, all of which
    /// must match. The keys are namespace, pod, container, image and label.NAME; * matches any
    /// text, and ? one character. May be repeated
    #[arg(long, value_name = "SELECTOR", allow_hyphen_values = true)]
    pub never_kill: Vec<Selector>,

    /// Fault to inject into calls, in the form METHOD KEY=VALUE…: TERM -> TERM…, such as "ExecSync
    /// pod=default/web-*: 2*off -> 1*hang -> delay(500ms)". It lives as long as probeshim;
    /// `probeshim fault` adds faults that end by themselves. May be repeated
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    pub fault: Vec<FaultFlag>,

    /// Flags of the limits and of coalescing.
    #[command(flatten)]
    pub exec_limits: ExecLimitFlags,

    /// Directory for recorded calls, for the database of pods and restarts, and for the volumes and
    /// logs of pods that play runs
    /// [default: /var/lib/probeshim, without root $XDG_STATE_HOME/probeshim]
    #[arg(
        long,
        value_name = "DIR",
        allow_hyphen_values = true,
        verbatim_doc_comment,
        env = STATE_DIR_VARIABLE,
        hide_env_values = true
    )]
    pub state_dir: Option<DirPath>,

    /// Maximum disk space for recorded calls and results of probes, 1MiB to 1TiB, or off to record
    /// none [default: 64MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub record_limit: Option<OrOff<ByteSize>>,

    /// Collector to which a span for each call about a pod or container is sent: http://HOST:PORT
    /// (gRPC if the port is 4317, otherwise HTTP), on for the endpoint in the OTEL_ variables, or
    /// off [default: on if OTEL_EXPORTER_OTLP_ENDPOINT is set, otherwise off]
    #[arg(long, value_name = "URL", allow_hyphen_values = true)]
    pub otlp_endpoint: Option<OrOff<TraceConfig>>,

    /// Whether probeshim queries the runtime itself, in addition to relaying calls [default: on]
    #[arg(long, value_name = "on|off", value_enum)]
    pub watch_runtime: Option<RuntimeWatch>,

    /// Duration from which an ExecSync counts as slow, 0s to 24h [default: 1s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub slow_threshold: Option<BoundedDuration>,

    /// Show only the program of each command, not its arguments, and hide the output of probes,
    /// status messages of calls and query strings of URLs: in calls, events, logs, metrics, traces
    /// and /pods
    #[arg(long)]
    pub redact_commands: bool,

    /// Time that calls in flight have to finish after SIGTERM or SIGINT, 0s to 24h [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub drain_timeout: Option<BoundedDuration>,

    /// Log filter: a level (off, error, warn, info, debug, trace), or targets with levels, such as
    /// probeshim::relay=debug. The level debug logs each call [default: info]
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    pub log: Option<telemetry::LogConfig>,
}

/// The flag that names an instance.
#[derive(Clone, Debug, Default, Args)]
pub struct InstanceArg {
    /// Name of the instance, for several on one machine: probeshim-NAME takes the place of
    /// probeshim in all default paths
    #[arg(
        long,
        value_name = "NAME",
        allow_hyphen_values = true,
        env = "PROBESHIM_INSTANCE",
        hide_env_values = true
    )]
    pub instance: Option<InstanceName>,
}

/// Whether probeshim queries the runtime itself. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeWatch {
    /// List pods and containers, and subscribe to events
    On,
    /// Observe only relayed calls; phases of ExecSyncs stay unknown
    Off,
}
