//! Stores values by keys in one database file below `--state-dir`. A crash at any byte leaves
//! either the old values or the new ones.
//!
//! A separate thread writes, and combines changes that arrive together. Changes that cannot be
//! written are kept in memory, reported, and written again later: no change is lost silently.
//!
//! The file has a format version. A file of another version is set aside under another name.

mod error;
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

pub use error::StateError;
use file::StateFile;
use writer::{Message, StateWriter};

/// Timeout of a flush.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// A table of the state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateTable {
    /// Registered pods, by their uids.
    Pods,
    /// Containers that were killed for a failed probe, by their ids.
    ProbeKilled,
    /// Containers that were killed for a failed probe and whose restart has been tried, by their
    /// ids.
    RestartTried,
    /// Back-offs of container restarts, by pod, container, image and resources.
    RestartBackoff,
    /// Back-offs of image pulls, by the pod's uid and the image.
    ImageBackoff,
    /// Records of pulled images, by the runtime's references of the images.
    PulledImages,
    /// Pulls in flight, by the names of the images.
    PullIntents,
    /// Time at which a kubelet was last seen.
    Kubelet,
    /// Captured requests for sandboxes, by the uids, namespaces and names of the pods.
    Sandboxes,
    /// Captured requests for containers, by the uids, namespaces and names of the pods, and the
    /// names of the containers.
    Containers,
    /// Mounts of subPaths, by their mount points.
    SubPathMounts,
    /// First host ids of the user namespaces of pods, by the uids of the pods.
    UserNamespaces,
    /// Progress of workloads, by their kinds, namespaces and names.
    Workloads,
}

/// The state store. Clones share the database.
#[derive(Clone, Debug)]
pub struct StateStore(Arc<StateStoreInner>);

#[derive(Debug)]
struct StateStoreInner {
    dir: PathBuf,
    messages: Sender<Message>,
    /// Error of the last write; `None` if all changes are on disk.
    trouble: watch::Receiver<Option<String>>,
}

/// The state was not closed properly, and may lack the last changes.
#[derive(Debug, thiserror::Error)]
#[error("the state may be incomplete: {0}")]
pub struct CloseError(String);

/// The values in the store at the time of its opening.
pub struct Snapshot(Vec<(StateTable, String, Vec<u8>)>);

impl StateTable {
    const ALL: [Self; 13] = [
        Self::Pods,
        Self::ProbeKilled,
        Self::RestartTried,
        Self::Kubelet,
        Self::RestartBackoff,
        Self::ImageBackoff,
        Self::PulledImages,
        Self::PullIntents,
        Self::Sandboxes,
        Self::Containers,
        Self::SubPathMounts,
        Self::UserNamespaces,
        Self::Workloads,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::ProbeKilled => "condemned",
            Self::RestartTried => "restart_tried",
            Self::Kubelet => "kubelet",
            Self::RestartBackoff => "crashes",
            Self::ImageBackoff => "pulls",
            Self::PulledImages => "pulled_images",
            Self::PullIntents => "pull_intents",
            Self::Sandboxes => "sandboxes",
            Self::Containers => "containers",
            Self::SubPathMounts => "subpath_mounts",
            Self::UserNamespaces => "user_namespaces",
            Self::Workloads => "workloads",
        }
    }
}

impl StateStore {
    /// Opens the state store below a directory, and locks it against other instances of probeshim.
    /// A missing directory is created with access for its owner only.
    ///
    /// Fails if another probeshim has the lock, if the file cannot be read, or if it is damaged.
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

    /// Returns whether a directory contains a state store.
    #[must_use]
    pub fn exists(dir: &Path) -> bool {
        file::path(dir).exists()
    }

    /// Returns the directory, without symbolic links in its path.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Inserts or replaces a value. The value is written later: see `flush`.
    pub fn upsert(&self, table: StateTable, key: &str, value: &impl Serialize) {
        // Serialization of probeshim's own types does not fail.
        if let Ok(value) = serde_json::to_vec(value) {
            self.send(Message::Change(table, key.to_owned(), Some(value)));
        }
    }

    /// Removes a value.
    pub fn remove(&self, table: StateTable, key: &str) {
        self.send(Message::Change(table, key.to_owned(), None));
    }

    /// Waits until all earlier changes are on disk or have failed to be written. Gives up after ten
    /// seconds, because a disk may hang.
    pub async fn flush(&self) {
        let (settled, wait) = oneshot::channel();
        self.send(Message::Flush(settled));
        if timeout(FLUSH_TIMEOUT, wait).await.is_err() {
            warn!("state flush timed out: the disk is slow");
        }
    }

    /// Writes all changes, as far as the disk accepts them, and closes the file. Later changes are
    /// ignored. Fails if the database or the writer thread has panicked: the file may then be
    /// incomplete.
    pub async fn close(&self) -> Result<(), CloseError> {
        let (closed, wait) = oneshot::channel();
        self.send(Message::Close(closed));
        wait.await.unwrap_or_else(|_| Err(CloseError("the state writer thread has ended".to_owned())))
    }

    /// Returns a receiver of the error of the last write; `None` if all changes are on disk.
    #[must_use]
    pub fn write_error(&self) -> watch::Receiver<Option<String>> {
        self.0.trouble.clone()
    }

    fn send(&self, message: Message) {
        // After the store was closed, changes are ignored.
        let _ = self.0.messages.send(message);
    }
}

impl fmt::Debug for Snapshot {
    /// Omits the values, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.0.len())
    }
}

impl Snapshot {
    /// Returns the values of a table with their keys. Fails if a value is not of type `T`.
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
