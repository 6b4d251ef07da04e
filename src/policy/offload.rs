//! Work on large messages, away from the threads of the relay.

use tokio::sync::Semaphore;

/// Permits one piece of work at a time, so that a flood of large messages delays only the calls
/// with large messages.
static TURN: Semaphore = Semaphore::const_new(1);

/// Does work on a thread that relays nothing, in turn with the work of other calls. The work is
/// complete if the process does not end.
pub(super) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let _turn = TURN.acquire().await.expect("the semaphore is never closed");
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the end of the runtime cancels work, and it ends this call too.
            Err(_) => std::future::pending().await,
        },
    }
}
