//! procrun: a CRI runtime whose containers are plain processes of this host, for demos, tests and
//! laptops.
//!
//! procrun isolates nothing. A container is a session of processes with a directory of its own,
//! below a monitor that ends all of them when procrun exits. The responses, status codes and
//! messages are those of containerd.
//!
//! ```text
//! client ──► service ──► engine ──► monitor ══► processes of one container
//!                          │            (another process of this program)
//!                       store, images, events, log
//! ```

mod clock;
mod container;
mod engine;
mod error;
mod events;
mod images;
mod log;
mod lookpath;
pub mod monitor;
mod proc_stats;
mod root_dir;
mod sandbox;
mod service;
mod signal;
mod store;
mod synthetic_pods;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tokio::net::UnixListener as Listener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use engine::Engine;
pub(crate) use lookpath::has_program;

/// Warning that procrun prints when it starts.
pub const WARNING: &str =
    "procrun: containers are plain processes of this host, with no isolation: run only what you trust";

/// Settings of procrun.
#[derive(Clone, Debug)]
pub struct ProcrunConfig {
    /// Root directory. The directories of containers are below it.
    pub root: PathBuf,
    /// Program from which monitors are started: this program.
    pub monitor_program: PathBuf,
    /// Delay of each ExecSync before its command starts. The timeout begins after the delay.
    pub exec_delay: Duration,
    /// Delay of each StartContainer before its process starts.
    pub start_delay: Duration,
    /// Number of synthetic pods. Each has one running container, which answers ExecSync without a
    /// process, and takes a few KiB of memory.
    pub synthetic: u32,
    /// Maximum time for which an ExecSync whose command has exited waits for the end of the output.
    /// `None` means no limit, and zero means no wait. In containerd's `drain_exec_sync_io_timeout`,
    /// zero means no limit.
    pub exec_io_drain_timeout: Option<Duration>,
    /// Processes that are killed if an ExecSync times out.
    pub exec_timeout_kills: TimeoutKillScope,
    /// Whether the first container with settings that are not applied is logged as a warning.
    pub warn_of_ignored: bool,
}

/// Processes that an ExecSync kills when it times out. `--help` prints the comments of the
/// variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TimeoutKillScope {
    /// The command's process alone, as containerd does. Processes that it has started keep running,
    /// and may hold the call's output
    #[default]
    Process,
    /// The command's process group
    Group,
}

/// A runtime that is ready to serve.
#[derive(Debug)]
pub struct Procrun {
    engine: Arc<Engine>,
}

impl ProcrunConfig {
    /// Returns the settings of a runtime with this root directory, without delays and synthetic
    /// pods, and with containerd's defaults. Monitors are started from the running program.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            monitor_program: monitor::SELF_EXE.into(),
            exec_delay: Duration::ZERO,
            start_delay: Duration::ZERO,
            synthetic: 0,
            exec_io_drain_timeout: None,
            exec_timeout_kills: TimeoutKillScope::default(),
            warn_of_ignored: true,
        }
    }
}

impl Procrun {
    /// Locks the root directory and creates the synthetic pods. Fails if another procrun uses the
    /// directory, if the directory cannot be created, or if other users may change it.
    pub fn new(settings: ProcrunConfig) -> io::Result<Self> {
        let engine = Engine::new(settings)?;
        synthetic_pods::populate(&engine, engine.config.synthetic);
        Ok(Self { engine })
    }

    /// Serves clients until `stop` is cancelled, then ends every container. Returns when no process
    /// of a container is left, or if some have not died of SIGKILL within ten seconds. Must run in
    /// a tokio runtime with I/O and time. Fails if the listener cannot be used.
    pub async fn serve(self, listener: UnixListener, stop: CancellationToken) -> io::Result<()> {
        let listener = Listener::from_std(listener)?;
        let engine = self.engine.clone();
        let clearing = AbortOnDropHandle::new(tokio::spawn(async move { engine.root.remove_stale().await }));
        let served = service::serve(listener, self.engine.clone(), stop).await;
        self.engine.shut_down().await;
        drop(clearing);
        served
    }
}
