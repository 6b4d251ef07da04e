//! Accepting clients, also while the system cannot have more of them.

use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;
use tracing::error;

/// How long to wait after accept failed, so that a lack of descriptors is not made worse by a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// The next client. Where it cannot be had now, it is said and tried again.
pub async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(error) => {
                error!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
            }
        }
    }
}
