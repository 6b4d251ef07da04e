//! Timestamps of the CRI, and delays.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

/// Returns the current time in nanoseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the time that is this number of nanoseconds after 1970.
pub(super) fn system_time(at: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(at.unsigned_abs())
}

/// Sleeps for `time`, but returns immediately for zero: tokio's sleep would last until the timer's
/// next tick, up to a millisecond later.
pub(super) async fn sleep_if_nonzero(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
