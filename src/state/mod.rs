//! Stores values by their keys in one file below `--state-dir`. A crash at any byte leaves the old values or the
//! new ones.
//!
//! A thread of its own writes, many changes at once. What the disk does not take is held, told of, and tried
//! again: nothing is lost silently.
//!
//! The file has a format version. A file of another version is set aside under another name.

mod file;
mod overlay;
mod quiet;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::warn;

pub use file::StateError;
use file::StateFile;
use writer::{Message, StateWriter};

/// How long it is waited for the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// What is kept, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateTable {
    /// Pods that are played, by their uids.
    Pods,
    /// Containers that are ended for a probe, by their ids.
    ProbeKilled,
    /// What is waited before a container that ends is started again, by what it is.
    RestartBackoff,
    /// The same before an image is pulled again.
    ImageBackoff,
    /// When a kubelet was seen last.
    Kubelet,
    /// What came through the relay to make sandboxes, by the pods' uids, namespaces and names.
    Sandboxes,
    /// The same of containers, by those and their own names.
    Containers,
    /// Mounts of subPaths, by their mount points.
    SubPathMounts,
}

/// The way to what is kept. Copies share it.
#[derive(Clone, Debug)]
pub struct StateStore(Arc<StateStoreInner>);

#[derive(Debug)]
struct StateStoreInner {
    dir: PathBuf,
    messages: Sender<Message>,
    /// Why changes are not on disk, if they are not.
    trouble: watch::Receiver<Option<String>>,
}

/// The state was not closed in order, and may lack the last changes.
#[derive(Debug, thiserror::Error)]
#[error("the state may be incomplete: {0}")]
pub struct CloseError(String);

/// What was kept before.
pub struct Snapshot(Vec<(StateTable, String, Vec<u8>)>);

impl StateTable {
    const ALL: [Self; 8] = [
        Self::Pods,
        Self::ProbeKilled,
        Self::Kubelet,
        Self::RestartBackoff,
        Self::ImageBackoff,
        Self::Sandboxes,
        Self::Containers,
        Self::SubPathMounts,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::ProbeKilled => "condemned",
            Self::Kubelet => "kubelet",
            Self::RestartBackoff => "crashes",
            Self::ImageBackoff => "pulls",
            Self::Sandboxes => "sandboxes",
            Self::Containers => "containers",
            Self::SubPathMounts => "subpath_mounts",
        }
    }
}

impl StateStore {
    /// Opens what is kept below a folder, which is made where it is missing, for its owner alone. One
    /// probeshim at a time has it.
    pub fn open(dir: &Path) -> Result<(Self, Snapshot), StateError> {
        let (file, kept) = StateFile::open(dir)?;
        let dir = file.dir();
        let (messages, written) = channel();
        let (troubles, trouble) = watch::channel(None);
        let writer = StateWriter::new(file, troubles);
        let started = thread::Builder::new().name("state".to_owned()).spawn(move || writer.run(&written));
        started.map_err(StateError::System)?;
        Ok((Self(Arc::new(StateStoreInner { dir, messages, trouble })), Snapshot(kept)))
    }

    /// Whether anything was ever kept below a folder.
    #[must_use]
    pub fn exists(dir: &Path) -> bool {
        file::path(dir).exists()
    }

    /// The folder, without links.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Keeps a value from now on.
    pub fn upsert(&self, table: StateTable, key: &str, value: &impl Serialize) {
        // What is kept is of our own making: none of it cannot be written.
        if let Ok(value) = serde_json::to_vec(value) {
            self.send(Message::Change(table, key.to_owned(), Some(value)));
        }
    }

    /// Keeps it no more.
    pub fn remove(&self, table: StateTable, key: &str) {
        self.send(Message::Change(table, key.to_owned(), None));
    }

    /// Waits until what was changed before is on disk, or the disk has not taken it; for ten seconds at most,
    /// since a disk may hang.
    pub async fn flush(&self) {
        let (settled, wait) = oneshot::channel();
        self.send(Message::Flush(settled));
        if timeout(FLUSH_TIMEOUT, wait).await.is_err() {
            warn!("the state is not on disk yet: the disk is slow");
        }
    }

    /// Has everything on disk, as far as the disk takes it, and gives the file up: nothing is kept any more.
    /// Fails where the database panicked, or its thread did: what was kept may not be whole then.
    pub async fn close(&self) -> Result<(), CloseError> {
        let (closed, wait) = oneshot::channel();
        self.send(Message::Close(closed));
        wait.await.unwrap_or_else(|_| Err(CloseError("the thread that writes it has ended".to_owned())))
    }

    /// Why changes are not on disk, if they are not; it changes as that does.
    #[must_use]
    pub fn write_error(&self) -> watch::Receiver<Option<String>> {
        self.0.trouble.clone()
    }

    fn send(&self, message: Message) {
        // Once it is closed, nothing is kept.
        let _ = self.0.messages.send(message);
    }
}

impl fmt::Debug for Snapshot {
    /// There may be secrets in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.0.len())
    }
}

impl Snapshot {
    /// What there was of a kind, by its keys.
    pub fn entries<T: DeserializeOwned>(&self, table: StateTable) -> Result<Vec<(String, T)>, StateError> {
        let own = self.0.iter().filter(|(of, ..)| *of == table);
        let read = |(_, key, value): &(StateTable, String, Vec<u8>)| {
            let value = serde_json::from_slice(value);
            let value =
                value.map_err(|error| StateError::Damaged(format!("{} of {key}: {error}", table.name())))?;
            Ok((key.clone(), value))
        };
        own.map(read).collect()
    }
}

#[cfg(test)]
mod tests;
