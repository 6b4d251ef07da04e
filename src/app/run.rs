//! `probeshim run`: runs the relay until a signal arrives.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

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
use crate::distributions::FoundContainerd;
use crate::socket::SocketPath;

/// Ids that calls of this process may have while a successor starts.
const RESERVED_CALLS: u64 = 10_000;

/// Runs until SIGTERM or SIGINT, and then until calls in flight have ended or the drain timeout has
/// expired. A second signal ends the process immediately. SIGUSR2 starts a successor on the
/// socket that systemd passed, and drains once the successor serves new calls.
pub async fn run(settings: ServerConfig) -> Result<(), RunError> {
    let mut signals = ShutdownSignals::of_service()?;
    let mut handover = HandoverSignal::new()?;
    raise_nofile_limit();
    service_manager::starting();
    let (admin, upstream) = (settings.admin.clone(), settings.relay.upstream.clone());
    let (listen, state_source) = (settings.listen.clone(), settings.state_source);
    let has_readers = !settings.readers.is_empty();
    let mut shim = Shim::open(settings).await?;
    service_manager::starting();
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
    if has_readers {
        warn!(
            "users of --allow-uid may only read; --allow-control-uid also permits modes, pauses and fault rules"
        );
    }
    info!("to call the runtime through probeshim: crictl --runtime-endpoint {} ps", info.listen);
    match UnixStream::connect(upstream.as_path()).await {
        Ok(_) => {
            let found = FoundContainerd::find(Path::new("/"));
            if let Some(found) = found.filter(|found| upstream.as_path() == Path::new(found.socket)) {
                info!("upstream is the containerd of {}", found.distribution);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            warn!(%upstream, %error, "permission denied to connect to upstream: clients are refused; run as root, or as a user of its group");
        }
        Err(error) => {
            warn!(%upstream, %error, "cannot connect to upstream yet: clients are refused until it listens; --upstream names another socket");
        }
    }

    service_manager::ready(&format!("serving {} for {upstream}", shim.info.listen));
    let admin = Client::new(admin);
    // With `--enforce restart`, one process at a time can open the store of client pods.
    let has_store = recorder.is_some();
    let successor = loop {
        tokio::select! {
            signal = signals.next() => break draining_on(signal),
            () = handover.received() => {}
            _ = shim.ended() => return Err(RunError::RelayEnded),
        }
        tokio::select! {
            // systemd ends this process, and kills a successor afterwards.
            signal = signals.next() => break draining_on(signal),
            successor = hand_over(&mut shim, &admin, has_store) => if successor.is_some() {
                break successor;
            },
        }
    };
    if let Some(pid) = successor {
        drop(shim.watchdog.take());
        service_manager::main_process(pid);
        info!(pid, "a successor serves new calls; draining");
    }
    drop(recorder);
    shim.drain().await;
    if successor.is_none() {
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
fn draining_on(signal: ShutdownSignal) -> Option<u32> {
    info!(signal = signal.name(), "signal received: draining");
    None
}

/// Starts a successor, and returns its pid once it serves new calls. Returns `None` if there is
/// none: this process continues as before.
async fn hand_over(shim: &mut Shim, admin: &Client, has_store: bool) -> Option<u32> {
    let Some(passed) = &shim.passed else {
        warn!(
            "SIGUSR2 is ignored: a successor takes over only a socket that systemd passes (LISTEN_FDS); restart \
             probeshim instead"
        );
        return None;
    };
    let socket = passed.try_clone();
    let (successor, socket) = match (Successor::find().await, socket) {
        (Ok(successor), Ok(socket)) => (successor, socket),
        (Ok(_), Err(error)) => {
            error!(%error, "SIGUSR2 is ignored: the socket cannot be duplicated");
            return None;
        }
        (Err(error), _) => {
            error!(%error, "SIGUSR2 is ignored: no successor can be started");
            return None;
        }
    };
    match start_successor(shim, successor, socket, admin, has_store).await {
        Ok(pid) => return Some(pid),
        Err(error) => error!(%error, "no successor has started: this process continues to serve"),
    }
    if let Err(error) = shim.reclaim().await {
        error!(%error, "the API is not served until probeshim starts again");
    }
    None
}

/// Starts a successor. This process serves new calls until the successor does, unless it has a
/// store for which the successor waits: this process closes the store at the end of its drain.
/// Returns the pid of the successor.
async fn start_successor(
    shim: &mut Shim,
    successor: Successor,
    socket: OwnedFd,
    admin: &Client,
    has_store: bool,
) -> Result<u32, HandoverError> {
    if has_store {
        let pid = successor.start(socket).await?;
        catches_signals(pid).await?;
        return Ok(pid);
    }
    shim.release(RESERVED_CALLS).await;
    let pid = successor.start(socket).await?;
    serves(pid, admin).await?;
    Ok(pid)
}
