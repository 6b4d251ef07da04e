//! `probeshim play`: runs pods on a runtime as a kubelet does, until they have ended or a signal
//! arrives, or a command with which they are tested has ended.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::embedded_runtime::{EmbeddedRuntime, EmbeddedRuntimeError};
use super::error::RunError;
use super::image_hint::hint_at_local_images;
use super::kubelet::RunningKubelet;
use super::nofile::raise_nofile_limit;
use super::play_goal::{GoalState, pending_goals, wait_for_goal};
use super::runtime_check::RuntimeCheck;
use super::server::Shim;
use super::service_manager;
use super::signals::{HandoverSignal, ShutdownSignal, ShutdownSignals};
use super::test_command::{self, CommandEnd};
use crate::build_info;
use crate::config::{PlaySettings, Until};
use crate::events::{EventFilter, EventRecorder};
use crate::kubelet::{Kubelet, ManifestSource, PodDirs, PodStatusExt, PublishedPod};
use crate::procrun;
use crate::progress::{LOG_LINES, Progress, ProgressFormat, pod_table, render_unready, unready_containers};
use crate::redact::without_queries;
use crate::socket::SocketPath;
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
    /// The runtime of `--runtime` does not start.
    #[error("--runtime: {0}")]
    Runtime(#[from] EmbeddedRuntimeError),
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
    /// The command cannot be run.
    #[error("cannot run COMMAND {program:?}: {source}")]
    Command {
        /// Name of the program.
        program: String,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Reason for the end of `play`.
enum ExitReason {
    /// The condition is met.
    Done,
    /// A signal arrived.
    Signalled(ShutdownSignal),
    /// The command has ended. `play` exits with this code.
    CommandEnded(u8),
    /// The condition can no longer be met, the timeout has expired, or the command cannot be run.
    Failed(PlayError),
}

/// A running `play`.
struct Play {
    playing: RunningKubelet,
    events: Arc<EventRecorder>,
    runtime_check: RuntimeCheck,
    progress: Progress,
    until: Option<Until>,
    /// Whether query strings are omitted from messages.
    redact: bool,
}

/// Runs pods until all have ended, the condition of `--until` is met, the timeout expires, or a
/// signal arrives. With a command, runs the command once the condition is met, and ends with it. A
/// second signal forces the termination of pods. Returns the exit code: 0, the code of the command,
/// or the code of the signal.
pub async fn play(settings: PlaySettings) -> Result<u8, PlayError> {
    let progress = Progress::start(progress_format(&settings))?;
    let PlaySettings { shim, documents, until, timeout, private_dir, command, .. } = &settings;
    progress.expect(documents.container_names());
    let mut signals = ShutdownSignals::new()?;
    let _handovers = AbortOnDropHandle::new(tokio::spawn(report_handovers(HandoverSignal::new()?)));
    raise_nofile_limit();
    let dirs = create_dirs(&settings)?;
    report_remarks(documents, &progress, settings.quiet);
    let listen = shim.listen.clone().ok_or(PlayError::NoSocket)?;
    let (admin, upstream) = (shim.admin.clone(), shim.relay.upstream.clone());
    let runtime = match private_dir {
        Some(dir) => Some(EmbeddedRuntime::start(dir.path().join("procrun"), &upstream)?),
        None => None,
    };
    let redact = shim.exec.redact_commands;
    let mut shim = Shim::open(shim.clone()).await?;
    let starter = shim.kubelet_starter.take().ok_or(RunError::RelayEnded)?;
    let events = starter.deps.events.clone();
    let new_events = events.follow(&EventFilter::default()).1;
    let runtime_check = RuntimeCheck::start(upstream, events.follow(&EventFilter::default()).1);
    let playing = starter.start_for_manifests(listen.clone(), dirs, settings.prune, documents.clone())?;
    info!(
        version = build_info::full_version(),
        listen = %shim.info.listen,
        pods = documents.count(),
        http = %shim.info.http.map_or_else(|| "off".to_owned(), |address| format!("http://{address}")),
        metrics = %shim.info.metrics.as_deref().unwrap_or("off"),
        "playing"
    );
    if let Some(instance) = &settings.instance {
        let name = &instance.name;
        let flag = if instance.has_socket(&admin) {
            format!("--instance {name}")
        } else {
            format!("--admin {admin}")
        };
        progress.say(&format!("instance {name}: see its pods with `probeshim pods {flag}`\n"));
    }
    service_manager::ready(&format!("playing {} pods on {}", documents.count(), shim.info.listen));
    if private_dir.is_some() && progress.is_text() {
        progress.say(&format!("{}\n", procrun::WARNING));
    } else if private_dir.is_some() && !settings.quiet {
        warn!("{}", procrun::WARNING);
    }
    if documents.count() == 0 {
        report_no_pods(&progress, settings.quiet, documents.is_empty());
    }
    let (kubelet, reported) = (playing.kubelet.clone(), CancellationToken::new());
    let reporting = progress.follow(new_events, reported.clone(), move |event| {
        event.pod.as_ref().is_none_or(|pod| kubelet.manages(pod))
    });
    progress.follow_readiness(playing.kubelet.clone(), reported.clone());
    let for_hints = events.follow(&EventFilter::default()).1;
    let _hints = hint_at_local_images(playing.kubelet.clone(), for_hints);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut play = Play { playing, events, runtime_check, progress, until: *until, redact };
    let end = tokio::select! {
        end = play.wait(timeout.zip(deadline), &mut signals) => end?,
        _ = shim.ended() => return Err(RunError::RelayEnded.into()),
    };
    let end = match end {
        ExitReason::Done if !command.is_empty() => tokio::select! {
            end = play.run(command, &admin, &listen, &mut signals) => end,
            _ = shim.ended() => return Err(RunError::RelayEnded.into()),
        },
        end => end,
    };
    let Play { playing, progress, .. } = play;
    let pods: Vec<PublishedPod> = wanted_pods(&playing.kubelet);
    let title = table_title(&pods);
    service_manager::stopping();
    let is_clean = playing.end(&mut signals).await;
    reported.cancel();
    let _ = reporting.await;
    progress.say(&format!("\n{title}{}", pod_table(&pods)));
    shim.drain().await;
    shim.ended().await?;
    if let Some(runtime) = runtime {
        runtime.end().await?;
    }
    match end {
        _ if !is_clean => {
            Err(PlayError::Failed("some pods were not removed; the log has the reasons".to_owned()))
        }
        ExitReason::Done => Ok(0),
        ExitReason::CommandEnded(code) => Ok(code),
        ExitReason::Signalled(signal) => Ok(signal.exit_code()),
        ExitReason::Failed(error) => Err(error),
    }
}

/// Logs each SIGUSR2. A successor of `play` would have to take over its pods too.
async fn report_handovers(mut handover: HandoverSignal) {
    loop {
        handover.received().await;
        warn!("SIGUSR2 is ignored: play has no successor; restart it instead, which ends its pods");
    }
}

impl PlayError {
    /// Returns the exit code of `play`: as in shells, 127 for a command that does not exist, 126
    /// for one that cannot be run, and 1 for all other errors.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Command { .. } => 126,
            _ => 1,
        }
    }
}

