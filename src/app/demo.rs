//! `probeshim demo`: procrun, the relay and its doors in one process, and two pods that are probed through it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::limits::raise_descriptor_limit;
use super::shim::{RunError, Shim};
use super::signals::Signals;
use crate::config::ShimSettings;
use crate::demo::{self, Account, DemoEnd, Where};
use crate::exec;
use crate::probe::{Sources, Specs};
use crate::prober::EnforcementSettings;
use crate::procrun::{self, Procrun};
use crate::relay;
use crate::socket::{Access, AddressError, ClaimError, SocketPath, claim};

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
    #[error("TMPDIR: a socket in {folder} {source}")]
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
    #[error("the demo cannot go on: {}", .0.message())]
    Play(#[from] tonic::Status),
    /// Its files cannot be removed.
    #[error("cannot remove the files of the demo: {0}")]
    Leave(#[source] io::Error),
}

/// Plays until its time is over, SIGTERM or SIGINT; leaves nothing behind.
pub async fn demo(lasts: Duration) -> Result<(), DemoError> {
    let mut signals = Signals::new()?;
    raise_descriptor_limit();
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
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = ShimSettings {
        listen: Some(listen.clone()),
        admin: admin.clone(),
        http: Some(http),
        relay: relay::Settings { upstream: upstream.clone(), drain_timeout: Duration::from_secs(1) },
        exec: exec::Settings::default(),
        specs: Specs::default(),
        sources: Sources::default(),
        enforcement: EnforcementSettings::default(),
        journal: None,
        traces: None,
        watches_runtime: true,
        plays: false,
    };
    let mut shim = Shim::open(settings).await?;
    let account =
        Account::begin(lasts, &Where { upstream, listen: listen.clone(), admin, http: shim.facts.http });

    let stop = CancellationToken::new();
    let place = folder.path().to_owned();
    let mut playing = std::pin::pin!(demo::run(&listen, &place, &account, stop.clone()));
    let played = tokio::select! {
        played = &mut playing => played,
        () = end_of(lasts, &mut signals, &account) => {
            stop.cancel();
            tokio::select! {
                played = &mut playing => played,
                _ = signals.next() => Ok(Vec::new()),
            }
        }
    };
    shim.drain().await;
    let drained = shim.ended().await;
    over.cancel();
    runtime.await.map_err(io::Error::other)??;
    drained?;
    let tallies = played?;
    folder.close().map_err(DemoError::Leave)?;
    let (seen, unseen) = (shim.calls.counts().seen, shim.tap_metrics.observations_dropped());
    account.end(&DemoEnd { tallies, calls: seen + unseen, unseen });
    Ok(())
}

/// Waits until the time is over, a signal comes, or nobody reads the account any more.
async fn end_of(lasts: Duration, signals: &mut Signals, account: &Account) {
    tokio::select! {
        () = sleep(lasts) => {}
        _ = signals.next() => {}
        () = account.unread() => {}
    }
}

fn start_runtime(
    folder: &Path,
    socket: &SocketPath,
    over: CancellationToken,
) -> Result<JoinHandle<io::Result<()>>, DemoError> {
    let procrun = Procrun::new(procrun::Settings::new(folder.join("procrun")))?;
    let listening = claim(socket, Access::Private)?;
    Ok(tokio::spawn(async move {
        let served = procrun.serve(listening.listener, over).await;
        drop(listening.claim);
        served
    }))
}
