//! The state file: its lock, its format version, and its database.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition,
    TableError,
};
use tracing::warn;

use super::error::{StateError, WriteError};
use super::overlay::Overlay;
use super::{StateTable, quiet};
use crate::file_id::FileId;
use crate::format_version;
use crate::lockfile::LockFile;
use crate::regular_file::{self, sync_parent_dir};
use crate::terminal::sanitize;

/// Format version of the file: the names of tables and the JSON of values. Raise it with every
/// change that this or an older probeshim would misread; files of other versions are set aside.
const VERSION: u64 = 1;

/// Kinds of I/O errors that mean a damaged file.
const CORRUPTION_KINDS: [io::ErrorKind; 2] = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];

const META_TABLE: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// The open and locked state file.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Handle of the file behind the database. It remains readable after the file was removed, and
    /// after the database has failed.
    handle: fs::File,
    /// The database; `None` after a failure. The library refuses every use of a database that has
    /// failed once, so the database is opened again from `handle`.
    database: Option<Database>,
    lock: LockFile,
}

/// Whether the path still names the file.
enum Presence {
    There,
    Removed,
    Replaced,
}

/// Format version of a file, compared with this probeshim's.
enum FileVersion {
    /// The version of this probeshim.
    Current,
    /// Another version, or none. The file is intact.
    Other(Option<u64>),
    /// The file is damaged, empty or missing. Its version is found when the file is opened, if at
    /// all.
    Unknown,
}

/// Changes by tables and keys; `None` removes a value.
pub(super) type Changes = BTreeMap<(StateTable, String), Option<Vec<u8>>>;

type Values = Vec<(StateTable, String, Vec<u8>)>;

/// Content of the file: its version, if it has one, and all values.
type StateContent = (Option<u64>, Values);

impl StateFile {
    /// Opens and locks the file, and reads all of it. Creates a missing file. Sets a file of
    /// another version aside.
    pub(super) fn open(dir: &Path) -> Result<(Self, Values), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::File { path, source }
        };
        let created = create_dir(dir);
        let created = created.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                io::Error::other("is not a directory; name a directory or a path that does not exist")
            }
            _ => error,
        });
        created.map_err(failed(dir))?;
        let dir = dir.canonicalize().map_err(failed(dir))?;
        let path = path(&dir);
        let lock = LockFile::acquire(&path)?;
        if let FileVersion::Other(found) = version_of(&path) {
            format_version::set_aside(&path, found, VERSION).map_err(failed(&path))?;
        }
        if !fs::exists(&path).map_err(failed(&path))? {
            make(&path)
                .map_err(|error| StateError::File { path: path.clone(), source: io::Error::other(error) })?;
        }
        let damaged = |reason: String| StateError::Damaged(format!("{}: {reason}", path.display()));
        // The database library would create a database in an empty file.
        if fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            return Err(damaged("it is empty".to_owned()));
        }
        // The library may panic on a damaged file.
        let read = quiet::catch(|| read(&path));
        let (handle, database, (version, values)) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(redb::Error::Io(source)))
                if !CORRUPTION_KINDS.contains(&source.kind()) && !regular_file::is_refusal(&source) =>
            {
                return Err(StateError::File { path, source });
            }
            Ok(Err(error)) => return Err(damaged(error.to_string())),
            Err(panic) => return Err(damaged(format!("it cannot be read: {}", sanitize(&panic)))),
        };
        match version {
            Some(VERSION) => Ok((Self { path, handle, database: Some(database), lock }, values)),
            // Only a repair can reveal another version here: intact files of other versions were
            // set aside.
            _ => Err(damaged("it has another format version".to_owned())),
        }
    }

    /// Returns the directory of the file.
    pub(super) fn dir(&self) -> PathBuf {
        self.path.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Writes all changes to disk, or none of them.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), WriteError> {
        self.restore()?;
        self.with_database(|database| apply(database, changes))
    }

    /// Runs `work` with the database. Closes the database after a failure.
    fn with_database<T>(
        &mut self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, WriteError> {
        let done = quiet::catch(|| {
            let database = match self.database.take() {
                Some(database) => database,
                None => database_in(&self.handle)?,
            };
            work(self.database.insert(database))
        });
        let done = match done {
            Ok(done) => done.map_err(WriteError::Database),
            Err(panic) => Err(WriteError::Panic(panic)),
        };
        if done.is_err() {
            self.give_up();
        }
        done
    }

    /// Closes the database after a failure. The next use opens it again.
    pub(super) fn give_up(&mut self) {
        let database = self.database.take();
        // The library writes to a database as it closes it.
        let _ = quiet::catch(|| drop(database));
    }

    /// Closes the file.
    pub(super) fn close(mut self) -> Result<(), WriteError> {
        let database = self.database.take();
        quiet::catch(|| drop(database)).map_err(WriteError::Panic)
    }

    /// Returns whether the file was removed, with or without its directory.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self.presence(), Ok(Presence::Removed))
    }

    fn presence(&self) -> io::Result<Presence> {
        match FileId::from_path(&self.path) {
            Ok(named) if named == FileId::from_metadata(&self.handle.metadata()?) => Ok(Presence::There),
            Ok(_) => Ok(Presence::Replaced),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(Presence::Removed),
            Err(other) => Err(other),
        }
    }

    /// Writes the file again with its whole content if it was removed: the content of a file
    /// without a name is lost when the file is closed.
    fn restore(&mut self) -> Result<(), WriteError> {
        match self.presence()? {
            Presence::There => return Ok(()),
            Presence::Replaced => return Err(WriteError::Replaced(self.path.clone())),
            Presence::Removed => {}
        }
        let (_, values) = self.with_database(values)?;
        create_dir(&self.dir())?;
        if !self.lock.is_in_place() {
            self.lock = LockFile::acquire(&self.path)?;
        }
        // Another process may have created a file before the lock was taken.
        if fs::exists(&self.path)? {
            return Err(WriteError::Replaced(self.path.clone()));
        }
        // The removed file is the only copy until another file has all values, so it stays open
        // until then.
        let new = new_path(&self.path);
        let written = quiet::catch(|| create(&new, &values)).map_err(WriteError::Panic);
        let named = written.and_then(|written| {
            let written = written?;
            fs::rename(&new, &self.path)?;
            Ok(written)
        });
        let (handle, database) = named.inspect_err(|_| drop(fs::remove_file(&new)))?;
        self.give_up();
        (self.handle, self.database) = (handle, Some(database));
        warn!(path = %self.path.display(), "another process removed the state file; it was written again with its whole content");
        Ok(sync_parent_dir(&self.path)?)
    }
}

