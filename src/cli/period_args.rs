//! Arguments of the commands that examine a period: its time, and the source of its records.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use tokio::task::spawn_blocking;

use super::CliError;
use super::admin_args::AdminArgs;
use crate::admin::Client;
use crate::admin::api::TimelineQuery;
use crate::config::DirPath;
use crate::history::TimeArg;
use crate::history::json::time;
use crate::history::recorder::{has_records, read_period};
use crate::history::timeline::{Period, TimelineReader};
use crate::report::Selection;
use crate::suggest::did_you_mean;
use crate::terminal::harmless_name;

/// The period to examine, and the source of what is known about it.
#[derive(Debug, Args)]
pub(super) struct PeriodArgs {
    #[command(flatten)]
    admin: AdminArgs,

    /// Read the records in this directory, such as the calls directory of a state directory,
    /// instead of querying a running probeshim. It may be a copy from another host
    #[arg(long, value_name = "DIR")]
    records: Option<DirPath>,

    /// Begin of the period: a duration before the present, such as 30m or 24h, or a time, such as
    /// 2026-11-27T10:00:00Z
    #[arg(long, value_name = "TIME", default_value = "1h", allow_hyphen_values = true)]
    since: TimeArg,

    /// End of the period, in the same formats as --since. A time after the present counts as the
    /// present [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<TimeArg>,
}

impl PeriodArgs {
    /// Returns the origin of the period in words.
    pub(super) fn source(&self) -> String {
        match &self.records {
            Some(DirPath(dir)) => format!("records in {}", dir.display()),
            None => "a running probeshim".to_owned(),
        }
    }

    /// Reads what is known about the period.
    pub(super) async fn read(self) -> Result<Period, CliError> {
        let (from, to) = bounds(self.since, self.until, SystemTime::now())?;
        match self.records {
            Some(DirPath(dir)) => read_records(dir, from, to).await,
            None => query(&self.admin.client()?, from, to).await,
        }
    }
}

/// Returns the begin and the end of a period. It ends at the present at the latest, because nothing
/// is known about a later time.
fn bounds(
    since: TimeArg,
    until: Option<TimeArg>,
    now: SystemTime,
) -> Result<(SystemTime, SystemTime), CliError> {
    let (from, until) = (since.before(now), until.map_or(now, |until| until.before(now)));
    let to = until.min(now);
    if from < to {
        return Ok((from, to));
    }
    let [from, until] = [from, until].map(time);
    Err(CliError::Usage(format!("--since ({from}) must be before --until ({until}) and before the present")))
}

/// Returns an error if pods are selected, and none of them is in the period.
pub(super) fn check_selection(selection: &Selection, period: &Period) -> Result<(), CliError> {
    let Selection { namespace, pod } = selection;
    let (flag, name) = match (pod, namespace) {
        (Some(pod), _) => ("--pod", pod),
        (None, Some(namespace)) => ("--namespace", namespace),
        (None, None) => return Ok(()),
    };
    if selection.has_any(period) {
        return Ok(());
    }
    let series = period.probes.iter().map(|probe| &probe.series);
    let known: BTreeSet<&str> =
        series.map(|series| if pod.is_some() { &*series.pod } else { &*series.namespace }).collect();
    let hint = did_you_mean(name, known);
    let name = harmless_name(name);
    Err(CliError::Usage(format!("{flag} {name:?}: no attempts and no events in the period{hint}")))
}

async fn read_records(dir: PathBuf, from: SystemTime, to: SystemTime) -> Result<Period, CliError> {
    let read = spawn_blocking(move || read_dir(&dir, from, to)).await;
    read.context("the reader of the records has ended")?
}

fn read_dir(dir: &Path, from: SystemTime, to: SystemTime) -> Result<Period, CliError> {
    let invalid = |reason: &dyn Display| {
        let dir = dir.display().to_string();
        CliError::Usage(format!(
            "--records {dir:?} must be a directory with records, such as /var/lib/probeshim/calls: {reason}"
        ))
    };
    // A state directory has the records in a directory of its own.
    let inner = dir.join("calls");
    let records = if inner.is_dir() { &inner } else { dir };
    match has_records(records) {
        Ok(true) => {}
        Ok(false) => return Err(invalid(&"it has none")),
        Err(error) => return Err(invalid(&error)),
    }
    let period = read_period(records, from, to);
    Ok(period.with_context(|| format!("the records in {} cannot be read", records.display()))?)
}

/// Returns what a running probeshim knows about the last hour.
pub(super) async fn last_hour(client: &Client) -> Result<Period, CliError> {
    let now = SystemTime::now();
    query(client, now - Duration::from_secs(3600), now).await
}

async fn query(client: &Client, from: SystemTime, to: SystemTime) -> Result<Period, CliError> {
    let [since, until] = [from, to].map(time);
    let lines = client.timeline(&TimelineQuery { since, until }).await?;
    let mut reader = TimelineReader::new(from, to);
    lines.split(|byte| *byte == b'\n').for_each(|line| reader.add_line(line));
    Ok(reader.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_ends_at_the_present_at_the_latest() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let hour = Duration::from_secs(3600);
        let (before, at) = (TimeArg::Before, TimeArg::At);
        for (since, until, expected) in [
            (before(hour), None, (now - hour, now)),
            (before(2 * hour), Some(before(hour)), (now - 2 * hour, now - hour)),
            (before(hour), Some(at(now + hour)), (now - hour, now)),
        ] {
            assert_eq!(bounds(since, until, now).unwrap(), expected);
        }
        for (since, until) in [
            (before(Duration::ZERO), None),
            (before(hour), Some(before(hour))),
            (at(now + hour), Some(at(now + 2 * hour))),
        ] {
            let error = bounds(since, until, now).unwrap_err().to_string();
            assert!(error.contains("before the present"), "{error}");
        }
    }

    #[test]
    fn records_must_be_a_directory_with_records() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        for (path, reason) in [(dir.path(), "it has none"), (&dir.path().join("missing"), "No such file")] {
            let error = read_dir(path, from, to).unwrap_err();
            assert!(matches!(error, CliError::Usage(_)), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        let segment = dir.path().join("calls/probes-v1-00000001.jsonl");
        std::fs::create_dir(dir.path().join("calls")).unwrap();
        std::fs::write(segment, "").unwrap();
        assert!(read_dir(dir.path(), from, to).is_ok());
    }
}
