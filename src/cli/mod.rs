//! The command line, with one file per subcommand. The flags of `run`, `play` and `runtime` are in
//! `config`, which validates them.

mod admin_args;
mod bar;
mod bench;
mod calls;
mod check;
mod demo;
mod describe;
mod events;
mod explain;
mod follow;
mod line;
mod mode;
mod status;
mod table;

use std::fmt;

use anyhow::anyhow;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};

use crate::admin::ClientError;
use crate::config::{Flags, PlayFlags, Problems, RuntimeFlags};
use crate::prober::EnforcementMode;
use crate::procrun::monitor;

pub use bench::BenchArgs;
pub use calls::CallsCommand;
pub use check::{CheckCommand, schema};
pub use demo::Demo;
pub use events::EventsCommand;
pub use explain::ExplainCommand;
pub use mode::ModeCommand;
pub use status::StatusCommand;

/// A CRI proxy that forwards every call byte for byte, and shows each.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub enum CliCommand {
    /// Listen on a unix socket and forward every call to the runtime, until SIGTERM or SIGINT
    ///
    /// With LISTEN_FDS set (systemd socket activation), the socket passed there is served and
    /// --listen is not used.
    Run(Flags),

    /// Stand in for the kubelet: give pods, on a bare runtime, the life that a kubelet would give
    /// them
    ///
    /// Sandbox, init containers, sidecars, probes, kills, restarts under back-off, and an orderly
    /// end on Ctrl-C, which removes everything; a second Ctrl-C ends them at once. Ends by itself
    /// once all pods have ended. Exit code 0: all have succeeded, or what --until says is so, or it
    /// was told to stop; 1: a pod has failed, or a container was killed for good, or --timeout is
    /// over.
    #[command(mut_arg("manifests", |arg| arg.hide(true)), mut_arg("enforce", |arg| arg.value_parser(play_mode())
        .help("What is done about probes [default: restart]")),
        mut_arg("max_kills", |arg| arg.help("How many containers may be killed for their probes within which time, such as 5/1h, or off \
               for any number [default: off]")))]
    Play(PlayFlags),

    /// Show the calls that went through a running probeshim, as they ended
    ///
    /// A CODE in capitals is the runtime's gRPC code. In small letters it says why there is none:
    /// client-reset (the client gave up, or its deadline was over), upstream-reset, refused (the
    /// runtime never took the call), connection-lost (the runtime's connection broke), client-gone
    /// (the client's connection ended first, or was cut at the end of a drain), no-status.
    Calls(CallsCommand),

    /// Say in plain sentences whose an ExecSync was, where its time went, and what on the node
    /// explains it
    Explain(ExplainCommand),

    /// Show what has happened to pods, containers, ExecSyncs and the runtime
    Events(EventsCommand),

    /// Show how a running probeshim and the runtime behind it stand, and its pods; or one of them
    ///
    /// With a POD that is played: everything that is known of it, its events among it, as `kubectl
    /// describe` would show it.
    Status(StatusCommand),

    /// Show or switch what a running probeshim does about probes that have failed
    ///
    /// dry-run: it is said what would be killed. kill: it is killed. Who has switched it, and when,
    /// is among the events.
    Mode(ModeCommand),

    /// Validate manifests and the configuration by Kubernetes' rules, and show what would be probed
    ///
    /// Everything that is wrong is told at once, each with its file and path; the exit code is 2
    /// then.
    Check(CheckCommand),

    /// Print the JSON schema of the configuration file
    Schema,

    /// Measure what goes through a running probeshim
    Bench(BenchArgs),

    /// Serve the CRI with containers that are plain processes of this host, until SIGTERM or SIGINT
    ///
    /// For demos, tests and laptops. Nothing is isolated: a container is a session of processes
    /// with a working directory of its own. Images are only names; no command comes from them.
    Runtime(RuntimeFlags),

    /// See probeshim at work: two pods on a runtime of plain processes, made and probed through it
    ///
    /// Needs neither root nor a container runtime, and leaves nothing behind. Ctrl-C ends it early.
    Demo(Demo),

    /// Guard the processes of one container of `runtime`, which starts it
    #[command(name = monitor::SUBCOMMAND, hide = true)]
    Monitor {
        /// Name of the container. It is only for readers of a process list.
        name: String,
        /// Directory of the container. It is only for readers of a process list.
        dir: String,
    },
}

/// Returns the parser of `play --enforce`. It refuses `kill`, since `play` always restarts the
/// containers that it kills.
fn play_mode() -> impl TypedValueParser<Value = EnforcementMode> {
    let modes = EnforcementMode::value_variants().iter().filter(|mode| **mode != EnforcementMode::Kill);
    let names = PossibleValuesParser::new(modes.filter_map(ValueEnum::to_possible_value));
    names.try_map(|name| EnforcementMode::from_str(&name, false))
}

/// Error of a command. Each variant has its own exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Arguments, configuration or manifests are invalid.
    #[error("{0}")]
    Usage(String),
    /// The command failed.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl CliError {
    /// Returns a failure with the text of an error that names its causes itself. Its sources are
    /// dropped, which would print the causes again.
    pub fn from_display(error: impl fmt::Display) -> Self {
        Self::Failed(anyhow!("{error}"))
    }
}

impl From<Problems> for CliError {
    fn from(problems: Problems) -> Self {
        Self::Usage(problems.to_string())
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(reason) => Self::Usage(reason),
            other => Self::from_display(other),
        }
    }
}

#[cfg(test)]
mod tests;
