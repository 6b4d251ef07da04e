//! `probeshim run`: runs the relay until a signal arrives.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::UnixStream;
use tracing::{error, info, warn};

use super::error::RunError;
use super::handover::{HandoverError, Successor, catches_signals, serves};
use super::nofile::raise_nofile_limit;
use super::server::Shim;
use super::service_manager;
use super::signals::{HandoverSignal, ShutdownSignal, ShutdownSignals};
use crate::admin::Client;
use crate::build_info;
use crate::config::ServerConfig;
use crate::socket::SocketPath;

/// Ids that calls of this process may have while a successor starts.
const RESERVED_CALLS: u64 = 10_000;

/// Runs until SIGTERM or SIGINT, and then until calls in flight have ended or the drain timeout has
/// expired. A second signal ends the process immediately. SIGUSR2 starts a successor on the
/// socket that systemd passed, and drains once the successor serves new calls.
pub async fn run(settings: ServerConfig) -> Result<(), RunError> {
    let mut signals = ShutdownSignals::new()?;
    let mut handover = HandoverSignal::new()?;
    raise_nofile_limit();
    let (admin, upstream) = (settings.admin.clone(), settings.relay.upstream.clone());
    let (listen, state_source) = (settings.listen.clone(), settings.state_source);
    let mut shim = Shim::open(settings).await?;
    // A socket that systemd passes has a path too.
    let listen = listen.or_else(|| SocketPath::parse(&shim.info.listen).ok());
    let recorder = match shim.kubelet_starter.take().zip(listen) {
        Some((deps, listen)) => {
            let started = deps.start_for_client_pods(listen);
            Some(started.map_err(|error| RunError::State(error, state_source))?)
        }
        None => None,
    };
    let info = &shim.info;
    info!(
        version = build_info::full_version(),
        listen = %info.listen,
        %upstream,
        %admin,
        http = %info.http.map_or_else(|| "off".to_owned(), |address| format!("http://{address}")),
        metrics = %info.metrics.as_deref().unwrap_or("off"),
        "probeshim started"
    );
    info!("to call the runtime through probeshim: crictl --runtime-endpoint {} ps", info.listen);
    match UnixStream::connect(upstream.as_path()).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            warn!(%upstream, %error, "permission denied to connect to upstream: clients are refused");
        }
        Err(error) => {
            warn!(%upstream, %error, "cannot connect to upstream yet: clients are refused until it listens");
        }
    }

    service_manager::ready(&format!("serving {} for {upstream}", shim.info.listen));
    let successor = loop {
        tokio::select! {
            signal = signals.next() => break draining_on(signal),
            () = handover.received() => {}
            _ = shim.ended() => return Err(RunError::RelayEnded),
        }
        tokio::select! {
            signal = signals.next() => break draining_on(signal),
            prepared = prepare_handover(&mut shim) => if prepared.is_some() {
                break prepared;
            },
        }
    };
    // The mode that records pods of clients keeps them in a store, which one process can have.
    let has_store = recorder.is_some();
    drop(recorder);
    let admin = Client::new(admin);
    if let Some((successor, socket)) = successor {
        tokio::select! {
            // systemd ends this process, and kills the successor afterwards.
            signal = signals.next() => {
                draining_on(signal);
                service_manager::stopping();
            }
            started = hand_over(&mut shim, successor, socket, &admin, has_store) => match started {
                Ok(pid) => {
                    drop(shim.watchdog.take());
                    service_manager::main_process(pid);
                    info!(pid, "a successor serves new calls; draining");
                }
                Err(error) => {
                    error!(%error, "no successor was started: draining, to be started again by systemd");
                }
            },
        }
        shim.drain().await;
    } else {
        shim.drain().await;
        service_manager::stopping();
    }
    tokio::select! {
        signal = signals.next() => warn!(signal = signal.name(), "second signal: ending immediately"),
        summary = shim.ended() => {
            let summary = summary?;
            info!(connections = summary.connections, cut = summary.aborted, "probeshim stopped");
        }
    }
    Ok(())
}

/// Logs a signal that starts a drain without a successor.
fn draining_on(signal: ShutdownSignal) -> Option<(Successor, OwnedFd)> {
    info!(signal = signal.name(), "signal received: draining");
    None
}

/// Finds the program that takes over. Returns `None` if none can: this process serves on.
async fn prepare_handover(shim: &mut Shim) -> Option<(Successor, OwnedFd)> {
    if shim.passed.is_none() {
        warn!(
            "SIGUSR2 is ignored: a successor takes over only a socket that systemd passes (LISTEN_FDS); restart \
             probeshim instead"
        );
        return None;
    }
    match Successor::find().await {
        Ok(successor) => Some((successor, shim.passed.take()?)),
        Err(error) => {
            error!(%error, "SIGUSR2 is ignored: no successor can be started");
            None
        }
    }
}

/// Starts a successor. This process serves new calls until the successor does, unless it has a
/// store for which the successor waits: it closes the store at the end of its drain. Returns the
/// pid of the successor.
async fn hand_over(
    shim: &mut Shim,
    successor: Successor,
    socket: OwnedFd,
    admin: &Client,
    has_store: bool,
) -> Result<u32, HandoverError> {
    if has_store {
        shim.drain().await;
        let pid = successor.start(socket).await?;
        catches_signals(pid).await?;
        return Ok(pid);
    }
    shim.release(RESERVED_CALLS).await;
    let pid = successor.start(socket).await?;
    serves(pid, admin).await?;
    Ok(pid)
}
