//! The composition root: builds the parts, joins them, and drains them in order.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Settings;
use crate::relay::Relay;
use crate::socket::{ActivationError, ClaimError, activated, claim};

/// Why `run` did not run, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The socket to listen on is not to be had.
    #[error("--listen: {0}")]
    Listen(#[from] ClaimError),
    /// What systemd passed cannot be used.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// The system refused something that every process needs.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// A fault of ours ended the relay.
    #[error("the relay ended by itself")]
    RelayEnded,
}

/// The signals that end the program.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Runs until SIGTERM or SIGINT, and then until calls in flight are done or out of time; a second signal ends at once.
pub async fn run(settings: Settings) -> Result<(), RunError> {
    let mut signals = Signals::new()?;
    raise_descriptor_limit();
    let upstream = settings.relay.upstream.clone();
    let listening = match &settings.listen {
        Some(path) => claim(path, &upstream)?,
        None => activated(&upstream)?,
    };
    let listen = listening.path();
    let drain = CancellationToken::new();
    let mut relay = std::pin::pin!(Relay::start(listening.listener, settings.relay, drain.clone())?.ended());
    info!(version = env!("CARGO_PKG_VERSION"), %listen, %upstream, "probeshim started");
    if let Err(error) = UnixStream::connect(upstream.as_path()).await {
        warn!(%upstream, %error, "upstream is not there yet: clients are refused until it is");
    }

    tokio::select! {
        name = signals.next() => info!(signal = name, "told to stop"),
        _ = &mut relay => return Err(RunError::RelayEnded),
    }
    // New clients find no socket, and a successor may take the path, while calls in flight are finished.
    drop(listening.claim);
    drain.cancel();
    tokio::select! {
        name = signals.next() => warn!(signal = name, "told again: ending at once"),
        summary = &mut relay => {
            let summary = summary.ok_or(RunError::RelayEnded)?;
            info!(connections = summary.connections, cut = summary.cut, "probeshim stopped");
        }
    }
    Ok(())
}

/// Every client takes two descriptors, and the soft limit is 1,024 on most systems: raise it to the hard one.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, soft = limit.current, "cannot raise the limit of open files");
        }
    }
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
