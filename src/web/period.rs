//! Reads a period from the records of this probeshim.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::answer::PageError;
use crate::admin::Admin;
use crate::history::timeline::Period;
use crate::report::redacted;

/// Number of periods that are read at the same time, and of requests that wait for that. Every user
/// of this machine can request a long period, which takes a second to read.
const MAX_READERS: usize = 2;
const MAX_WAITING: usize = 16;

static READERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_READERS)));
static WAITING: Semaphore = Semaphore::const_new(MAX_WAITING);

/// Reads a period, and passes it to `make` on a thread that may block. The period has no commands,
/// output and messages if the page does not show them.
pub(super) async fn with_period<T: Send + 'static>(
    admin: Arc<Admin>,
    from: SystemTime,
    to: SystemTime,
    make: impl FnOnce(Period) -> T + Send + 'static,
) -> Result<T, PageError> {
    let internal =
        |error: &dyn std::fmt::Display| PageError::Internal(format!("the records cannot be read: {error}"));
    let waiting = WAITING.try_acquire().map_err(|_| PageError::Busy)?;
    let permit = READERS.clone().acquire_owned().await.map_err(|error| internal(&error))?;
    drop(waiting);
    let reader = spawn_blocking(move || {
        // A client that disconnects does not end the reader, so the reader has the permit.
        let _permit = permit;
        let timeline = &admin.state.timeline;
        let period = timeline.read_period(from, to, SystemTime::now(), Instant::now())?;
        Ok(make(if admin.shows_commands() { period } else { redacted(period) }))
    });
    let result = reader.await.map_err(|error| internal(&error))?;
    result.map_err(|error: std::io::Error| internal(&error))
}