impl Play {
    /// Waits for the condition, the timeout or a signal.
    async fn wait(
        &mut self,
        timeout: Option<(Duration, Instant)>,
        signals: &mut ShutdownSignals,
    ) -> Result<ExitReason, PlayError> {
        let kubelet = self.playing.kubelet.clone();
        Ok(tokio::select! {
            signal = signals.next() => {
                self.progress.say(&stop_message(signal, &kubelet));
                info!(signal = signal.name(), "signal received: pods are terminated");
                ExitReason::Signalled(signal)
            }
            goal = wait_for_goal(&kubelet, self.until) => match goal.ok_or(PlayError::Ended)? {
                GoalState::Met => {
                    self.report_goal();
                    ExitReason::Done
                }
                GoalState::Failed(reason) => {
                    ExitReason::Failed(PlayError::Failed(self.with_details(reason)))
                }
            },
            duration = expired(timeout) => {
                let goals = pending_goals(&kubelet, self.until);
                let reason = format!("after {} {goals}", format::duration(duration));
                ExitReason::Failed(PlayError::TimedOut(self.with_details(reason)))
            }
            _ = &mut self.playing.task => return Err(PlayError::Ended),
        })
    }

    /// Runs the command to its end.
    async fn run(
        &mut self,
        command: &[std::ffi::OsString],
        admin: &SocketPath,
        relay: &SocketPath,
        signals: &mut ShutdownSignals,
    ) -> ExitReason {
        let shown: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        self.progress.say(&format!("running {}\n", sanitize(&format::command(&shown))));
        let ended = tokio::select! {
            ended = test_command::run(command, admin, relay, signals) => ended,
            _ = &mut self.playing.task => return ExitReason::Failed(PlayError::Ended),
        };
        match ended {
            Ok(CommandEnd::Exited(exit_code)) => ExitReason::CommandEnded(exit_code),
            Ok(CommandEnd::Signalled(signal)) => {
                self.progress.say(&stop_message(signal, &self.playing.kubelet));
                ExitReason::Signalled(signal)
            }
            Err(source) => {
                let program = sanitize(shown.first().map_or("", String::as_str));
                ExitReason::Failed(PlayError::Command { program, source })
            }
        }
    }

    /// Prints that the condition is met.
    fn report_goal(&self) {
        let goal = match self.until {
            Some(Until::Ready) => "all pods are ready".to_owned(),
            Some(Until::Succeeded) => "all pods have succeeded".to_owned(),
            Some(Until::Restarts(count)) => {
                format!("a container has been restarted {}", format::times(count.into()))
            }
            None => "all pods have ended".to_owned(),
        };
        self.progress.say(&format!("{goal} after {}\n", format::duration(self.progress.elapsed())));
    }

