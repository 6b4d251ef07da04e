//! Computes settings from flags and the configuration file. clap reports an invalid flag. Errors in
//! the file, and conflicts between values, are reported together; each names the flag, or the file
//! and the field.

mod check;
mod demo;
mod environment;
mod exec_limits;
mod file;
mod filename_arg;
mod flags;
mod free_instance;
mod kubelet;
mod metrics;
mod play;
mod policies;
mod private_dir;
mod runtime;
mod validator;
mod values;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use file::File;
use validator::Validator;

pub use check::{CheckReport, check};
pub use demo::DemoSettings;
pub use environment::Environment;
pub(crate) use environment::STATE_DIR_VARIABLE;
pub use exec_limits::ExecLimitFlags;
pub use filename_arg::FilenameArg;
pub use flags::{Flags, InstanceArg, RuntimeWatch};
pub use free_instance::FreeInstance;
pub use metrics::{FilePath, MetricsAddress, MetricsFlags, MetricsSettings, TokenReviewSource};
pub use play::{EmbeddedRuntimeName, PlayFlags, PlaySettings, Until};
pub use policies::{FaultFlag, PolicySettings, read_faults, read_policies};
pub use private_dir::{PrivateDir, PrivateDirError};
pub use runtime::{RuntimeFlags, RuntimeSettings};
pub use values::{
    BoundedDuration, ByteSize, DirPath, InstanceName, LogSizeLimit, LoopbackAddress, OrOff, ValueError,
    whole_number,
};

use crate::history::journal;
use crate::policy::Pauses;
use crate::probe::{ApiPodSource, KubeletSearch, KubeletSource, SpecResolver, SpecSources};
use crate::prober::{EnforcementMode, EnforcementSettings, KillLimit};
use crate::socket::SocketPath;
use crate::telemetry::traces::TraceConfig;
use crate::{execsync, relay, telemetry};

/// Default address of metrics and health.
const HTTP: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9754));

/// Default address of metrics and health of a named instance: a free port.
const HTTP_OF_INSTANCE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Default time that calls in flight have to finish after a signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Default kill limit. It is higher than the number of kills on a healthy node.
const MAX_KILLS: KillLimit = KillLimit { count: 30, within: Duration::from_secs(10 * 60) };

/// Default duration from which an ExecSync counts as slow.
const SLOW_THRESHOLD: Duration = Duration::from_secs(1);

/// The JSON schema of the configuration file.
pub const SCHEMA: &str = include_str!("schema.json");

/// Validated settings of `run`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings of the relay and of everything that observes it.
    pub shim: ServerConfig,
    /// Settings of the log.
    pub log: telemetry::LogConfig,
}

/// Settings of the relay and of everything that observes it.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Socket on which clients connect; `None` if systemd passes it.
    pub listen: Option<SocketPath>,
    /// The admin socket.
    pub admin: SocketPath,
    /// Additional users who may read at the admin socket.
    pub readers: Vec<u32>,
    /// Additional users who may read and change things at the admin socket.
    pub controllers: Vec<u32>,
    /// Loopback address of metrics and health; `None` if they are not served on TCP.
    pub http: Option<SocketAddr>,
    /// Whether `/pods` is served at `http` too.
    pub http_pods: bool,
    /// Settings of the address at which Prometheus reads the metrics; `None` if there is none.
    pub metrics: Option<MetricsSettings>,
    /// Settings of the relay.
    pub relay: relay::RelayConfig,
    /// Settings of the analysis of ExecSyncs.
    pub exec: execsync::SlownessConfig,
    /// Probes from rules and manifests.
    pub specs: SpecResolver,
    /// Sources of probes that may change at run time.
    pub sources: SpecSources,
    /// Enforcement mode, kill limit and protected containers.
    pub enforcement: EnforcementSettings,
    /// Settings of the journal; `None` if calls are not recorded.
    pub journal: Option<journal::JournalConfig>,
    /// Settings of exported traces; `None` if none are exported.
    pub traces: Option<TraceConfig>,
    /// Whether probeshim lists pods and containers and subscribes to the runtime's events.
    pub watch_runtime: bool,
    /// The operating mode: the control that probeshim has over pods.
    pub operating_mode: OperatingMode,
    /// The state directory; `None` only in the mode `Observe`, if there is no default.
    pub state: Option<PathBuf>,
    /// The source of the path of the state directory.
    pub state_source: StateDirSource,
    /// Fault rules.
    pub policies: PolicySettings,
}

