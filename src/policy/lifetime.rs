//! The lifetimes of rules and pauses.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::deadline;

/// Longest lifetime of a rule or pause that ends by itself.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether a rule or pause that ends by itself may live for this duration.
pub(crate) fn is_lifetime(lifetime: Duration) -> bool {
    !lifetime.is_zero() && lifetime <= MAX_LIFETIME
}

/// Calls `end` at the end of each lifetime, for ever. `next` returns the next end, and `changed` is
/// signalled when that may have changed.
pub(super) async fn expire(changed: &Notify, next: impl Fn() -> Option<Instant>, end: impl Fn(Instant)) {
    loop {
        let is_changed = changed.notified();
        tokio::select! {
            () = deadline::reached(next()) => end(Instant::now()),
            () = is_changed => {}
        }
    }
}
