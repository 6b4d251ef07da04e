//! From what was written to what is run: every value is checked at once, and every error names its flag.

mod environment;
mod file;
mod parse;
mod play;
mod runtime;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use file::File;
use parse::{
    Validator, demo_length, dir, duration, http_address, kill_limit, log_filter, mode, mode_of_play,
    on_or_off, socket_path,
};

pub use environment::Environment;
pub use play::{PlayFlags, PlaySettings, Until};
pub use runtime::{RuntimeFlags, RuntimeSettings};

use crate::history::journal;
use crate::probe::{SpecResolver, SpecSources, selector};
use crate::prober::{EnforcementMode, EnforcementSettings};
use crate::socket::SocketPath;
use crate::telemetry::traces;
use crate::{execsync, relay, telemetry};

/// Where containerd listens unless told otherwise.
const UPSTREAM: &str = "unix:///run/containerd/containerd.sock";

/// Where metrics and health are served unless told otherwise.
const HTTP: &str = "127.0.0.1:9754";

/// How long calls in flight may go on after a signal, unless told otherwise.
const DRAIN_TIMEOUT: &str = "30s";

/// What records on disk may take unless told otherwise.
const RECORD: &str = "64MiB";

/// How many kills there may be unless told otherwise: more than a node in order comes to.
const MAX_KILLS: &str = "30/10m";

/// What is slow unless told otherwise.
const SLOW: &str = "1s";

/// What is logged unless told otherwise.
const LOG: &str = "info";

/// The JSON schema of the configuration file.
pub const SCHEMA: &str = include_str!("schema.json");

/// The flags of `run` as they were written. What is absent has its default.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct Flags {
    /// Where clients connect: unix:///PATH or a bare path
    /// [default: unix:///run/probeshim/probeshim.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    pub listen: Option<String>,

    /// The runtime's socket [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URI", allow_hyphen_values = true)]
    pub upstream: Option<String>,

    /// The admin socket, which `probeshim calls` and the like ask
    /// [default: unix:///run/probeshim/admin.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    pub admin: Option<String>,

    /// Where /metrics, /metrics/probes, /healthz and /readyz are served: a loopback address and a port, 0 for any, or off
    /// [default: 127.0.0.1:9754]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true, verbatim_doc_comment)]
    pub http: Option<String>,

    /// Serve /pods on --http as well, as a kubelet does on its read-only port: every user of this machine can read the commands, annotations
    /// and query strings of pods then. The admin socket always serves it
    #[arg(long)]
    pub http_pods: bool,

    /// The configuration: these flags under names such as drainTimeout, a kubelet to ask for its pods, and rules for probes, in YAML;
    /// `probeshim schema` describes it. Flags win over it [default: /etc/probeshim/config.yaml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Manifests that tell which probes there are, a file or a folder of them, in YAML or JSON: Pod, Deployment, DaemonSet, StatefulSet,
    /// ReplicaSet, Job, CronJob, List. May be given more than once
    #[arg(long, value_name = "PATH")]
    pub manifests: Vec<PathBuf>,

    /// What is done about probes. off: nothing. dry-run: they are made as the kubelet makes them, and it is said what would be killed;
    /// nothing is. kill: what has failed its liveness or startup probe is stopped; somebody else starts it again. restart: what clients make
    /// through the relay is kept alive as a kubelet would: what ends or is killed is made again, under back-off [default: off]
    #[arg(long, value_name = "off|dry-run|kill|restart", allow_hyphen_values = true)]
    pub enforce: Option<String>,

    /// How many containers may be killed within which time, such as 5/1h, or off for any number. More are held, and told of
    /// [default: 30/10m]
    #[arg(long, value_name = "N/DURATION", allow_hyphen_values = true)]
    pub max_kills: Option<String>,

    /// Containers that are never killed: KEY=PATTERN, and more of them after commas, of namespace, pod, container, image, label.NAME; * stands
    /// for anything, ? for one character. May be given more than once
    #[arg(long, value_name = "SELECTOR", allow_hyphen_values = true)]
    pub never_kill: Vec<String>,

    /// Directory of recorded calls and of the state that outlives probeshim
    /// [default: /var/lib/probeshim, without root $XDG_STATE_HOME/probeshim]
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, verbatim_doc_comment)]
    pub state_dir: Option<String>,

    /// Size limit of the recorded calls on disk, 1MiB to 1TiB; off records none [default: 64MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub record_limit: Option<String>,

    /// Where a span for each call about a pod or container is sent: http://HOST:PORT of a collector (gRPC where the port is 4317, else
    /// HTTP), on for what the OTEL_ variables say, or off [default: on where OTEL_EXPORTER_OTLP_ENDPOINT is set, else off]
    #[arg(long, value_name = "URL", allow_hyphen_values = true)]
    pub otlp_endpoint: Option<String>,

    /// Whether the runtime is asked which pods and containers there are, and for its events. off: only what passes is seen, and not where
    /// the time of an ExecSync goes [default: on]
    #[arg(long, value_name = "on|off")]
    pub watch_runtime: Option<String>,

    /// Duration from which an ExecSync counts as slow, 0s to 24h [default: 1s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub slow_threshold: Option<String>,

    /// Show of commands only the program, never its arguments, nothing of what probes write, and no query strings of their URLs: in no call,
    /// event, log, metric or trace, and not in /pods
    #[arg(long)]
    pub redact_commands: bool,

    /// How long calls in flight may go on after SIGTERM or SIGINT, 0s to 24h [default: 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub drain_timeout: Option<String>,

    /// off, error, warn, info, debug (adds a line for each call), trace, or tracing directives [default: info]
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    pub log: Option<String>,
}

