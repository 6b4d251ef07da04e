//! The thread that writes.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::file::{Changes, StateFile, WriteError};
use super::{CloseError, StateTable};

/// When it is tried again where the disk has not taken something, unless there is something new before.
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Interval of checks that the file still exists, while nothing changes.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What the thread is told.
pub(super) enum Message {
    /// A value is another, or no more.
    Change(StateTable, String, Option<Vec<u8>>),
    /// Somebody waits for what was told before.
    Flush(oneshot::Sender<()>),
    /// Nothing more is told.
    Close(oneshot::Sender<Result<(), CloseError>>),
}

/// Writes what it is told.
pub(super) struct StateWriter {
    file: StateFile,
    error_tx: watch::Sender<Option<String>>,
    /// What is not on disk yet.
    pending: Changes,
    flush_waiters: Vec<oneshot::Sender<()>>,
    closes: Option<oneshot::Sender<Result<(), CloseError>>>,
    /// The words of the last panic of the database.
    panic: Option<String>,
}

impl StateWriter {
    pub(super) fn new(file: StateFile, error_tx: watch::Sender<Option<String>>) -> Self {
        Self { file, error_tx, pending: Changes::new(), flush_waiters: Vec::new(), closes: None, panic: None }
    }

    /// Writes until it is closed, or nobody is left to tell anything.
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
            warn!(changes = pending.len(), "what was to outlive probeshim was not written");
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
        // A file that was removed is written anew also where nothing has changed.
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
