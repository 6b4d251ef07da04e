//! Times as the CRI gives them, and pauses.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

/// Nanoseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Waits, where there is something to wait for: a sleep of no time would last until the timer's next tick, a millisecond away.
pub(super) async fn sleep_if_nonzero(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
