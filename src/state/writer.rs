//! The thread that writes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::Table;
use super::file::{Changes, File};

/// When it is tried again where the disk has not taken something, unless there is something new before.
const RETRY: Duration = Duration::from_secs(5);

/// What the thread is told.
pub(super) enum Message {
    /// A value is another, or no more.
    Change(Table, String, Option<Vec<u8>>),
    /// Somebody waits for what was told before.
    Settle(oneshot::Sender<()>),
    /// Nothing more is told.
    Close(oneshot::Sender<()>),
}

/// Writes what it is told.
pub(super) struct Writer {
    file: File,
    troubles: watch::Sender<Option<String>>,
    /// What is not on disk yet.
    unsaved: Changes,
    waiting: Vec<oneshot::Sender<()>>,
    closes: Option<oneshot::Sender<()>>,
}

impl Writer {
    pub(super) fn new(file: File, troubles: watch::Sender<Option<String>>) -> Self {
        Self { file, troubles, unsaved: Changes::new(), waiting: Vec::new(), closes: None }
    }

    /// Writes until it is closed, or nobody is left to tell anything.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        while self.closes.is_none() {
            let first = if self.unsaved.is_empty() {
                messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                messages.recv_timeout(RETRY)
            };
            let is_over = matches!(first, Err(RecvTimeoutError::Disconnected));
            for message in first.into_iter().chain(messages.try_iter()) {
                self.take(message);
            }
            self.save();
            for waiting in self.waiting.drain(..) {
                let _ = waiting.send(());
            }
            if is_over {
                break;
            }
        }
        let Self { file, closes, unsaved, .. } = self;
        if !unsaved.is_empty() {
            warn!(changes = unsaved.len(), "what was to outlive probeshim was not written");
        }
        drop(file);
        if let Some(closed) = closes {
            let _ = closed.send(());
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Change(table, key, value) => drop(self.unsaved.insert((table, key), value)),
            Message::Settle(waiting) => self.waiting.push(waiting),
            Message::Close(closed) => self.closes = Some(closed),
        }
    }

    fn save(&mut self) {
        if self.unsaved.is_empty() {
            return;
        }
        let written = catch_unwind(AssertUnwindSafe(|| self.file.write(&self.unsaved)));
        let trouble = match written {
            Ok(Ok(())) => {
                self.unsaved.clear();
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => {
                self.file.give_up();
                Some("a fault of what writes it".to_owned())
            }
        };
        self.troubles.send_if_modified(|known| {
            let is_new = *known != trouble;
            *known = trouble;
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_disk_does_not_take_is_held_and_told_of_and_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let [folder, away] = ["state", "away"].map(|name| place.path().join(name));
        let (mut file, _) = File::open(&folder).unwrap();
        file.give_up();
        let (troubles, mut trouble) = watch::channel(None);
        let mut writer = Writer::new(file, troubles);
        let change = |key: &str| Message::Change(Table::Pods, key.to_owned(), Some(b"1".to_vec()));
        fs::rename(&folder, &away).unwrap();
        writer.take(change("a"));
        writer.save();
        let told = trouble.borrow_and_update().clone().unwrap();
        assert!(told.contains("No such file"), "{told}");
        writer.save();
        assert!(!trouble.has_changed().unwrap(), "it is told once");
        fs::rename(&away, &folder).unwrap();
        writer.take(change("b"));
        writer.save();
        assert_eq!(*trouble.borrow_and_update(), None);
        drop(writer);
        let (_file, values) = File::open(&folder).unwrap();
        assert_eq!(values, ["a", "b"].map(|key| (Table::Pods, key.to_owned(), b"1".to_vec())));
    }
}
