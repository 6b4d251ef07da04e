//! `probeshim demo`: procrun, the relay and the built-in kubelet in one process, with two pods.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::error::RunError;
use super::nofile::raise_nofile_limit;
use super::server::Shim;
use super::signals::{ShutdownSignal, ShutdownSignals};
use crate::config::{OperatingMode, ServerConfig};
use crate::demo::{self, DemoEnd, Endpoints, Reporter};
use crate::events::{EventFilter, EventRecorder};
use crate::execsync;
use crate::kubelet::{LogRotatePolicy, ManifestSource, PodDirs};
use crate::probe::{SpecResolver, SpecSources};
use crate::prober::{EnforcementMode, EnforcementSettings};
use crate::procrun::{self, Procrun};
use crate::relay;
use crate::socket::{AddressError, BindError, BindMode, SocketPath, bind};
use crate::state::StateError;

/// Error of the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No directory could be created in the directory for temporary files.
    #[error("cannot create a directory for the demo in {dir}: {source}; set TMPDIR to another")]
    Dir {
        /// The directory for temporary files.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path of the directory for temporary files is too long for a socket.
    #[error("TMPDIR: a socket in {dir} {source}")]
    Address {
        /// The directory of the demo.
        dir: PathBuf,
        /// The error of the socket's path.
        source: AddressError,
    },
    /// The socket of procrun cannot be opened.
    #[error(transparent)]
    Claim(#[from] BindError),
    /// The relay or one of its sockets failed.
    #[error(transparent)]
    Relay(#[from] RunError),
    /// The state store cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// An operation of the operating system failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The embedded manifests are invalid, which is a bug in probeshim.
    #[error("the manifests of the demo are invalid; please report this bug: {0}")]
    Manifests(String),
    /// The files of the demo cannot be removed.
    #[error("cannot remove the files of the demo: {0}")]
    Leave(#[source] io::Error),
}

/// Runs the demo for the duration `lasts`, or until a signal or the end of standard output. Removes
/// all files. Returns the exit code: 0, or the code of the signal.
pub async fn demo(lasts: Duration) -> Result<u8, DemoError> {
    let mut signals = ShutdownSignals::new()?;
    raise_nofile_limit();
    let parent = std::env::temp_dir();
    // The path has no links, since messages and logs are not read through links.
    let parent = parent.canonicalize().unwrap_or(parent);
    let dir = tempfile::Builder::new().prefix("probeshim-demo.").tempdir_in(&parent);
    let directory = dir.map_err(|source| DemoError::Dir { dir: parent, source })?;
    let at = |name: &str| {
        SocketPath::new(&directory.path().join(name))
            .map_err(|source| DemoError::Address { dir: directory.path().to_owned(), source })
    };
    let (upstream, listen, admin) = (at("procrun.sock")?, at("probeshim.sock")?, at("admin.sock")?);
    let manifests = directory.path().join("pods.yaml");
    fs::write(&manifests, demo::PODS)?;
    let documents =
        ManifestSource::read(std::slice::from_ref(&manifests), false, false, SpecResolver::default());
    let documents = documents.map_err(|problems| DemoError::Manifests(problems.join("; ")))?;
    let over = CancellationToken::new();
    let runtime = start_runtime(directory.path(), &upstream, over.clone())?;
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = ServerConfig {
        listen: Some(listen.clone()),
        admin: admin.clone(),
        http: Some(http),
        http_pods: false,
        relay: relay::RelayConfig { upstream: upstream.clone(), drain_timeout: Duration::from_secs(1) },
        exec: execsync::SlownessConfig::default(),
        specs: documents.specs(),
        sources: SpecSources::default(),
        enforcement: EnforcementSettings { mode: EnforcementMode::Restart, ..EnforcementSettings::default() },
        journal: None,
        traces: None,
        watch_runtime: true,
        role: OperatingMode::Kubelet,
        state: Some(directory.path().to_owned()),
    };
    let mut shim = Shim::open(settings).await?;
    let places = Endpoints { upstream, listen: listen.clone(), admin, http: shim.info.http, pods: manifests };
    let account = Reporter::begin(lasts, &places);
    let starter = shim.kubelet_starter.take().ok_or(RunError::RelayEnded)?;
    let telling = tell(account.clone(), &starter.deps.events);
    let (logs, pods) = (directory.path().join("logs"), directory.path().join("pods"));
    let dirs = PodDirs { logs, keep_logs: true, log_rotation: LogRotatePolicy::default(), pods };
    let playing = starter.start_for_manifests(listen, dirs, false, documents)?;

    let signal = wait_for_end(lasts, &mut signals, &account).await;
    let pods = playing.kubelet.published_pods();
    // Containers that are left end with the runtime.
    let _ = playing.end(&mut signals).await;
    telling.abort();
    shim.drain().await;
    let drained = shim.ended().await;
    over.cancel();
    runtime.await.map_err(io::Error::other)??;
    drained?;
    directory.close().map_err(DemoError::Leave)?;
    let (seen, unseen) = (shim.calls.counts().seen, shim.tap_metrics.observations_dropped());
    account.end(&DemoEnd { pods, calls: seen + unseen, unseen });
    Ok(signal.map_or(0, ShutdownSignal::exit_code))
}

/// Starts a task that reports events as they happen.
fn tell(account: Reporter, events: &EventRecorder) -> JoinHandle<()> {
    let (_, mut coming) = events.follow(&EventFilter::default());
    tokio::spawn(async move {
        loop {
            match coming.recv().await {
                Ok(event) => account.report(&event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    })
}

/// Waits until the duration is over, a signal arrives, or standard output is closed. Returns the
/// signal.
async fn wait_for_end(
    lasts: Duration,
    signals: &mut ShutdownSignals,
    account: &Reporter,
) -> Option<ShutdownSignal> {
    tokio::select! {
        () = sleep(lasts) => None,
        signal = signals.next() => Some(signal),
        () = account.closed() => None,
    }
}

fn start_runtime(
    dir: &Path,
    socket: &SocketPath,
    over: CancellationToken,
) -> Result<JoinHandle<io::Result<()>>, DemoError> {
    let procrun = Procrun::new(procrun::ProcrunConfig::new(dir.join("procrun")))?;
    let listening = bind(socket, BindMode::OwnerOnly)?;
    Ok(tokio::spawn(async move {
        let served = procrun.serve(listening.listener, over).await;
        drop(listening.claim);
        served
    }))
}
