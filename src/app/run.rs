//! `probeshim run`: runs the relay until a signal arrives.

use std::io;

use tokio::net::UnixStream;
use tracing::{info, warn};

use super::error::RunError;
use super::nofile::raise_nofile_limit;
use super::server::Shim;
use super::signals::ShutdownSignals;
use crate::config::ServerConfig;
use crate::socket::SocketPath;

/// Runs until SIGTERM or SIGINT, and then until calls in flight have ended or the drain timeout has
/// expired. A second signal ends the process immediately.
pub async fn run(settings: ServerConfig) -> Result<(), RunError> {
    let mut signals = ShutdownSignals::new()?;
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
        version = env!("CARGO_PKG_VERSION"),
        listen = %info.listen,
        %upstream,
        %admin,
        http = %info.http.map_or_else(|| "off".to_owned(), |address| format!("http://{address}")),
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

    tokio::select! {
        signal = signals.next() => info!(signal = signal.name(), "signal received: draining"),
        _ = shim.ended() => return Err(RunError::RelayEnded),
    }
    drop(recorder);
    shim.drain().await;
    tokio::select! {
        signal = signals.next() => warn!(signal = signal.name(), "second signal: ending immediately"),
        summary = shim.ended() => {
            let summary = summary?;
            info!(connections = summary.connections, cut = summary.aborted, "probeshim stopped");
        }
    }
    Ok(())
}
