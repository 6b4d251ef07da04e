//! `probeshim demo`: procrun, the relay and the built-in kubelet in one process, with four pods.

use std::fs;
use std::io;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::embedded_runtime::{EmbeddedRuntime, EmbeddedRuntimeError};
use super::error::RunError;
use super::nofile::raise_nofile_limit;
use super::server::Shim;
use super::signals::{ShutdownSignal, ShutdownSignals};
use crate::config::{DemoSettings, OperatingMode, PrivateDir, PrivateDirError, ServerConfig, StateDirSource};
use crate::demo::{self, Endpoints};
use crate::events::EventFilter;
use crate::execsync;
use crate::kubelet::{LogRotatePolicy, ManifestLimits, ManifestSource, PodDirs};
use crate::probe::{SpecResolver, SpecSources};
use crate::prober::{EnforcementMode, EnforcementSettings};
use crate::progress::{Progress, ProgressFormat, demo_outcome, pod_table};
use crate::relay;
use crate::socket::SocketPath;
use crate::state::StateError;

/// Error of the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The directory of the demo cannot be used.
    #[error(transparent)]
    Dir(#[from] PrivateDirError),
    /// procrun does not start.
    #[error(transparent)]
    Runtime(#[from] EmbeddedRuntimeError),
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

/// Runs the demo for its duration, or until a signal or the end of standard output. Then prints the
/// text that `results` returns about the probeshim with this admin socket, and removes all files.
/// Returns the exit code: 0, or the code of the signal.
pub async fn demo(
    settings: DemoSettings,
    results: impl AsyncFnOnce(SocketPath) -> String,
) -> Result<u8, DemoError> {
    let DemoSettings { lasts, is_quiet, http, faults } = settings;
    let mut signals = ShutdownSignals::new()?;
    raise_nofile_limit();
    let dir = PrivateDir::create(DemoSettings::DIR_PREFIX)?;
    let (upstream, listen, admin) =
        (dir.socket("procrun.sock")?, dir.socket("probeshim.sock")?, dir.socket("admin.sock")?);
    let manifests = dir.path().join("pods.yaml");
    fs::write(&manifests, demo::PODS)?;
    let limits = ManifestLimits {
        ignore_unsupported: false,
        needs_commands: true,
        redact: false,
        max_pods: usize::MAX,
    };
    let paths = std::slice::from_ref(&manifests);
    let documents = ManifestSource::read(paths, limits, SpecResolver::default());
    let documents = documents.map_err(|problems| DemoError::Manifests(problems.join("; ")))?;
    let runtime = EmbeddedRuntime::start(dir.path().join("procrun"), &upstream)?;
    let settings = ServerConfig {
        listen: Some(listen.clone()),
        admin: admin.clone(),
        http,
        // The commands of the demo are known.
        http_pods: true,
        metrics: None,
        readers: Vec::new(),
        controllers: Vec::new(),
        relay: relay::RelayConfig { upstream: upstream.clone(), drain_timeout: Duration::from_secs(1) },
        exec: execsync::SlownessConfig::default(),
        specs: documents.specs(),
        sources: SpecSources::default(),
        enforcement: EnforcementSettings { mode: EnforcementMode::Restart, ..EnforcementSettings::default() },
        journal: None,
        traces: None,
        watch_runtime: true,
        operating_mode: OperatingMode::Kubelet,
        state: Some(dir.path().to_owned()),
        state_source: StateDirSource::Default,
        policies: faults,
    };
    let mut shim = Shim::open(settings).await?;
    let places = Endpoints {
        upstream,
        listen: listen.clone(),
        admin: admin.clone(),
        http: shim.info.http,
        pods: manifests,
    };
    let progress = Progress::start(ProgressFormat::Text)?;
    let program = std::env::args().next().unwrap_or_else(|| "probeshim".to_owned());
    progress.expect(documents.container_names());
    if !is_quiet {
        progress.say(&demo::introduction(lasts, &program, &places));
    }
    let starter = shim.kubelet_starter.take().ok_or(RunError::RelayEnded)?;
    let (events, reported) = (starter.deps.events.clone(), CancellationToken::new());
    let reporting =
        progress.follow(events.follow(&EventFilter::default()).1, reported.clone(), move |_| !is_quiet);
    let (logs, pods) = (dir.path().join("logs"), dir.path().join("pods"));
    let dirs = PodDirs { logs, keep_logs: true, log_rotation: LogRotatePolicy::default(), pods };
    let playing = starter.start_for_manifests(listen, dirs, false, documents)?;
    if !is_quiet {
        progress.follow_readiness(playing.kubelet.clone(), reported.clone());
    }

    let signal = wait_for_end(lasts, &mut signals, &progress).await;
    let results = results(admin).await;
    let (pods, past) = (playing.kubelet.published_pods(), events.select(&EventFilter::default()));
    reported.cancel();
    let _ = reporting.await;
    // Containers that are left end with the runtime.
    let _ = playing.end(&mut signals).await;
    shim.drain().await;
    let drained = shim.ended().await;
    runtime.end().await?;
    drained?;
    dir.remove().map_err(DemoError::Leave)?;
    progress.say(&format!(
        "\n{results}{}\n{}All pods, processes and files were removed.\n",
        pod_table(&pods),
        demo_outcome(&pods, &past)
    ));
    Ok(signal.map_or(0, ShutdownSignal::exit_code))
}

/// Waits until the duration is over, a signal arrives, or standard output is closed. Returns the
/// signal.
async fn wait_for_end(
    lasts: Duration,
    signals: &mut ShutdownSignals,
    progress: &Progress,
) -> Option<ShutdownSignal> {
    tokio::select! {
        () = sleep(lasts) => None,
        signal = signals.next() => Some(signal),
        () = progress.closed() => None,
    }
}