/// Returns the path of the state file in a directory.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("state.redb")
}

/// Returns the temporary path of a state file that is being written.
fn new_path(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Creates an empty state file. The file is written under a temporary name first, so that it is
/// complete once it has its final name.
fn make(path: &Path) -> Result<(), redb::Error> {
    let new = new_path(path);
    drop(create(&new, &Values::new())?);
    fs::rename(&new, path)?;
    Ok(sync_parent_dir(path)?)
}

/// Creates a file with these values, and writes it to disk.
fn create(path: &Path, values: &Values) -> Result<(fs::File, Database), redb::Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let database = database_in(&file)?;
    let writing = database.begin_write()?;
    writing.open_table(META_TABLE)?.insert("version", VERSION)?;
    for table in StateTable::ALL {
        writing.open_table(definition(table))?;
    }
    for (table, key, value) in values {
        writing.open_table(definition(*table))?.insert(key.as_str(), value.as_slice())?;
    }
    writing.commit()?;
    Ok((file, database))
}

fn apply(database: &Database, changes: &Changes) -> Result<(), redb::Error> {
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

/// Creates a missing directory with access for its owner only.
fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn open(path: &Path) -> Result<(fs::File, Database), DatabaseError> {
    // Neither the mode nor the content of a device or a FIFO is changed.
    let file = regular_file::open_for_writing(path)?;
    // The file may have been restored with another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let database = database_in(&file)?;
    Ok((file, database))
}

/// Opens the database in a file.
fn database_in(file: &fs::File) -> Result<Database, DatabaseError> {
    Database::builder().create_with_backend(FileBackend::new(file.try_clone()?)?)
}

/// Opens a file, checks all its pages, and reads all of it. Without the check, a damaged page would
/// be found later or never.
fn read(path: &Path) -> Result<(fs::File, Database, StateContent), redb::Error> {
    let (file, mut database) = open(path)?;
    if !database.check_integrity()? {
        let path = path.display();
        warn!(%path, "state file was damaged and has been repaired; the last changes may be missing");
    }
    let content = values(&database)?;
    Ok((file, database, content))
}

/// Reads the format version of a file. The file is not changed, even if a crash has left it open.
fn version_of(path: &Path) -> FileVersion {
    let read = quiet::catch(|| -> Result<Option<u64>, redb::Error> {
        let overlay = Overlay::new(regular_file::open(path)?)?;
        if overlay.len()? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut database = Database::builder().create_with_backend(overlay)?;
        let found = version(&database)?;
        if found == Some(VERSION) {
            return Ok(found);
        }
        // The page with the version may be damaged.
        database.check_integrity()?;
        version(&database)
    });
    match read {
        Ok(Ok(Some(VERSION))) => FileVersion::Current,
        Ok(Ok(found)) => FileVersion::Other(found),
        Ok(Err(_)) | Err(_) => FileVersion::Unknown,
    }
}

/// Returns the format version of a database, if it has one.
fn version(database: &Database) -> Result<Option<u64>, redb::Error> {
    match database.begin_read()?.open_table(META_TABLE) {
        Ok(about) => Ok(about.get("version")?.map(|version| version.value())),
        Err(TableError::Storage(error)) => Err(error.into()),
        // The database is another program's, or of a version that stores the version differently.
        Err(_) => Ok(None),
    }
}

/// Returns the version of a database, if it has one, and all its values.
fn values(database: &Database) -> Result<StateContent, redb::Error> {
    let version = version(database)?;
    let reading = database.begin_read()?;
    let mut values = Vec::new();
    if version != Some(VERSION) {
        return Ok((version, values));
    }
    for table in StateTable::ALL {
        let opened = match reading.open_table(definition(table)) {
            // The file was written before the table existed.
            Err(TableError::TableDoesNotExist(_))
                if matches!(table, StateTable::SubPathMounts | StateTable::UserNamespaces) =>
            {
                continue;
            }
            opened => opened?,
        };
        for entry in opened.iter()? {
            let (key, value) = entry?;
            values.push((table, key.value().to_owned(), value.value().to_owned()));
        }
    }
    Ok((version, values))
}

fn definition(table: StateTable) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(table.name())
}

#[cfg(test)]
pub(super) mod tests;
