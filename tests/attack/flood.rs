//! A connection that is flooded with frames.

use std::path::Path;
use std::time::Duration;

use fixtures::http2::wire::HELLO;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Whether an attacker reads its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The attacker reads and drops everything.
    Everything,
    /// The attacker never reads.
    Nothing,
}

/// An attacker's connection.
#[derive(Debug)]
pub(crate) struct Flood {
    write: OwnedWriteHalf,
    /// Holds the reading half of the connection, whether the attacker reads or not.
    reader: JoinHandle<()>,
    /// Number of bytes that the other end has taken.
    pub(crate) sent: u64,
    /// Whether the other end has not closed the connection.
    pub(crate) is_open: bool,
}

impl Flood {
    /// Connects and sends the connection preface with `settings`, or with empty settings.
    pub(crate) async fn connect(socket: &Path, reading: Reading, settings: Option<Vec<u8>>) -> Self {
        let (mut read, write) = UnixStream::connect(socket).await.unwrap().into_split();
        let reader = tokio::spawn(async move {
            let mut bytes = vec![0; 64 << 10];
            while reading == Reading::Everything && read.read(&mut bytes).await.is_ok_and(|count| count > 0) {
            }
            std::future::pending::<()>().await;
        });
        let mut flood = Self { write, reader, sent: 0, is_open: true };
        let hello = match settings {
            Some(settings) => [&HELLO[..24], &settings].concat(),
            None => HELLO.to_vec(),
        };
        flood.send(&hello).await;
        flood
    }

    /// Writes all bytes within 60 s. Stops early if the other end closes the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.send_until(bytes, Instant::now() + Duration::from_secs(60)).await;
    }

    /// Writes as many bytes as the other end takes before the deadline.
    async fn send_until(&mut self, mut bytes: &[u8], deadline: Instant) {
        while self.is_open && !bytes.is_empty() {
            match timeout_at(deadline, self.write.write(bytes)).await {
                Ok(Ok(count)) => {
                    self.sent += count as u64;
                    bytes = &bytes[count..];
                }
                Ok(Err(_)) => self.is_open = false,
                Err(_) => return,
            }
        }
    }

    /// Writes chunks for `duration`, or until the other end closes the connection.
    pub(crate) async fn go_on(&mut self, duration: Duration, mut chunk: impl FnMut() -> Vec<u8>) {
        let deadline = Instant::now() + duration;
        while self.is_open && Instant::now() < deadline {
            self.send_until(&chunk(), deadline).await;
        }
    }

    /// Leaves the connection unchanged for `duration`.
    pub(crate) async fn hold(&mut self, duration: Duration) {
        sleep(duration).await;
    }

    /// Writes all bytes, but stops after `duration`.
    pub(crate) async fn send_within(&mut self, bytes: &[u8], duration: Duration) {
        let _ = timeout(duration, self.send(bytes)).await;
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
