//! `probeshim runtime`

use clap::Args;

use crate::config::RuntimeFlags;
use crate::procrun;
use crate::terminal::screen::print;

/// The flags of `runtime`, as they were written.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct Runtime {
    /// Where clients connect: unix:///PATH or a bare path
    /// [default: unix:///run/probeshim/procrun.sock, without root in $XDG_RUNTIME_DIR/probeshim]
    #[arg(long, value_name = "URI", allow_hyphen_values = true, verbatim_doc_comment)]
    listen: Option<String>,

    /// The folder below which containers have their working directories, removed with them
    /// [default: /var/lib/probeshim/procrun, without root in $XDG_STATE_HOME/probeshim]
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, verbatim_doc_comment)]
    root: Option<String>,

    /// What each ExecSync waits before its command starts, 0s to 24h [default: 0s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    exec_delay: Option<String>,

    /// What each StartContainer waits before its process starts, 0s to 24h [default: 0s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    start_delay: Option<String>,

    /// Begin with so many pods of one running container each that answer an ExecSync without a process: exit code 1 to
    /// false, 0 to anything else [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    synthetic: Option<String>,

    /// How long an ExecSync whose command has ended waits for others to close its output, as containerd's setting of this
    /// name; 0s for as long as it takes [default: 0s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    drain_exec_sync_io_timeout: Option<String>,

    /// What an ExecSync that times out kills: the command's process alone, as containerd does, or its process group
    /// [default: process]
    #[arg(long, value_name = "process|group", allow_hyphen_values = true, verbatim_doc_comment)]
    exec_timeout_kills: Option<String>,

    /// off, error, warn, info, debug, trace, or tracing directives [default: info]
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    log: Option<String>,
}

impl Runtime {
    /// Says what everyone must know who runs it.
    pub fn warn() -> anyhow::Result<()> {
        print(&format!("{}\n", procrun::WARNING)).map(drop)
    }
}

impl From<Runtime> for RuntimeFlags {
    fn from(runtime: Runtime) -> Self {
        let Runtime {
            listen,
            root,
            exec_delay,
            start_delay,
            synthetic,
            drain_exec_sync_io_timeout,
            exec_timeout_kills,
            log,
        } = runtime;
        Self {
            listen,
            root,
            exec_delay,
            start_delay,
            synthetic,
            drain_exec_sync_io_timeout,
            exec_timeout_kills,
            log,
        }
    }
}
