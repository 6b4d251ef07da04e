//! Reads a period from the records of this probeshim.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::answer::PageError;
use crate::admin::Admin;
use crate::history::recorder::{RecordedLines, read_period};
use crate::history::timeline::{Period, TimelineReader};
use crate::report::redacted;

/// Number of periods that are read at the same time. Every user of this machine can ask for a long
/// period, which takes a second to read.
static READERS: Semaphore = Semaphore::const_new(2);

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
    let _permit = READERS.acquire().await.map_err(|error| internal(&error))?;
    let reader = spawn_blocking(move || {
        let period = read(&admin, from, to)?;
        Ok(make(if admin.shows_commands() { period } else { redacted(period) }))
    });
    let result = reader.await.map_err(|error| internal(&error))?;
    result.map_err(|error: std::io::Error| internal(&error))
}

fn read(admin: &Admin, from: SystemTime, to: SystemTime) -> std::io::Result<Period> {
    match admin.state.timeline.recorded_lines(SystemTime::now(), Instant::now()) {
        RecordedLines::Dir(dir) => read_period(&dir, from, to),
        RecordedLines::Memory(segments) => {
            let mut reader = TimelineReader::new(from, to);
            let lines = segments.iter().flat_map(|segment| segment.split(|byte| *byte == b'\n'));
            lines.for_each(|line| reader.add_line(line));
            Ok(reader.finish())
        }
    }
}
