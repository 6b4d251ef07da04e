//! The thread that writes.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::file::{Changes, File, WriteError};
use super::{CloseError, Table};

/// When it is tried again where the disk has not taken something, unless there is something new before.
const RETRY: Duration = Duration::from_secs(5);

/// From one look at whether the file is still there to the next, while nothing changes.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What the thread is told.
pub(super) enum Message {
    /// A value is another, or no more.
    Change(Table, String, Option<Vec<u8>>),
    /// Somebody waits for what was told before.
    Settle(oneshot::Sender<()>),
    /// Nothing more is told.
    Close(oneshot::Sender<Result<(), CloseError>>),
}

/// Writes what it is told.
pub(super) struct Writer {
    file: File,
    troubles: watch::Sender<Option<String>>,
    /// What is not on disk yet.
    unsaved: Changes,
    waiting: Vec<oneshot::Sender<()>>,
    closes: Option<oneshot::Sender<Result<(), CloseError>>>,
    /// The words of the last panic of the database.
    panic: Option<String>,
}

impl Writer {
    pub(super) fn new(file: File, troubles: watch::Sender<Option<String>>) -> Self {
        Self { file, troubles, unsaved: Changes::new(), waiting: Vec::new(), closes: None, panic: None }
    }

    /// Writes until it is closed, or nobody is left to tell anything.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        while self.closes.is_none() {
            let pause = if self.unsaved.is_empty() { REMOVAL_CHECK_INTERVAL } else { RETRY };
            let first = messages.recv_timeout(pause);
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
        let Self { file, closes, unsaved, panic, .. } = self;
        if !unsaved.is_empty() {
            warn!(changes = unsaved.len(), "what was to outlive probeshim was not written");
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
            Message::Change(table, key, value) => drop(self.unsaved.insert((table, key), value)),
            Message::Settle(waiting) => self.waiting.push(waiting),
            Message::Close(closed) => self.closes = Some(closed),
        }
    }

    fn save(&mut self) {
        // A file that was removed is written anew also where nothing has changed.
        if self.unsaved.is_empty() && self.troubles.borrow().is_none() && !self.file.is_removed() {
            return;
        }
        let trouble = match self.file.write(&self.unsaved) {
            Ok(()) => {
                self.unsaved.clear();
                self.panic = None;
                None
            }
            Err(error) => {
                if let WriteError::Panic(words) = &error {
                    self.panic = Some(words.clone());
                }
                Some(error.to_string())
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

    #[test]
    fn a_file_that_is_removed_is_written_anew_with_all_that_was_in_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("state");
        let (file, _) = File::open(&folder).unwrap();
        let (troubles, trouble) = watch::channel(None);
        let mut writer = Writer::new(file, troubles);
        let change = |key: &str| Message::Change(Table::Pods, key.to_owned(), Some(b"1".to_vec()));
        writer.take(change("a"));
        writer.save();
        fs::remove_dir_all(&folder).unwrap();
        writer.save();
        assert!(folder.join("state.redb").exists(), "also where nothing has changed");
        fs::remove_file(folder.join("state.redb")).unwrap();
        writer.take(change("b"));
        writer.save();
        assert_eq!(*trouble.borrow(), None);
        drop(writer);
        let (_file, values) = File::open(&folder).unwrap();
        assert_eq!(values, ["a", "b"].map(|key| (Table::Pods, key.to_owned(), b"1".to_vec())));
    }

    #[test]
    fn a_file_that_is_replaced_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state.redb");
        let (file, _) = File::open(place.path()).unwrap();
        let (troubles, trouble) = watch::channel(None);
        let mut writer = Writer::new(file, troubles);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        writer.take(Message::Change(Table::Pods, "a".to_owned(), None));
        writer.save();
        let told = trouble.borrow().clone().unwrap();
        assert!(told.contains("state.redb has been replaced by another file"), "{told}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
