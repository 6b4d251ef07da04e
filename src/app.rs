//! The composition root: builds the parts, joins them, and drains them in order.

use std::path::Path;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Settings;
use crate::relay::Relay;
use crate::socket::{ActivationError, ClaimError, Listening, activated, claim};

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
    System(#[from] std::io::Error),
    /// A fault of ours ended the relay.
    #[error("the relay ended by itself")]
    RelayEnded,
}

/// Runs until SIGTERM or SIGINT, and then until calls in flight are done or out of time; a second signal ends at once.
pub async fn run(settings: Settings) -> Result<(), RunError> {
    let mut signals = Signals::new()?;
    raise_descriptor_limit();
    let Listening { listener, claim } = listen(&settings)?;
    let upstream = settings.relay.upstream.clone();
    let address = listener.local_addr()?;
    let address = address.as_pathname().unwrap_or(Path::new("(unnamed)")).display();
    info!(version = env!("CARGO_PKG_VERSION"), listen = %address, %upstream, "probeshim started");
    if let Err(error) = tokio::net::UnixStream::connect(upstream.as_path()).await {
        warn!(%upstream, %error, "upstream is not there yet: clients are refused until it is");
    }

    let drain = CancellationToken::new();
    let mut relay = std::pin::pin!(Relay::start(listener, settings.relay, drain.clone())?.ended());
    tokio::select! {
        name = signals.next() => info!(signal = name, "told to stop"),
        _ = &mut relay => return Err(RunError::RelayEnded),
    }
    // New clients find no socket, and a successor may take the path, while calls in flight are finished.
    drop(claim);
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

/// Takes the socket from systemd, or the one that the settings name.
fn listen(settings: &Settings) -> Result<Listening, RunError> {
    let upstream = &settings.relay.upstream;
    match activated()? {
        Some(listener) => {
            let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
            match path {
                Some(path) if path == upstream.as_path() => Err(ClaimError::IsUpstream(path).into()),
                _ => Ok(Listening { listener, claim: None }),
            }
        }
        None => Ok(claim(&settings.listen, upstream)?),
    }
}

/// Every client takes two descriptors, and the soft limit is 1,024 on most systems: raise it to the hard one.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, soft = limit.current, "cannot raise the limit of open files");
        }
    }
}

/// The signals that end the program.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
