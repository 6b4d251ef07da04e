//! Policies: their start, and changes of the configuration file.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info};

use super::error::RunError;
use super::signals::hung_up;
use crate::config::{Environment, ExecLimitFlags, PolicySettings, Problems, read_policies};
use crate::policy::{ExecSettings, FaultRule, NodeView, Policies, RuleSource};
use crate::terminal::sanitize;

/// Interval between two looks at the configuration file.
const FILE_INTERVAL: Duration = Duration::from_secs(2);

/// Identity of a version of a file: the time of its last change and its length.
type FileVersion = Option<(SystemTime, u64)>;

/// Activates the policies, and watches the configuration file. `reads_on_hangup`: the file is read
/// again on SIGHUP too.
pub(super) fn start(
    policies: &Policies,
    settings: PolicySettings,
    node: NodeView,
    reads_on_hangup: bool,
) -> Result<(), RunError> {
    let PolicySettings { exec, exec_flags, flags, configured, file } = settings;
    policies.connect(node);
    policies.faults.add(flags, RuleSource::Flag, "--fault")?;
    policies.faults.set_configured(configured)?;
    policies.set_exec(exec);
    tokio::spawn(policies.faults.clone().expire());
    tokio::spawn(policies.pauses.clone().expire());
    if let Some(path) = file {
        let hangups = reads_on_hangup.then(|| signal(SignalKind::hangup())).transpose();
        let file = PolicyFile { path, exec_flags, policies: policies.clone() };
        tokio::spawn(file.watch(hangups.map_err(RunError::System)?));
    }
    Ok(())
}

/// The configuration file, from which the policies are read again.
struct PolicyFile {
    path: PathBuf,
    /// Flags of the command line, which take precedence over the file.
    exec_flags: ExecLimitFlags,
    policies: Policies,
}

impl PolicyFile {
    /// Reads the policies again whenever the file has changed, and on SIGHUP.
    async fn watch(self, mut hangups: Option<Signal>) {
        let mut looks = interval(FILE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The file may have changed since it was read at the start, so that it is read once more.
        let mut known = None;
        loop {
            let is_requested = tokio::select! {
                Some(()) = hung_up(&mut hangups) => true,
                _ = looks.tick() => false,
            };
            let current = Some(version(&self.path).await);
            if is_requested || current != known {
                let is_change = is_requested || known.is_some();
                known = current;
                self.read_again(is_change).await;
            }
        }
    }

    /// Reads the policies again. `is_change`: the file has changed, or a user wants to know the
    /// result.
    async fn read_again(&self, is_change: bool) {
        let (path, flags) = (self.path.clone(), self.exec_flags.clone());
        let read = spawn_blocking(move || read_policies(&path, flags, &Environment::detect())).await;
        let read: Result<(Vec<FaultRule>, ExecSettings), Problems> = match read {
            Ok(read) => read,
            Err(error) => {
                error!(%error, "the configuration file was not read; please report this bug");
                return;
            }
        };
        let shown = self.path.display();
        match read.map_err(|problems| problems.to_string()).and_then(|(rules, exec)| self.apply(rules, exec))
        {
            Ok(_) if !is_change => {}
            Ok(count) => {
                info!(file = %shown, rules = count, "fault rules and limits of the configuration file are active");
            }
            Err(reason) => {
                let reason = sanitize(&reason);
                error!(file = %shown, "fault rules and limits stay as they were, because the file has errors: {reason}");
            }
        }
    }

    /// Applies all policies of the file or none. Returns the number of fault rules.
    fn apply(&self, rules: Vec<FaultRule>, exec: ExecSettings) -> Result<usize, String> {
        let count = rules.len();
        self.policies.faults.set_configured(rules).map_err(|error| error.to_string())?;
        self.policies.set_exec(exec);
        Ok(count)
    }
}

async fn version(file: &Path) -> FileVersion {
    let file = file.to_owned();
    let version = spawn_blocking(move || {
        let metadata = file.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    });
    version.await.ok().flatten()
}
