//! procrun: a CRI runtime whose containers are plain processes of this host, for demos, tests and laptops.
//!
//! It isolates nothing: a container is a session of processes in a working directory of its own, below a monitor that ends
//! all of them with it. What it answers, and in which words, is what containerd answers.
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
mod id;
mod images;
mod log;
mod lookpath;
pub mod monitor;
mod proc_stats;
mod processes;
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

/// What it says before anything else.
pub const WARNING: &str =
    "procrun: containers are plain processes of this host, with no isolation: run only what you trust";

/// What procrun runs on.
#[derive(Clone, Debug)]
pub struct ProcrunConfig {
    /// The folder below which containers have their working directories.
    pub root: PathBuf,
    /// This program, which monitors are started from.
    pub monitor_program: PathBuf,
    /// What each ExecSync waits before its command starts; its timeout begins after that.
    pub exec_delay: Duration,
    /// What each StartContainer waits before its process starts.
    pub start_delay: Duration,
    /// Pods of one running container each that are there from the start, and answer an ExecSync without a process; each takes a few
    /// KiB.
    pub synthetic: u32,
    /// How long an ExecSync whose command has ended waits for the end of its output; `None` for as long as it takes, zero for not
    /// at all. As containerd's `drain_exec_sync_io_timeout`, where zero means `None`.
    pub exec_io_drain_timeout: Option<Duration>,
    /// What an ExecSync that times out kills.
    pub exec_timeout_kills: TimeoutKillScope,
}

/// What an ExecSync that times out kills. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TimeoutKillScope {
    /// The command's process alone, as containerd does; what it has started lives on, and may hold the call's output
    #[default]
    Process,
    /// Its whole process group
    Group,
}

/// A runtime that is ready to serve.
#[derive(Debug)]
pub struct Procrun {
    engine: Arc<Engine>,
}

impl ProcrunConfig {
    /// A runtime in this folder, without delays and without pods, that does what containerd does by default. Monitors are started from
    /// the program that runs.
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
        }
    }
}

impl Procrun {
    /// Takes the folder of `settings`. Fails where another procrun works there, or the folder cannot be made.
    pub fn new(settings: ProcrunConfig) -> io::Result<Self> {
        let engine = Engine::new(settings)?;
        synthetic_pods::populate(&engine, engine.config.synthetic);
        Ok(Self { engine })
    }

    /// Serves every client until `stop` is cancelled, then ends every container; returns when none of their processes is left, or
    /// some have not died of SIGKILL within ten seconds. Needs a tokio runtime with I/O and time.
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