/// What `run` runs on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The shim's part.
    pub shim: ServerConfig,
    /// The log's part.
    pub log: telemetry::LogConfig,
}

/// What the relay and all that watches it run on.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where clients connect; `None` where systemd passes the socket.
    pub listen: Option<SocketPath>,
    /// The admin socket.
    pub admin: SocketPath,
    /// Where metrics and health are served on TCP, if anywhere; a loopback address.
    pub http: Option<SocketAddr>,
    /// Whether the pods that are played are served there, too.
    pub http_pods: bool,
    /// The relay's part.
    pub relay: relay::RelayConfig,
    /// The part of what watches ExecSyncs.
    pub exec: execsync::SlownessConfig,
    /// What rules and manifests tell of probes.
    pub specs: SpecResolver,
    /// Where that may change while it runs.
    pub sources: SpecSources,
    /// What is done about them.
    pub enforcement: EnforcementSettings,
    /// The part of what is recorded on disk, if anything is.
    pub journal: Option<journal::JournalConfig>,
    /// The part of what is exported as traces, if anything is.
    pub traces: Option<traces::TraceConfig>,
    /// Whether the runtime is asked for what is on the node, and for its events.
    pub watch_runtime: bool,
    /// What is done with pods on it.
    pub role: OperatingMode,
    /// The folder of what is to outlive us; `None` only where pods are watched, and there is no place for it.
    pub state: Option<PathBuf>,
}

/// What is done with pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatingMode {
    /// Nothing that they would not see of a relay; or their probes are made.
    Observe,
    /// What clients make is kept alive.
    Restart,
    /// They are played.
    Kubelet,
}

/// What flags are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Run,
    Play,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct ConfigProblem {
    /// The flag, with its dashes; or the file and the field in it.
    pub field: String,
    /// What was written, if anything was.
    pub value: Option<String>,
    /// What is wrong with it, and what is allowed.
    pub reason: String,
}

/// Everything that is wrong, in the order of the flags; shown with a line for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<ConfigProblem>);