    /// Returns the reason of a failure with details: an unreachable runtime, and the containers
    /// that are not ready.
    fn with_details(&self, reason: String) -> String {
        let kubelet = &self.playing.kubelet;
        let (pods, events) = (wanted_pods(kubelet), self.events.select(&EventFilter::default()));
        let log = |published: &PublishedPod, status: &_| kubelet.last_log_lines(published, status, LOG_LINES);
        let unready = render_unready(&unready_containers(&pods, &events, log));
        let unreachable = self.runtime_check.unreachable().map(|reason| format!("  {reason}\n"));
        let text = [reason, "\n".to_owned(), unreachable.unwrap_or_default(), unready].concat();
        let text = text.trim_end();
        if self.redact { without_queries(text).into_owned() } else { text.to_owned() }
    }
}

/// Returns the title of the final table. Pods that are running when `play` ends are shown in the
/// state before their termination.
fn table_title(pods: &[PublishedPod]) -> &'static str {
    let has_ended = |pod: &PublishedPod| pod.status().is_some_and(PodStatusExt::is_terminal);
    if pods.iter().all(has_ended) { "" } else { "pods before their termination:\n" }
}

/// Returns the pods whose manifests have not been removed.
fn wanted_pods(kubelet: &Kubelet) -> Vec<PublishedPod> {
    kubelet.published_pods().into_iter().filter(|published| !published.is_unwanted()).collect()
}

/// Returns the format of the progress. A command has standard output for itself.
fn progress_format(settings: &PlaySettings) -> ProgressFormat {
    match () {
        () if settings.quiet => ProgressFormat::Quiet,
        () if !settings.command.is_empty() => ProgressFormat::TextOnStderr,
        () if io::stdout().is_terminal() => ProgressFormat::Text,
        () => ProgressFormat::Json,
    }
}

/// Reports that there are no pods yet. `is_empty`: there are no workloads either.
fn report_no_pods(progress: &Progress, is_quiet: bool, is_empty: bool) {
    let report = if is_empty {
        "no manifest has a pod yet: waiting for manifests in the directories"
    } else {
        "no workload has a pod, because of its replicas, parallelism or suspend: waiting for changes of the manifests"
    };
    if progress.is_text() {
        progress.say(&format!("{report}\n"));
    } else if !is_quiet {
        warn!("{report}");
    }
}

/// Reports what is probably a mistake in the manifests, and what is left out.
fn report_remarks(documents: &ManifestSource, progress: &Progress, is_quiet: bool) {
    let left_out = documents.warnings().into_iter().map(|warning| format!("left out: {warning}"));
    let remarks = if is_quiet { Vec::new() } else { documents.remarks() };
    for remark in left_out.chain(remarks) {
        let remark = sanitize(&remark);
        if progress.is_text() {
            progress.say(&format!("warning: {remark}\n"));
        } else {
            warn!("{remark}");
        }
    }
}

/// Returns a sentence about the termination that a signal begins.
fn stop_message(signal: ShutdownSignal, kubelet: &Kubelet) -> String {
    let running = kubelet.published_pods().iter().filter(|published| published.removed().is_none()).count();
    let pods = format::counted(running, "pod");
    let grace = kubelet.max_grace_period().as_secs();
    let again = if signal == ShutdownSignal::Interrupt { "Ctrl-C" } else { signal.name() };
    format!("stopping {pods}, grace period up to {grace} s; {again} again to force\n")
}

/// Creates the directories of the state, of logs and of pods.
fn create_dirs(settings: &PlaySettings) -> Result<PodDirs, PlayError> {
    let PlaySettings { shim, logs, keep_logs, log_rotation, pods, .. } = settings;
    if let Some(state) = &shim.state {
        create_directory(state, OWNER_ONLY)?;
    }
    let (logs, pods) = (create_directory(logs, LOGS_MODE)?, create_directory(pods, OWNER_ONLY)?);
    // An earlier version created the directory with a wider mode.
    let narrowed = fs::set_permissions(&pods, Permissions::from_mode(OWNER_ONLY));
    narrowed.map_err(|error| PlayError::Dir(format!("{}: {error}", pods.display())))?;
    Ok(PodDirs { logs, keep_logs: *keep_logs, log_rotation: *log_rotation, pods })
}

/// Creates a directory with a mode, unless it is there. Returns its path without links, as in
/// mountinfo.
fn create_directory(dir: &Path, mode: u32) -> Result<PathBuf, PlayError> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(dir);
    let resolved = created.and_then(|()| dir.canonicalize());
    resolved.map_err(|error| PlayError::Dir(format!("{}: {error}", dir.display())))
}

/// Waits until a timeout has expired, and returns its duration.
async fn expired(timeout: Option<(Duration, Instant)>) -> Duration {
    match timeout {
        Some((duration, deadline)) => {
            sleep_until(deadline).await;
            duration
        }
        None => std::future::pending().await,
    }
}
