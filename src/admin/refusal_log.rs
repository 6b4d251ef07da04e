//! Limits the log lines about refused clients, so that clients without permission cannot fill the
//! log.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between log lines about refused clients.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts refusals between two log lines.
#[derive(Debug, Default)]
pub(super) struct RefusalLog(Mutex<RefusalCounts>);

#[derive(Debug, Default)]
struct RefusalCounts {
    last: Option<Instant>,
    /// Number of refusals since the last line.
    unreported: u64,
}

impl RefusalLog {
    /// Counts a refusal. Returns the number of refusals to report, or `None` if a line was written
    /// recently.
    pub(super) fn add(&self) -> Option<u64> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        counts.unreported += 1;
        if counts.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            return None;
        }
        counts.last = Some(now);
        Some(std::mem::take(&mut counts.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_refusals_have_one_log_line_for_each_interval() {
        let log = RefusalLog::default();
        assert_eq!(log.add(), Some(1));
        assert_eq!((log.add(), log.add()), (None, None));
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(log.add(), Some(3));
        assert_eq!(log.add(), None);
    }
}
