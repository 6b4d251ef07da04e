//! The file itself.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError};

use tracing::warn;

use super::{Table, quiet};
use crate::regular_file;
use crate::socket::{FileId, Lock, LockError};
use crate::terminal::harmless;

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
    /// Identity of the file that is open for writing.
    id: FileId,
    lock: Lock,
}

/// Why changes are not on disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The database did not take them.
    #[error(transparent)]
    Database(#[from] redb::Error),
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Another probeshim has taken the folder after the file was removed.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The file was replaced.
    #[error("{} has been replaced by another file, which is left as it is; start probeshim again to use it", .0.display())]
    Replaced(PathBuf),
    /// The database panicked.
    #[error("its writer failed: {0}")]
    Panic(String),
}

/// Whether the file still has its name.
enum Presence {
    There,
    Removed,
    Replaced,
}

/// Changes by tables and keys; `None` for what is no more.
pub(super) type Changes = BTreeMap<(Table, String), Option<Vec<u8>>>;

type Values = Vec<(Table, String, Vec<u8>)>;

/// A file that was opened, its version if it has one, and everything in it.
type Opened = (Database, FileId, (Option<u64>, Values));

impl File {
    /// Takes the file and reads all of it.
    pub(super) fn open(folder: &Path) -> Result<(Self, Values), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::File { path, source }
        };
        let made = make_folder(folder);
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
        let read = quiet::catch(|| read(&path));
        let damaged = |reason: String| StateError::Damaged(format!("{}: {reason}", path.display()));
        let (database, id, (version, values)) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(redb::Error::Io(source)))
                if !CUT_OFF.contains(&source.kind()) && !regular_file::is_refusal(&source) =>
            {
                return Err(StateError::File { path, source });
            }
            Ok(Err(error)) => return Err(damaged(error.to_string())),
            Err(panic) => return Err(damaged(format!("it cannot be read, {}", harmless(&panic)))),
        };
        match version {
            Some(VERSION) => Ok((Self { path, database: Some(database), id, lock }, values)),
            Some(found) if found > VERSION => Err(StateError::Newer { path, found }),
            _ => Err(damaged("it has no version".to_owned())),
        }
    }

    /// Where it is.
    pub(super) fn folder(&self) -> PathBuf {
        self.path.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Has changes on disk, all of them or none.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), WriteError> {
        self.restore()?;
        let written = quiet::catch(|| self.try_to_write(changes));
        let written = match written {
            Ok(written) => written.map_err(WriteError::Database),
            Err(panic) => Err(WriteError::Panic(panic)),
        };
        if written.is_err() {
            self.give_up();
        }
        written
    }

    /// After a failure what is open is of no use any more: it is opened again where something is written.
    pub(super) fn give_up(&mut self) {
        let database = self.database.take();
        // A database writes as it is closed.
        let _ = quiet::catch(|| drop(database));
    }

    /// Closes the file.
    pub(super) fn close(mut self) -> Result<(), WriteError> {
        let database = self.database.take();
        quiet::catch(|| drop(database)).map_err(WriteError::Panic)
    }

    /// Whether the file was removed, with or without its folder.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self.presence(), Ok(Presence::Removed))
    }

    fn presence(&self) -> io::Result<Presence> {
        match FileId::named(&self.path) {
            Ok(named) if named == self.id => Ok(Presence::There),
            Ok(_) => Ok(Presence::Replaced),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(Presence::Removed),
            Err(other) => Err(other),
        }
    }

    /// Writes the file anew, with all that was in it, where it was removed: what is written to a file without a name is lost at the end.
    fn restore(&mut self) -> Result<(), WriteError> {
        match self.presence()? {
            Presence::There => return Ok(()),
            Presence::Replaced => return Err(WriteError::Replaced(self.path.clone())),
            Presence::Removed => {}
        }
        // Where writing has failed before, nothing is left of it to read.
        let Some(database) = &self.database else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "No such file or directory").into());
        };
        let (_, values) = quiet::catch(|| values(database)).map_err(WriteError::Panic)??;
        let folder = self.folder();
        make_folder(&folder)?;
        if !self.lock.is_in_place() {
            self.lock = Lock::take(&self.path)?;
        }
        // Somebody else may have put it there before the lock was taken.
        if fs::exists(&self.path)? {
            return Err(WriteError::Replaced(self.path.clone()));
        }
        quiet::catch(|| make(&self.path)).map_err(WriteError::Panic)??;
        let (database, id) = open(&self.path).map_err(redb::Error::from)?;
        self.give_up();
        (self.database, self.id) = (Some(database), id);
        let changes = values.into_iter().map(|(table, key, value)| ((table, key), Some(value))).collect();
        quiet::catch(|| self.try_to_write(&changes)).map_err(WriteError::Panic)??;
        warn!(path = %self.path.display(), "what is to outlive probeshim was removed by somebody else, and is written anew");
        Ok(())
    }

    fn try_to_write(&mut self, changes: &Changes) -> Result<(), redb::Error> {
        let database = match &self.database {
            Some(database) => database,
            None => self.database.insert(open(&self.path)?.0),
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

/// Makes a folder for its owner alone, where it is missing.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn open(path: &Path) -> Result<(Database, FileId), DatabaseError> {
    // Neither the mode nor the content of a device or a FIFO is changed.
    let file = regular_file::open_for_writing(path)?;
    // It may have been put back from elsewhere.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let id = FileId::of(&file.metadata()?);
    Ok((Database::builder().create_with_backend(FileBackend::new(file)?)?, id))
}

/// Opens a file, checks every page of it, and reads all of it. A page that is damaged would else be found later, or never.
fn read(path: &Path) -> Result<Opened, redb::Error> {
    let (mut database, id) = open(path)?;
    if !database.check_integrity()? {
        let path = path.display();
        warn!(%path, "it was damaged, and has been repaired: what was written last may be missing");
    }
    let values = values(&database)?;
    Ok((database, id, values))
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
        let opened = match reading.open_table(definition(table)) {
            // The file is older than the table.
            Err(TableError::TableDoesNotExist(_)) if table == Table::SubPathMounts => continue,
            opened => opened?,
        };
        for entry in opened.iter()? {
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
        let (database, _) = open(path).unwrap();
        let writing = database.begin_write().unwrap();
        writing.open_table(ABOUT).unwrap().insert("version", version).unwrap();
        writing.commit().unwrap();
    }

    /// A probeshim has written the file that did not have the table yet.
    pub(in crate::state) fn remove_table(path: &Path, table: Table) {
        let (database, _) = open(path).unwrap();
        let writing = database.begin_write().unwrap();
        assert!(writing.delete_table(definition(table)).unwrap());
        writing.commit().unwrap();
    }
}
