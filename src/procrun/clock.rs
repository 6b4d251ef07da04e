//! Times as the CRI gives them.

use std::time::SystemTime;

/// Nanoseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
