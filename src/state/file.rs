//! The file itself.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::Table;
use crate::socket::{Lock, LockError};

/// What this probeshim writes, and the newest that it reads.
const VERSION: u64 = 1;

/// What the system says of a file that is not what it should be.
const CUT_OFF: [io::ErrorKind; 2] = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];

const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// Why what was kept is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A thread is not to be had.
    #[error("cannot start: {0}")]
    System(#[source] io::Error),
    /// A newer probeshim has written it.
    #[error("{} is of version {found}, and this probeshim knows version {VERSION} alone: use the newer one, or another folder", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// It is not what was written.
    #[error(
        "what was kept is damaged ({0}); move it away to begin anew: what runs is left as it is then, and told of"
    )]
    Damaged(String),
}

/// The file, held.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    /// It is opened again where writing has failed.
    database: Option<Database>,
    _lock: Lock,
}

/// Changes by tables and keys; `None` for what is no more.
pub(super) type Changes = BTreeMap<(Table, String), Option<Vec<u8>>>;

type Values = Vec<(Table, String, Vec<u8>)>;

impl File {
    /// Takes the file and reads all of it.
    pub(super) fn open(folder: &Path) -> Result<(Self, Values), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::File { path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let made = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::other("is not a folder; name one, or a place for one"),
            _ => error,
        });
        made.map_err(failed(folder))?;
        let folder = folder.canonicalize().map_err(failed(folder))?;
        let path = path(&folder);
        let lock = Lock::take(&path)?;
        if !fs::exists(&path).map_err(failed(&path))? {
            make(&path)
                .map_err(|error| StateError::File { path: path.clone(), source: io::Error::other(error) })?;
        }
        // What is damaged may be so in ways that its reader does not expect.
        let read = catch_unwind(|| {
            let database = open(&path)?;
            let values = values(&database)?;
            Ok::<_, redb::Error>((database, values))
        });
        let damaged = |reason: String| StateError::Damaged(format!("{}: {reason}", path.display()));
        let (database, (version, values)) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(redb::Error::Io(source))) if !CUT_OFF.contains(&source.kind()) => {
                return Err(StateError::File { path, source });
            }
            Ok(Err(error)) => return Err(damaged(error.to_string())),
            Err(_) => return Err(damaged("it cannot be read".to_owned())),
        };
        match version {
            Some(VERSION) => Ok((Self { path, database: Some(database), _lock: lock }, values)),
            Some(found) if found > VERSION => Err(StateError::Newer { path, found }),
            _ => Err(damaged("it has no version".to_owned())),
        }
    }

    /// Where it is.
    pub(super) fn folder(&self) -> PathBuf {
        self.path.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Has changes on disk, all of them or none.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), redb::Error> {
        let written = self.try_to_write(changes);
        if written.is_err() {
            self.give_up();
        }
        written
    }

    /// After a failure what is open is of no use any more: it is opened again where something is written.
    pub(super) fn give_up(&mut self) {
        self.database = None;
    }

    fn try_to_write(&mut self, changes: &Changes) -> Result<(), redb::Error> {
        let database = match &self.database {
            Some(database) => database,
            None => self.database.insert(open(&self.path)?),
        };
        let writing = database.begin_write()?;
        for ((table, key), value) in changes {
            let mut table = writing.open_table(definition(*table))?;
            match value {
                Some(value) => drop(table.insert(key.as_str(), value.as_slice())?),
                None => drop(table.remove(key.as_str())?),
            }
        }
        Ok(writing.commit()?)
    }
}

/// The file below a folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("state.redb")
}

/// Makes the file under another name first, so that it is whole once it is there.
fn make(path: &Path) -> Result<(), redb::Error> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
    let database = Database::builder().create_with_backend(FileBackend::new(file)?)?;
    let writing = database.begin_write()?;
    writing.open_table(ABOUT)?.insert("version", VERSION)?;
    for table in Table::ALL {
        writing.open_table(definition(table))?;
    }
    writing.commit()?;
    drop(database);
    fs::rename(&new, path)?;
    let folder = path.parent().map(fs::File::open).transpose()?;
    Ok(folder.map(|folder| folder.sync_all()).transpose().map(drop)?)
}

fn open(path: &Path) -> Result<Database, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // It may have been put back from elsewhere.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Database::builder().create_with_backend(FileBackend::new(file)?)
}

/// Its version, if it has one, and everything in it.
fn values(database: &Database) -> Result<(Option<u64>, Values), redb::Error> {
    let reading = database.begin_read()?;
    let version = reading.open_table(ABOUT)?.get("version")?.map(|version| version.value());
    let mut values = Vec::new();
    if version != Some(VERSION) {
        return Ok((version, values));
    }
    for table in Table::ALL {
        for entry in reading.open_table(definition(table))?.iter()? {
            let (key, value) = entry?;
            values.push((table, key.value().to_owned(), value.value().to_owned()));
        }
    }
    Ok((version, values))
}

fn definition(table: Table) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(table.name())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Somebody else has written it.
    pub(in crate::state) fn set_version(path: &Path, version: u64) {
        let database = open(path).unwrap();
        let writing = database.begin_write().unwrap();
        writing.open_table(ABOUT).unwrap().insert("version", version).unwrap();
        writing.commit().unwrap();
    }
}
