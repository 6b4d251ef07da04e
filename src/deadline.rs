//! Waits for deadlines that may not exist.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

/// Waits until a deadline, or for ever if there is none.
pub async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
