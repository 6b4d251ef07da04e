//! `probeshim play`: runs pods on a runtime as a kubelet does, until they have ended or a signal
//! arrives.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::error::RunError;
use super::nofile::raise_nofile_limit;
use super::server::Shim;
use super::signals::{ShutdownSignal, ShutdownSignals};
use crate::config::{PlaySettings, Until};
use crate::kubelet::{ContainerStatusExt as _, Kubelet, PodDirs, PodStatusExt, PublishedPod};
use crate::state::StateError;
use crate::terminal::{format, sanitize};

/// Mode of directories with the files of pods, as of everything below `--state-dir`. Containers
/// reach their volumes by mounts, for which the modes of parent directories do not matter.
const OWNER_ONLY: u32 = 0o700;

/// Mode with which a missing directory of logs is created, as by the kubelet.
const LOGS_MODE: u32 = 0o750;

/// Error of `play`.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The relay or one of its sockets failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An operation of the operating system failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// A directory cannot be created or opened.
    #[error("{0}")]
    Dir(String),
    /// The state store cannot be opened.
    #[error("--state-dir: {0}")]
    State(#[from] StateError),
    /// The settings have no socket to listen on.
    #[error("--listen: is needed")]
    NoSocket,
    /// The built-in kubelet ended because of a bug.
    #[error("the built-in kubelet ended unexpectedly")]
    Ended,
    /// Pods have failed, or containers were killed and are not restarted.
    #[error("{0}")]
    Failed(String),
    /// The timeout has expired.
    #[error("--timeout: {0}")]
    TimedOut(String),
}

/// Reason for the end of `play`.
enum ExitReason {
    /// The condition is met.
    Done,
    /// A signal arrived.
    Signalled(ShutdownSignal),
    /// The condition can no longer be met, or the timeout has expired.
    Failed(PlayError),
}

/// Runs pods until all have ended, the condition of `--until` is met, the timeout expires, or a
/// signal arrives. A second signal forces the termination of pods. Returns the exit code: 0, or the
/// code of the signal.
pub async fn play(settings: PlaySettings) -> Result<u8, PlayError> {
    let PlaySettings { shim, log: _, documents, until, timeout, logs, keep_logs, log_rotation, pods, prune } =
        settings;
    let mut signals = ShutdownSignals::new()?;
    raise_nofile_limit();
    if let Some(state) = &shim.state {
        create_directory(state, OWNER_ONLY)?;
    }
    let (logs, pods) = (create_directory(&logs, LOGS_MODE)?, create_directory(&pods, OWNER_ONLY)?);
    let dirs = PodDirs { logs, keep_logs, log_rotation, pods };
    // An earlier version created the directory with a wider mode.
    let narrowed = fs::set_permissions(&dirs.pods, Permissions::from_mode(OWNER_ONLY));
    narrowed.map_err(|error| PlayError::Dir(format!("{}: {error}", dirs.pods.display())))?;
    for warning in documents.warnings() {
        warn!("left out: {}", sanitize(&warning));
    }
    for (kind, count) in documents.ignored_kinds() {
        info!(count, kind = %sanitize(&kind), "manifests ignored: play does not run their kind");
    }
    let listen = shim.listen.clone().ok_or(PlayError::NoSocket)?;
    let mut shim = Shim::open(shim).await?;
    let starter = shim.kubelet_starter.take().ok_or(RunError::RelayEnded)?;
    let count = documents.count();
    let mut playing = starter.start_for_manifests(listen, dirs, prune, documents)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %shim.info.listen,
        pods = count,
        http = %shim.info.http.map_or_else(|| "off".to_owned(), |address| format!("http://{address}")),
        "playing"
    );
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let end = tokio::select! {
        signal = signals.next() => {
            report_stop(signal, &playing.kubelet);
            ExitReason::Signalled(signal)
        }
        end = watched(&playing.kubelet, until) => end,
        () = time_left(deadline) => {
            let timeout = format::duration(timeout.unwrap_or_default());
            ExitReason::Failed(PlayError::TimedOut(format!("after {timeout} {}", pending_goals(&playing.kubelet, until))))
        }
        _ = shim.ended() => return Err(RunError::RelayEnded.into()),
        _ = &mut playing.task => return Err(PlayError::Ended),
    };
    let is_clean = playing.end(&mut signals).await;
    shim.drain().await;
    shim.ended().await?;
    match end {
        _ if !is_clean => {
            Err(PlayError::Failed("some pods were not removed; the log has the reasons".to_owned()))
        }
        ExitReason::Done => Ok(0),
        ExitReason::Signalled(signal) => Ok(signal.exit_code()),
        ExitReason::Failed(error) => Err(error),
    }
}

