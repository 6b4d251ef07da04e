//! Arguments of the commands that examine a period: its time, and the source of its records.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::CliError;
use super::admin_args::AdminArgs;
use crate::admin::Client;
use crate::admin::api::TimelineQuery;
use crate::config::DirPath;
use crate::duration;
use crate::history::json::time;
use crate::history::recorder::{has_records, read_period};
use crate::history::timeline::{Period, TimelineReader};
use crate::report::Selection;
use crate::suggest::did_you_mean;
use crate::terminal::harmless_name;

/// Longest duration before the present, in days.
const MAX_DAYS: u64 = 366;

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

    /// End of the period, in the same formats as --since [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<TimeArg>,
}

/// A time: a duration before the present, or a time in RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeArg {
    Before(Duration),
    At(SystemTime),
}

/// Error of a text that is not a time.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be a duration up to {MAX_DAYS} days, such as 30m or 24h, or a time in RFC 3339, such as \
     2026-11-27T10:00:00Z"
)]
struct TimeArgError;

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
        let now = SystemTime::now();
        let from = self.since.before(now);
        let to = self.until.map_or(now, |until| until.before(now));
        if from >= to {
            let [from, to] = [from, to].map(time);
            return Err(CliError::Usage(format!(
                "--since ({from}) must be before --until ({to}) and before the present"
            )));
        }
        match self.records {
            Some(DirPath(dir)) => read_records(dir, from, to).await,
            None => query(&self.admin.client()?, from, to).await,
        }
    }
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

async fn query(client: &Client, from: SystemTime, to: SystemTime) -> Result<Period, CliError> {
    let [since, until] = [from, to].map(time);
    let lines = client.timeline(&TimelineQuery { since, until }).await?;
    let mut reader = TimelineReader::new(from, to);
    lines.split(|byte| *byte == b'\n').for_each(|line| reader.add_line(line));
    Ok(reader.finish())
}

impl TimeArg {
    fn before(self, now: SystemTime) -> SystemTime {
        match self {
            Self::Before(duration) => now.checked_sub(duration).unwrap_or(SystemTime::UNIX_EPOCH),
            Self::At(time) => time,
        }
    }
}

impl FromStr for TimeArg {
    type Err = TimeArgError;

    fn from_str(text: &str) -> Result<Self, TimeArgError> {
        let longest = Duration::from_secs(MAX_DAYS * 24 * 60 * 60);
        let before = duration::parse(text).filter(|duration| *duration <= longest).map(Self::Before);
        let at = || text.parse::<Timestamp>().ok().map(|time| Self::At(time.into()));
        before.or_else(at).ok_or(TimeArgError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_begin_of_a_period_is_a_duration_or_a_time() {
        let hour = Duration::from_secs(3600);
        assert_eq!("1h".parse::<TimeArg>().unwrap(), TimeArg::Before(hour));
        assert_eq!(
            "1970-01-01T02:00:00+01:00".parse::<TimeArg>().unwrap(),
            TimeArg::At(SystemTime::UNIX_EPOCH + hour)
        );
        for invalid in ["", "-1h", "yesterday", "9000h", "2026-11-27", "2026-11-27T10:00:00"] {
            let error = invalid.parse::<TimeArg>().unwrap_err().to_string();
            assert!(error.starts_with("must be a duration up to 366 days"), "{invalid}: {error}");
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
