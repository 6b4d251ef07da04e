//! Time at which a session closes a connection whose client takes no data.

use std::time::Duration;

use tokio::time::Instant;

use super::backlog::Backlog;

/// Time for which a client may leave data unread: the remaining data of calls after upstream is
/// gone, or the final GOAWAY.
pub(super) const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Time at which the client's connection is closed although calls still forward data, because a
/// lost call waits for the close.
#[derive(Clone, Copy)]
pub(super) struct ForceClose {
    pub(super) at: Instant,
    /// Number of bytes that the client had taken when the time was set.
    bytes_written: u64,
}

impl ForceClose {
    pub(super) fn new(client: &Backlog) -> Self {
        Self { at: Instant::now() + CLOSE_GRACE, bytes_written: client.written() }
    }

    /// Returns a later time if the client has taken data since this time was set.
    pub(super) fn postponed(self, client: &Backlog) -> Option<Self> {
        (client.written() != self.bytes_written).then(|| Self::new(client))
    }
}
