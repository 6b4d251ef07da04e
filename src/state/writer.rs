//! The thread that writes changes to the state file.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::error::WriteError;
use super::file::{Changes, StateFile};
use super::{CloseError, StateTable};

/// Delay before a failed write is repeated, unless another change arrives earlier.
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Interval between checks that the file still exists, while nothing changes.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A message to the writer.
pub(super) enum Message {
    /// Replaces a value, or removes it.
    Change(StateTable, String, Option<Vec<u8>>),
    /// Requests a notice once all earlier changes are on disk or have failed.
    Flush(oneshot::Sender<()>),
    /// Requests the close of the file. No message follows.
    Close(oneshot::Sender<Result<(), CloseError>>),
}

/// Writes changes to the state file.
pub(super) struct StateWriter {
    file: StateFile,
    error_tx: watch::Sender<Option<String>>,
    /// Changes that are not on disk yet.
    pending: Changes,
    flush_waiters: Vec<oneshot::Sender<()>>,
    closes: Option<oneshot::Sender<Result<(), CloseError>>>,
    /// Message of the last panic of the database.
    panic: Option<String>,
}

impl StateWriter {
    pub(super) fn new(file: StateFile, error_tx: watch::Sender<Option<String>>) -> Self {
        Self { file, error_tx, pending: Changes::new(), flush_waiters: Vec::new(), closes: None, panic: None }
    }

    /// Writes changes until the store is closed or all senders are dropped.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        while self.closes.is_none() {
            let pause = if self.pending.is_empty() { REMOVAL_CHECK_INTERVAL } else { WRITE_RETRY_DELAY };
            let first = messages.recv_timeout(pause);
            let is_over = matches!(first, Err(RecvTimeoutError::Disconnected));
            for message in first.into_iter().chain(messages.try_iter()) {
                self.take(message);
            }
            self.save();
            for waiting in self.flush_waiters.drain(..) {
                let _ = waiting.send(());
            }
            if is_over {
                break;
            }
        }
        let Self { file, closes, pending, panic, .. } = self;
        if !pending.is_empty() {
            warn!(changes = pending.len(), "state changes lost: they could not be written");
        }
        let closed = match (file.close(), panic) {
            (Ok(()), None) => Ok(()),
            (Err(error), _) => Err(CloseError(error.to_string())),
            (Ok(()), Some(panic)) => Err(CloseError(panic)),
        };
        if let Some(closes) = closes {
            let _ = closes.send(closed);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Change(table, key, value) => drop(self.pending.insert((table, key), value)),
            Message::Flush(waiting) => self.flush_waiters.push(waiting),
            Message::Close(closed) => self.closes = Some(closed),
        }
    }

    fn save(&mut self) {
        // A removed file is written again even if nothing has changed.
        if self.pending.is_empty() && self.error_tx.borrow().is_none() && !self.file.is_removed() {
            return;
        }
        let trouble = match self.file.write(&self.pending) {
            Ok(()) => {
                self.pending.clear();
                self.panic = None;
                None
            }
            Err(error) => {
                if let WriteError::Panic(message) = &error {
                    self.panic = Some(message.clone());
                }
                Some(error.to_string())
            }
        };
        self.error_tx.send_if_modified(|known| {
            let is_new = *known != trouble;
            *known = trouble;
            is_new
        });
    }
}

#[cfg(test)]
mod tests;
