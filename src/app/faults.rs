//! Fault rules: their start, their end, and changes of the configuration file.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info};

use super::error::RunError;
use super::signals::hung_up;
use crate::config::{Environment, FaultSettings, Problems, read_faults};
use crate::policy::{FaultRule, FaultRules, NodeView, RuleSource};
use crate::terminal::sanitize;

/// Interval between two looks at the configuration file.
const FILE_INTERVAL: Duration = Duration::from_secs(2);

/// Identity of a version of a file: the time of its last change and its length.
type FileVersion = Option<(SystemTime, u64)>;

/// Activates the rules, and watches the configuration file. `reads_on_hangup`: the file is read
/// again on SIGHUP too.
pub(super) fn start(
    faults: &FaultRules,
    settings: FaultSettings,
    node: NodeView,
    reads_on_hangup: bool,
) -> Result<(), RunError> {
    let FaultSettings { flags, configured, file } = settings;
    faults.connect(node);
    faults.add(flags, RuleSource::Flag, "--fault")?;
    faults.set_configured(configured)?;
    tokio::spawn(faults.clone().expire());
    if let Some(file) = file {
        let hangups = reads_on_hangup.then(|| signal(SignalKind::hangup())).transpose();
        tokio::spawn(watch(file, faults.clone(), hangups.map_err(RunError::System)?));
    }
    Ok(())
}

/// Reads the rules again whenever the file has changed, and on SIGHUP.
async fn watch(file: PathBuf, faults: FaultRules, mut hangups: Option<Signal>) {
    let mut looks = interval(FILE_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The file may have changed since it was read at the start, so that it is read once more.
    let mut known = None;
    loop {
        let is_requested = tokio::select! {
            Some(()) = hung_up(&mut hangups) => true,
            _ = looks.tick() => false,
        };
        let current = Some(version(&file).await);
        if is_requested || current != known {
            let is_change = is_requested || known.is_some();
            known = current;
            read_again(&file, &faults, is_change).await;
        }
    }
}

/// Reads the rules again. `is_change`: the file has changed, or a user wants to know the result.
async fn read_again(file: &Path, faults: &FaultRules, is_change: bool) {
    let path = file.to_owned();
    let read = spawn_blocking(move || read_faults(&path, &Environment::detect())).await;
    let read: Result<Vec<FaultRule>, Problems> = match read {
        Ok(read) => read,
        Err(error) => {
            error!(%error, "the configuration file was not read; please report this bug");
            return;
        }
    };
    let shown = file.display();
    let changed = match read {
        Ok(rules) => {
            let count = rules.len();
            faults.set_configured(rules).map(|()| count).map_err(|error| error.to_string())
        }
        Err(problems) => Err(problems.to_string()),
    };
    match changed {
        Ok(_) if !is_change => {}
        Ok(count) => info!(file = %shown, rules = count, "fault rules of the configuration file are active"),
        Err(reason) => {
            error!(file = %shown, "fault rules stay as they were, because the file has errors: {}", sanitize(&reason));
        }
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
