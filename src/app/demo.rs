//! `probeshim demo`: procrun, the relay and its doors in one process, and two pods that are probed through it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::shim::{RunError, Shim};
use super::signals::Signals;
use crate::config::Settings;
use crate::demo::{Account, DemoEnd, Where, play};
use crate::procrun::{self, Kills, Procrun};
use crate::relay;
use crate::socket::{Access, AddressError, ClaimError, SocketPath, claim};
use crate::telemetry;

/// Why the demo was not played to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The place for temporary files is not to be had.
    #[error("cannot make a folder for the demo in {folder}: {source}; set TMPDIR to another")]
    Folder {
        /// The place.
        folder: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The place for temporary files is too deep for a socket.
    #[error("a socket in {folder} {source}; set TMPDIR to a folder with a shorter path")]
    Address {
        /// The place.
        folder: PathBuf,
        /// What is wrong with it.
        source: AddressError,
    },
    /// The runtime's socket is not to be had.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The relay is not to be had.
    #[error(transparent)]
    Relay(#[from] RunError),
    /// The system refused something.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The runtime answered what it should not have.
    #[error("the demo cannot go on: {0}")]
    Play(#[from] tonic::Status),
}

/// Plays until its time is over, SIGTERM or SIGINT; leaves nothing behind.
pub async fn demo(lasts: Duration) -> Result<(), DemoError> {
    let mut signals = Signals::new()?;
    let parent = std::env::temp_dir();
    let folder = tempfile::Builder::new().prefix("probeshim-demo.").tempdir_in(&parent);
    let folder = folder.map_err(|source| DemoError::Folder { folder: parent, source })?;
    let at = |name: &str| {
        SocketPath::new(&folder.path().join(name))
            .map_err(|source| DemoError::Address { folder: folder.path().to_owned(), source })
    };
    let (upstream, listen, admin) = (at("procrun.sock")?, at("probeshim.sock")?, at("admin.sock")?);
    let over = CancellationToken::new();
    let runtime = start_runtime(folder.path(), &upstream, over.clone())?;
    let settings = Settings {
        listen: Some(listen.clone()),
        admin: admin.clone(),
        http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        relay: relay::Settings { upstream: upstream.clone(), drain_timeout: Duration::from_secs(1) },
        log: telemetry::Settings::off(),
    };
    let mut shim = Shim::open(&settings).await?;
    let account =
        Account::begin(lasts, &Where { upstream, listen: listen.clone(), admin, http: shim.facts.http });

    let stop = CancellationToken::new();
    let mut playing = std::pin::pin!(play(&listen, folder.path(), &account, stop.clone()));
    let played = tokio::select! {
        played = &mut playing => played,
        () = tokio::time::sleep(lasts) => {
            stop.cancel();
            playing.await
        }
        _ = signals.next() => {
            stop.cancel();
            playing.await
        }
    };
    shim.drain().await;
    shim.ended().await?;
    over.cancel();
    runtime.await.map_err(io::Error::other)??;
    let tallies = played?;
    account.end(&DemoEnd {
        tallies,
        calls: shim.calls.counts().seen,
        dropped: shim.tap_metrics.observations_dropped(),
    });
    Ok(())
}

fn start_runtime(
    folder: &Path,
    socket: &SocketPath,
    over: CancellationToken,
) -> Result<JoinHandle<io::Result<()>>, DemoError> {
    let procrun = Procrun::new(procrun::Settings {
        root: folder.join("procrun"),
        guardian: procrun::guardian::OURSELVES.into(),
        exec_delay: Duration::ZERO,
        start_delay: Duration::ZERO,
        synthetic: 0,
        drain_limit: None,
        exec_timeout_kills: Kills::Process,
    })?;
    let listening = claim(socket, Access::Private)?;
    Ok(tokio::spawn(async move {
        let served = procrun.serve(listening.listener, over).await;
        drop(listening.claim);
        served
    }))
}
