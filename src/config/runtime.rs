//! The flags of `runtime`, as written and as run.

use clap::Args;

use super::parse::{Validator, dir, duration, log_filter, socket_path};
use super::{Environment, LOG, Problems};
use crate::procrun::{self, TimeoutKillScope};
use crate::socket::SocketPath;
use crate::telemetry;

/// The most pods that only answer.
const MAX_SYNTHETIC_PODS: u32 = 100_000;

/// The flags of `runtime` as they were written. What is absent has its default.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct RuntimeFlags {
    /// Where clients connect: unix:///PATH or a bare path
    /// [default: unix:///run/probeshim/procrun.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    pub listen: Option<String>,

    /// The folder below which containers have their working directories, removed with them
    /// [default: /var/lib/probeshim/procrun, without root in $XDG_STATE_HOME/probeshim]
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, verbatim_doc_comment)]
    pub root: Option<String>,

    /// What each ExecSync waits before its command starts, 0s to 24h [default: 0s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub exec_delay: Option<String>,

    /// What each StartContainer waits before its process starts, 0s to 24h [default: 0s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub start_delay: Option<String>,

    /// Begin with so many pods of one running container each that answer an ExecSync without a process: exit code 1 to
    /// false, 0 to anything else [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub synthetic: Option<String>,

    /// How long an ExecSync whose command has ended waits for others to close its output, as containerd's setting of this
    /// name; 0s for as long as it takes [default: 0s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub drain_exec_sync_io_timeout: Option<String>,

    /// What an ExecSync that times out kills: the command's process alone, as containerd does, or its process group
    /// [default: process]
    #[arg(long, value_name = "process|group", allow_hyphen_values = true, verbatim_doc_comment)]
    pub exec_timeout_kills: Option<String>,

    /// off, error, warn, info, debug, trace, or tracing directives [default: info]
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    pub log: Option<String>,
}

/// What `runtime` runs on.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Where clients connect.
    pub listen: SocketPath,
    /// procrun's part.
    pub procrun: procrun::ProcrunConfig,
    /// The log's part.
    pub log: telemetry::LogConfig,
}

impl RuntimeSettings {
    /// Checks the flags and fills in defaults. Returns every problem, not the first.
    pub fn new(flags: &RuntimeFlags, around: &Environment) -> Result<Self, Problems> {
        let mut reader = Validator::default();
        let listen = match &flags.listen {
            Some(listen) => reader.read("--listen", listen, socket_path),
            None => reader.default_from("--listen", around.default_socket("procrun.sock")),
        };
        let root = match &flags.root {
            Some(root) => reader.read("--root", root, dir),
            None => {
                reader.default_from("--root", around.require_state_dir().map(|state| state.join("procrun")))
            }
        };
        let exec_delay = reader.read_or("--exec-delay", flags.exec_delay.as_deref(), "0s", duration);
        let start_delay = reader.read_or("--start-delay", flags.start_delay.as_deref(), "0s", duration);
        let synthetic = reader.read_or("--synthetic", flags.synthetic.as_deref(), "0", synthetic);
        let drain = flags.drain_exec_sync_io_timeout.as_deref();
        let drain = reader.read_or("--drain-exec-sync-io-timeout", drain, "0s", duration);
        let kills = flags.exec_timeout_kills.as_deref();
        let kills = reader.read_or("--exec-timeout-kills", kills, "process", kills_what);
        let log = reader.read_or("--log", flags.log.as_deref(), LOG, log_filter);
        match (listen, root, exec_delay, start_delay, drain, synthetic, kills, log) {
            (
                Some(listen),
                Some(root),
                Some(exec_delay),
                Some(start_delay),
                Some(drain),
                Some(synthetic),
                Some(exec_timeout_kills),
                Some(log),
            ) => Ok(Self {
                listen,
                procrun: procrun::ProcrunConfig {
                    exec_delay,
                    start_delay,
                    synthetic,
                    exec_io_drain_timeout: Some(drain).filter(|limit| !limit.is_zero()),
                    exec_timeout_kills,
                    ..procrun::ProcrunConfig::new(root)
                },
                log,
            }),
            _ => Err(Problems(reader.problems)),
        }
    }
}

fn synthetic(value: &str) -> Result<u32, String> {
    let number = value.parse().ok().filter(|number| *number <= MAX_SYNTHETIC_PODS);
    number.ok_or_else(|| format!("is not a number of containers; write one from 0 to {MAX_SYNTHETIC_PODS}"))
}

fn kills_what(value: &str) -> Result<TimeoutKillScope, String> {
    match value {
        "process" => Ok(TimeoutKillScope::Process),
        "group" => Ok(TimeoutKillScope::Group),
        _ => Err("is not what can be killed; write process or group".to_owned()),
    }
}