impl ConfigProblem {
    fn line(&self) -> String {
        let Self { field, value, reason } = self;
        let value = value.as_ref().map(|value| format!("{value:?}"));
        let parts = [Some(field.clone()).filter(|field| !field.is_empty()), value, Some(reason.clone())];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Settings {
    /// Checks the flags and the configuration file, and fills in defaults. Returns every problem, not the first.
    pub fn new(flags: &Flags, around: &Environment) -> Result<Self, Problems> {
        let (mut flags, mut reader) = (flags.clone(), Validator::default());
        let file = File::read(&mut flags, around, &mut reader);
        Self::from_flags(&flags, file, reader, around, Purpose::Run)
    }

    /// Of flags to which the configuration file has added what they did not say.
    fn from_flags(
        flags: &Flags,
        file: File,
        mut reader: Validator,
        around: &Environment,
        purpose: Purpose,
    ) -> Result<Self, Problems> {
        let File { rules, kubelet, mut protected } = file;
        let listen = match &flags.listen {
            Some(listen) => reader.read("--listen", listen, socket_path),
            None if around.is_activated && purpose == Purpose::Run => None,
            None => reader.default_from("--listen", around.default_socket("probeshim.sock")),
        };
        let admin = reader.admin(flags.admin.as_deref(), around);
        let upstream = reader.read_or("--upstream", flags.upstream.as_deref(), UPSTREAM, socket_path);
        let http = reader.read_or("--http", flags.http.as_deref(), HTTP, http_address);
        let drain_timeout =
            reader.read_or("--drain-timeout", flags.drain_timeout.as_deref(), DRAIN_TIMEOUT, duration);
        let watches_runtime =
            reader.read_or("--watch-runtime", flags.watch_runtime.as_deref(), "on", on_or_off);
        let (mode, most) = match purpose {
            Purpose::Run => (
                reader.read_or(
                    "--enforce",
                    flags.enforce.as_deref(),
                    EnforcementMode::default().name(),
                    mode,
                ),
                reader.read_or("--max-kills", flags.max_kills.as_deref(), MAX_KILLS, kill_limit),
            ),
            // Whoever plays pods wants them killed as a kubelet kills them.
            Purpose::Play => (
                reader.read_or(
                    "--enforce",
                    flags.enforce.as_deref(),
                    EnforcementMode::Restart.name(),
                    mode_of_play,
                ),
                reader.read_or("--max-kills", flags.max_kills.as_deref(), "off", kill_limit),
            ),
        };
        if let Some(mode) =
            mode.filter(|mode| *mode != EnforcementMode::Off && watches_runtime == Some(false))
        {
            let name = mode.name();
            let reason =
                format!("cannot be off beside --enforce {name}: it would not be known what to probe");
            reader.error("--watch-runtime", flags.watch_runtime.as_deref(), reason);
        }
        let selectors = flags.never_kill.iter();
        protected.extend(selectors.filter_map(|text| reader.read("--never-kill", text, selector)));
        let role = match (purpose, mode) {
            (Purpose::Play, _) => OperatingMode::Kubelet,
            (Purpose::Run, Some(EnforcementMode::Restart)) => OperatingMode::Restart,
            (Purpose::Run, _) => OperatingMode::Observe,
        };
        let state = match &flags.state_dir {
            Some(state) => reader.read("--state-dir", state, dir),
            None if role == OperatingMode::Observe => around.state_dir(),
            None => reader.default_from("--state-dir", around.require_state_dir()),
        };
        let journal = reader.journal(state.as_deref(), flags.record_limit.as_deref(), around);
        let traces = reader.traces(flags.otlp_endpoint.as_deref(), around);
        let slow = reader.read_or("--slow-threshold", flags.slow_threshold.as_deref(), SLOW, duration);
        let files = reader.files(&flags.manifests, flags.redact_commands);
        let specs = SpecResolver::from_files(&files).and_rules(rules);
        let log = reader.read_or("--log", flags.log.as_deref(), LOG, log_filter);
        let taken = [("--listen", &listen), ("--upstream", &upstream)];
        for (other, socket) in taken.iter().filter_map(|(flag, socket)| Some((flag, socket.as_ref()?))) {
            if let Some(admin) = admin.as_ref().filter(|admin| admin.is_same_as(socket)) {
                let reason = format!("is the socket of {other} as well; choose another path");
                reader.error("--admin", Some(&admin.to_string()), reason);
            }
        }
        match (upstream, admin, http, drain_timeout, watches_runtime, mode, most, slow, log) {
            (
                Some(upstream),
                Some(admin),
                Some(http),
                Some(drain_timeout),
                Some(watch_runtime),
                Some(mode),
                Some(most),
                Some(slow),
                Some(log),
            ) if reader.problems.is_empty() => {
                let shim = ServerConfig {
                    listen: listen.filter(|_| !around.is_activated || purpose == Purpose::Play),
                    admin,
                    http,
                    http_pods: flags.http_pods,
                    relay: relay::RelayConfig { upstream, drain_timeout },
                    exec: execsync::SlownessConfig { slow, redact_commands: flags.redact_commands },
                    specs,
                    sources: SpecSources { files, kubelet, redacts: flags.redact_commands },
                    enforcement: EnforcementSettings { mode, most, protected },
                    journal,
                    traces,
                    watch_runtime,
                    role,
                    state,
                };
                Ok(Self { shim, log })
            }
            _ => Err(Problems(reader.problems)),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The admin socket that a command asks: what `--admin` says, or its default.
pub fn admin_socket(flag: Option<&str>, around: &Environment) -> Result<SocketPath, Problems> {
    let mut reader = Validator::default();
    reader.admin(flag, around).ok_or(Problems(reader.problems))
}

/// Reads manifests and the rules of a configuration. Returns their probes, and how many documents of each
/// kind make no pods; or every problem, not the first.
pub fn check(
    paths: &[PathBuf],
    config: Option<&PathBuf>,
    around: &Environment,
) -> Result<(SpecResolver, BTreeMap<String, usize>), Problems> {
    // Where it will run is not where it is checked.
    let around = Environment { is_root: true, ..around.clone() };
    let (mut flags, mut reader) =
        (Flags { config: config.cloned(), ..Flags::default() }, Validator::default());
    let file = File::read(&mut flags, &around, &mut reader);
    let (rules, manifests) = (file.rules.clone(), std::mem::take(&mut flags.manifests));
    let settings = Settings::from_flags(&flags, file, reader, &around, Purpose::Run);
    let mut problems = settings.err().map(|Problems(problems)| problems).unwrap_or_default();
    let paths: Vec<&PathBuf> = paths.iter().chain(&manifests).collect();
    let mut passed_over = BTreeMap::new();
    let specs = SpecResolver::read_and_count_skipped(&paths, &mut passed_over).unwrap_or_else(|errors| {
        let wrong = |reason: String| ConfigProblem { field: String::new(), value: None, reason };
        problems.extend(errors.iter().map(|error| wrong(error.to_string())));
        SpecResolver::default()
    });
    if problems.is_empty() { Ok((specs.and_rules(rules), passed_over)) } else { Err(Problems(problems)) }
}

/// What `--since` says.
pub fn since(flag: &str) -> Result<Duration, Problems> {
    let mut reader = Validator::default();
    reader.read("--since", flag, duration).ok_or(Problems(reader.problems))
}

/// What `--for` says of a demo.
pub fn demo_duration(flag: &str) -> Result<Duration, Problems> {
    let mut reader = Validator::default();
    reader.read("--for", flag, demo_length).ok_or(Problems(reader.problems))
}

#[cfg(test)]
mod tests;
