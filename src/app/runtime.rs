//! `probeshim runtime`: runs procrun without a relay.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::{RunError, SECOND_INSTANCE};
use super::fault_relay::FaultRelay;
use super::nofile::raise_nofile_limit;
use super::signals::ShutdownSignals;
use crate::build_info;
use crate::config::{PolicySettings, PrivateDir, PrivateDirError, RuntimeSettings};
use crate::procrun::Procrun;
use crate::socket::{BindError, BindMode, bind};

/// Error of `runtime`.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The socket cannot be opened.
    #[error("--listen: {0}")]
    Listen(#[source] BindError),
    /// The root directory cannot be used.
    #[error("--root: cannot use {dir}: {source}")]
    Root {
        /// The root directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Neither the socket nor the root directory can be used.
    #[error("{0}\n{1}\n{SECOND_INSTANCE}")]
    Both(Box<Self>, Box<Self>),
    /// An operation of the operating system failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The directory of the inner socket cannot be used.
    #[error(transparent)]
    PrivateDir(#[from] PrivateDirError),
    /// The fault rules, or the relay that injects them, cannot be started.
    #[error(transparent)]
    Faults(#[from] RunError),
}

/// Serves until SIGTERM or SIGINT, then stops all containers.
pub async fn runtime(settings: RuntimeSettings) -> Result<(), RuntimeError> {
    let mut signals = ShutdownSignals::new()?;
    raise_nofile_limit();
    let listening = bind(&settings.listen, BindMode::OwnerOnly).map_err(RuntimeError::Listen);
    let dir = settings.procrun.root.clone();
    let procrun =
        Procrun::new(settings.procrun).map_err(|source| RuntimeError::Root { dir: dir.clone(), source });
    let (listening, procrun) = match (listening, procrun) {
        (Err(listen), Err(root)) => return Err(RuntimeError::Both(Box::new(listen), Box::new(root))),
        (listening, procrun) => (listening?, procrun?),
    };
    let stop = CancellationToken::new();
    let Front { listener, dir: private_dir, relay } = front(listening.listener, settings.faults)?;
    let serving = procrun.serve(listener, stop.clone());
    info!(version = build_info::full_version(), listen = %settings.listen, root = %dir.display(), "procrun started");
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        signal = signals.next() => info!(signal = signal.name(), "signal received: containers are stopped"),
        ended = &mut serving => return Ok(ended?),
    }
    // The socket is removed first, so that no client connects while containers are stopped.
    drop(listening.claim);
    let relay_ended = match relay {
        Some(relay) => relay.end().await,
        None => Ok(()),
    };
    stop.cancel();
    tokio::select! {
        signal = signals.next() => warn!(signal = signal.name(), "second signal: ending immediately"),
        ended = serving => {
            ended?;
            info!("procrun stopped");
        }
    }
    if let Some(dir) = private_dir {
        dir.remove()?;
    }
    Ok(relay_ended?)
}

/// The socket on which procrun serves, and the relay in front of it if there are fault rules.
struct Front {
    listener: UnixListener,
    dir: Option<PrivateDir>,
    relay: Option<FaultRelay>,
}

/// Starts a relay between the clients and procrun, if there are fault rules.
fn front(clients: UnixListener, faults: PolicySettings) -> Result<Front, RuntimeError> {
    if faults.flags.is_empty() {
        return Ok(Front { listener: clients, dir: None, relay: None });
    }
    let dir = PrivateDir::create("probeshim-runtime.")?;
    let upstream = dir.socket("procrun.sock")?;
    let listener = UnixListener::bind(upstream.as_path())?;
    listener.set_nonblocking(true)?;
    let relay = FaultRelay::start(clients, upstream, faults)?;
    Ok(Front { listener, dir: Some(dir), relay: Some(relay) })
}