/// Source of the path of the state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateDirSource {
    /// The default directory of the instance.
    Default,
    /// `--state-dir` or the configuration file.
    Flag,
    /// The variable `PROBESHIM_STATE_DIR`.
    Variable,
}

/// Control that probeshim has over pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatingMode {
    /// Probeshim observes pods, and may run their probes.
    Observe,
    /// Probeshim restarts the containers that clients create.
    Restart,
    /// Probeshim runs the pods of manifests.
    Kubelet,
}

/// The subcommand for which flags are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Run,
    Play,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct ConfigProblem {
    /// The flag with its dashes, or the file and the field.
    pub field: String,
    /// The invalid value; `None` if there is no value.
    pub value: Option<String>,
    /// The error, and the allowed values.
    pub reason: String,
}

/// All problems, in the order of the flags; displayed with one line for each.
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
    /// Checks the flags and the configuration file, and fills in defaults. The error has all
    /// problems, not only the first.
    pub fn new(flags: &Flags, around: &Environment) -> Result<Self, Problems> {
        let (mut flags, mut validator) = (flags.clone(), Validator::default());
        let around = validator.named_instance(&flags.instance, around);
        let file = File::read(&mut flags, &around, &mut validator);
        Self::from_flags(flags, file, validator, &around, Purpose::Run)
    }

    /// Computes settings from flags into which the values of the configuration file have been
    /// merged.
    fn from_flags(
        flags: Flags,
        file: File,
        mut validator: Validator,
        around: &Environment,
        purpose: Purpose,
    ) -> Result<Self, Problems> {
        let File { rules, kubelet, mut protected, faults, path, exec_flags } = file;
        let kubelet = kubelet_source(kubelet, flags.kubelet_kubeconfig);
        let config_file = path.clone().unwrap_or_else(|| around.config_path());
        let exec = flags.exec_limits.settings(&mut validator);
        let faults = PolicySettings::new(flags.fault, faults, path, &mut validator);
        let policies = PolicySettings { exec, exec_flags, ..faults };
        let is_activated = around.is_activated && purpose == Purpose::Run;
        let listen = match flags.listen {
            None if is_activated => None,
            None => validator.default_from("--listen", around.default_socket("probeshim.sock")),
            listen => listen,
        };
        let admin =
            flags.admin.or_else(|| validator.default_from("--admin", around.default_socket("admin.sock")));
        let upstream = flags.upstream.or_else(|| validator.default_upstream(around, listen.as_ref()));
        let (default_mode, default_limit) = match purpose {
            Purpose::Run => (EnforcementMode::default(), Some(MAX_KILLS)),
            // Pods of `play` are killed as a kubelet kills them, without a limit.
            Purpose::Play => (EnforcementMode::Restart, None),
        };
        let mode = flags.enforce.unwrap_or(default_mode);
        let most = flags.max_kills.map_or(default_limit, |OrOff(limit)| limit);
        let watch_runtime = flags.watch_runtime != Some(RuntimeWatch::Off);
        if mode != EnforcementMode::Off && !watch_runtime {
            let name = mode.name();
            let reason =
                format!("cannot be off with --enforce {name}: the prober would not know the containers");
            validator.error("--watch-runtime", Some("off"), reason);
        }
        protected.extend(flags.never_kill);
        let operating_mode = match (purpose, mode) {
            (Purpose::Play, _) => OperatingMode::Kubelet,
            (Purpose::Run, EnforcementMode::Restart) => OperatingMode::Restart,
            (Purpose::Run, _) => OperatingMode::Observe,
        };
        let state_source = match &flags.state_dir {
            None => StateDirSource::Default,
            dir if *dir == around.state_dir_variable => StateDirSource::Variable,
            Some(_) => StateDirSource::Flag,
        };
        let state = match flags.state_dir {
            Some(DirPath(state)) => Some(state),
            None if operating_mode == OperatingMode::Observe => around.state_dir().ok(),
            None => validator.default_from("--state-dir", around.state_dir()),
        };
        let journal = validator.journal(state.as_deref(), flags.record_limit, around);
        let collector = around.has_collector.then_some(TraceConfig { endpoint: None });
        let files = validator.files(&flags.manifests, flags.redact_commands);
        let specs = SpecResolver::from_files(&files).and_rules(rules);
        let metrics = MetricsSettings::new(flags.metrics, &mut validator);
        let taken = [("--listen", &listen), ("--upstream", &upstream)];
        for (other, socket) in taken.iter().filter_map(|(flag, socket)| Some((flag, socket.as_ref()?))) {
            if let Some(admin) = admin.as_ref().filter(|admin| admin.is_same_as(socket)) {
                let reason = format!("is also the socket of {other}; choose another path");
                validator.error("--admin", Some(&admin.to_string()), reason);
            }
        }
        let (Some(upstream), Some(admin), true) = (upstream, admin, validator.problems.is_empty()) else {
            return Err(Problems(validator.problems));
        };
        let http = if around.instance.is_some() { HTTP_OF_INSTANCE } else { HTTP };
        let http = flags.http.unwrap_or(OrOff(Some(LoopbackAddress(http))));
        let drain_timeout = flags.drain_timeout.map_or(DRAIN_TIMEOUT, Duration::from);
        let slow = flags.slow_threshold.map_or(SLOW_THRESHOLD, Duration::from);
        let shim = ServerConfig {
            listen: listen.clone().filter(|_| !is_activated),
            admin,
            http: http.0.map(|LoopbackAddress(address)| address),
            http_pods: flags.http_pods,
            metrics,
            readers: flags.allow_uid,
            controllers: flags.allow_control_uid,
            relay: relay::RelayConfig { upstream: upstream.clone(), drain_timeout },
            exec: execsync::SlownessConfig { slow, redact_commands: flags.redact_commands },
            specs,
            sources: SpecSources {
                search: (purpose == Purpose::Run).then(|| KubeletSearch {
                    sockets: [Some(upstream.clone()), listen.clone()].into_iter().flatten().collect(),
                    uses_read_only_port: kubelet.is_none(),
                }),
                config_file: (purpose == Purpose::Run).then_some(config_file),
                files,
                kubelet,
                redacts: flags.redact_commands,
            },
            enforcement: EnforcementSettings { mode, most, protected, pauses: Pauses::default() },
            journal,
            traces: flags.otlp_endpoint.map_or(collector, |OrOff(config)| config),
            watch_runtime,
            operating_mode,
            state,
            state_source,
            policies,
        };
        Ok(Self { shim, log: flags.log.unwrap_or_default() })
    }
}

/// Returns the source of the node's pods: that of the flag, or else that of the file.
fn kubelet_source(file: Option<KubeletSource>, flag: Option<FilePath>) -> Option<KubeletSource> {
    let Some(FilePath(kubeconfig)) = flag else { return file };
    let node_name = match file {
        Some(KubeletSource::ApiServer(source)) => source.node_name,
        _ => None,
    };
    Some(KubeletSource::ApiServer(ApiPodSource { kubeconfig, node_name }))
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Returns the admin socket that a command queries: `flag`, the field of the configuration file, or
/// the default.
pub fn admin_socket(
    flag: Option<SocketPath>,
    instance: &InstanceArg,
    around: &Environment,
) -> Result<SocketPath, Problems> {
    let mut validator = Validator::default();
    let around = validator.named_instance(instance, around);
    let socket = flag.or_else(|| file::admin_field(&around, &mut validator));
    if !validator.problems.is_empty() {
        return Err(Problems(validator.problems));
    }
    let socket = socket.or_else(|| validator.default_from("--admin", around.queried_socket("admin.sock")));
    socket.ok_or(Problems(validator.problems))
}

#[cfg(test)]
mod tests;
