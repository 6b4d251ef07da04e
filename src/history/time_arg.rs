//! A time that a user names: a duration before the present, or a time.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::duration;

/// Longest duration before the present, in days.
const MAX_DAYS: u64 = 366;

/// A time: a duration before the present, or a time in RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArg {
    /// A duration before the present.
    Before(Duration),
    /// A time.
    At(SystemTime),
}

/// Error of a text that is not a time.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be a duration up to {MAX_DAYS} days, such as 30m or 24h, or a time in RFC 3339, such as \
     2026-11-27T10:00:00Z"
)]
pub struct TimeArgError;

impl TimeArg {
    /// Returns the time.
    #[must_use]
    pub fn before(self, now: SystemTime) -> SystemTime {
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
}