/// Logs the begin of the termination that a signal caused.
fn report_stop(signal: ShutdownSignal, kubelet: &Kubelet) {
    let running = kubelet.published_pods().iter().filter(|published| published.removed().is_none()).count();
    let pods = if running == 1 { "1 pod".to_owned() } else { format!("{running} pods") };
    let grace = format::duration(kubelet.max_grace_period());
    let again = if signal == ShutdownSignal::Interrupt { "Ctrl-C" } else { signal.name() };
    info!(signal = signal.name(), "stopping {pods}, grace period up to {grace}; {again} again to force");
}

/// Creates a directory with a mode, unless it is there. Returns its path without links, as in
/// mountinfo.
fn create_directory(dir: &Path, mode: u32) -> Result<PathBuf, PlayError> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(dir);
    let resolved = created.and_then(|()| dir.canonicalize());
    resolved.map_err(|error| PlayError::Dir(format!("{}: {error}", dir.display())))
}

async fn time_left(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Waits until the condition is met, or can no longer be met.
async fn watched(kubelet: &Kubelet, until: Option<Until>) -> ExitReason {
    let mut changes = kubelet.changes();
    loop {
        changes.borrow_and_update();
        if let Some(end) = goal_state(&kubelet.published_pods(), until) {
            return end;
        }
        if changes.changed().await.is_err() {
            return ExitReason::Failed(PlayError::Ended);
        }
    }
}

/// Returns the reason to end if the condition is met, or can no longer be met.
fn goal_state(published_pods: &[PublishedPod], until: Option<Until>) -> Option<ExitReason> {
    let wanted: Vec<&PublishedPod> =
        published_pods.iter().filter(|published| !published.is_unwanted()).collect();
    let statuses: Vec<Option<&PodStatus>> = wanted.iter().map(|published| published.status()).collect();
    let all = |is: fn(&PodStatus) -> bool| {
        !statuses.is_empty() && statuses.iter().all(|status| status.is_some_and(is))
    };
    let is_well = match until {
        Some(Until::Ready) => all(|status| status.is("Ready") || status.phase() == "Succeeded"),
        Some(Until::Succeeded) => all(|status| status.phase() == "Succeeded"),
        Some(Until::Restarts(count)) => wanted.iter().any(|published| published.max_restarts() >= count),
        // Without a condition, `play` ends once all pods have ended.
        None => all(PodStatusExt::is_terminal),
    };
    let lost = wanted.iter().filter(|published| published.has_failed()).map(|published| failed(published));
    let lost: Vec<String> = lost.collect();
    if is_well {
        let is_enough = matches!(until, Some(Until::Ready | Until::Restarts(_))) || lost.is_empty();
        return Some(if is_enough {
            ExitReason::Done
        } else {
            ExitReason::Failed(PlayError::Failed(lost.join("\n")))
        });
    }
    // Pods that have ended can no longer meet the condition.
    let is_vain = match until {
        Some(Until::Ready | Until::Succeeded) => !lost.is_empty(),
        Some(Until::Restarts(_)) => all(PodStatusExt::is_terminal),
        None => false,
    };
    is_vain.then(|| {
        let reason = if lost.is_empty() { "all pods have ended".to_owned() } else { lost.join("\n") };
        ExitReason::Failed(PlayError::Failed(reason))
    })
}

/// Returns the error message of a failed pod.
fn failed(published: &PublishedPod) -> String {
    let (namespace, name) = published.names();
    let containers = published.status().into_iter().flat_map(PodStatusExt::containers);
    let ended = containers.filter_map(|container| {
        let ended = container.terminated().filter(|ended| ended.exit_code != 0)?;
        let reason = ended.reason.as_deref().unwrap_or_default();
        Some(format!("{} exited with code {} ({reason})", container.name, ended.exit_code))
    });
    let ended: Vec<String> = ended.collect();
    let reason = published.status().and_then(|status| status.reason.clone());
    let killed = || "a container was killed and is not restarted".to_owned();
    let why = if ended.is_empty() { reason.unwrap_or_else(killed) } else { ended.join(", ") };
    format!("pod {namespace}/{name} has failed: {why}")
}

/// Returns the part of the condition that is not met yet.
fn pending_goals(kubelet: &Kubelet, until: Option<Until>) -> String {
    let mut published_pods = kubelet.published_pods();
    published_pods.retain(|published| !published.is_unwanted());
    let of = |is: fn(&PodStatus) -> bool| -> String {
        let others = published_pods.iter().filter(|published| !published.status().is_some_and(is));
        let names: Vec<String> = others
            .map(|published| {
                let (namespace, name) = published.names();
                format!("{namespace}/{name} ({})", published.summary().status_column)
            })
            .collect();
        names.join(", ")
    };
    match until {
        Some(Until::Ready) => format!("not ready: {}", of(|status| status.is("Ready"))),
        Some(Until::Succeeded) => format!("not succeeded: {}", of(|status| status.phase() == "Succeeded")),
        Some(Until::Restarts(count)) => format!("no container has been restarted {count} times"),
        None => format!("not ended: {}", of(PodStatusExt::is_terminal)),
    }
}
