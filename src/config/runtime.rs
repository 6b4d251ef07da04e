//! Flags of `runtime`, and the settings computed from them.

use std::time::Duration;

use clap::Args;

use super::validator::Validator;
use super::values::{BoundedDuration, DirPath, whole_number};
use super::{Environment, FaultFlag, InstanceArg, PolicySettings, Problems};
use crate::procrun::{self, TimeoutKillScope};
use crate::socket::SocketPath;
use crate::telemetry;

/// Maximum number of synthetic pods.
const MAX_SYNTHETIC_PODS: u64 = 100_000;

/// Flags of `runtime`. An absent flag has its default.
#[derive(Clone, Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct RuntimeFlags {
    /// The flag that names the instance.
    #[command(flatten)]
    pub instance: InstanceArg,

    /// Socket on which clients connect: unix:///PATH or a bare path
    /// [default: unix:///run/probeshim/procrun.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    pub listen: Option<SocketPath>,

    /// Directory below which each container has its working directory, which is removed with it
    /// [default: /var/lib/probeshim/procrun, without root in $XDG_STATE_HOME/probeshim]
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, verbatim_doc_comment)]
    pub root: Option<DirPath>,

    /// Delay before the command of each ExecSync starts, 0s to 24h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "0s")]
    pub exec_delay: BoundedDuration,

    /// Delay before the process of each StartContainer starts, 0s to 24h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "0s")]
    pub start_delay: BoundedDuration,

    /// Number of synthetic pods, up to 100000. Each has one running container that answers ExecSync
    /// without a process: with exit code 1 for the command false, and 0 for all others
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 0,
        value_parser = whole_number::<u32, 0, MAX_SYNTHETIC_PODS>)]
    pub synthetic: u32,

    /// Time that an ExecSync whose command has exited waits for other processes to close its
    /// output, 0s to 24h, as in containerd's setting of this name; 0s for no limit
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "0s")]
    pub drain_exec_sync_io_timeout: BoundedDuration,

    /// Processes that are killed when an ExecSync times out
    #[arg(long, value_name = "SCOPE", allow_hyphen_values = true, value_enum, default_value_t)]
    pub exec_timeout_kills: TimeoutKillScope,

    /// Fault to inject into calls, in the form METHOD KEY=VALUE…: TERM -> TERM…, such as "ExecSync
    /// pod=default/web-*: 2*off -> 1*hang -> delay(500ms)". It lives as long as the runtime. May be
    /// repeated
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    pub fault: Vec<FaultFlag>,

    /// Log filter: a level (off, error, warn, info, debug, trace), or targets with levels, such as
    /// probeshim::procrun=debug
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true, default_value = "info")]
    pub log: telemetry::LogConfig,
}

/// Validated settings of `runtime`.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Socket on which clients connect.
    pub listen: SocketPath,
    /// Settings of procrun.
    pub procrun: procrun::ProcrunConfig,
    /// Settings of the log.
    pub log: telemetry::LogConfig,
    /// Fault rules.
    pub faults: PolicySettings,
}

impl RuntimeSettings {
    /// Fills in the defaults that depend on the environment. The error names all flags that are
    /// required because there is no default.
    pub fn new(flags: RuntimeFlags, around: &Environment) -> Result<Self, Problems> {
        let mut validator = Validator::default();
        let around = validator.named_instance(&flags.instance, around);
        let listen = flags
            .listen
            .or_else(|| validator.default_from("--listen", around.default_socket("procrun.sock")));
        let root = flags.root.map(|DirPath(root)| root).or_else(|| {
            validator.default_from("--root", around.state_dir().map(|state| state.join("procrun")))
        });
        let faults = PolicySettings::new(flags.fault, Vec::new(), None, &mut validator);
        for rule in faults.flags.iter().filter(|rule| rule.matches.selects_probes()) {
            let reason = "must not select by probe: a runtime does not know the probes of its containers";
            validator.error("--fault", Some(&rule.to_string()), reason.to_owned());
        }
        let (Some(listen), Some(root), true) = (listen, root, validator.problems.is_empty()) else {
            return Err(Problems(validator.problems));
        };
        let io_drain_timeout = Duration::from(flags.drain_exec_sync_io_timeout);
        let procrun = procrun::ProcrunConfig {
            exec_delay: flags.exec_delay.into(),
            start_delay: flags.start_delay.into(),
            synthetic: flags.synthetic,
            exec_io_drain_timeout: Some(io_drain_timeout).filter(|limit| !limit.is_zero()),
            exec_timeout_kills: flags.exec_timeout_kills,
            ..procrun::ProcrunConfig::new(root)
        };
        Ok(Self { listen, procrun, log: flags.log, faults })
    }
}
