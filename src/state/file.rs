//! The file itself.

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

use super::overlay::Overlay;
use super::{StateTable, quiet};
use crate::file_id::FileId;
use crate::format_version;
use crate::lockfile::{LockError, LockFile};
use crate::regular_file::{self, sync_parent_dir};
use crate::terminal::sanitize;

/// Format version of the file: names of tables and the JSON of values. Raise it with every change that this probeshim or
/// an older one would misread; files of other versions are set aside.
const VERSION: u64 = 1;

/// What the system says of a file that is not what it should be.
const CORRUPTION_KINDS: [io::ErrorKind; 2] = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];

const META_TABLE: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

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
        /// The error of the operating system.
        source: io::Error,
    },
    /// A thread is not to be had.
    #[error("cannot start: {0}")]
    System(#[source] io::Error),
    /// It is not what was written.
    #[error(
        "what was kept is damaged ({0}); move it away to begin anew: what runs is left as it is then, and told of"
    )]
    Damaged(String),
}

/// The file, held.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// The file behind the database: it can be read when it was removed, and when the database has failed.
    handle: fs::File,
    /// `None` after a failure: the library refuses every use of a database that has failed once. It is opened
    /// again from `handle`.
    database: Option<Database>,
    lock: LockFile,
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

/// Format version of a file.
enum FileVersion {
    /// The version of this probeshim.
    Current,
    /// Another version, or none. The file is whole.
    Other(Option<u64>),
    /// The file is damaged, empty or missing: its version is found when it is opened, if at all.
    Unknown,
}

/// Changes by tables and keys; `None` for what is no more.
pub(super) type Changes = BTreeMap<(StateTable, String), Option<Vec<u8>>>;

type Values = Vec<(StateTable, String, Vec<u8>)>;

/// Content of the file: its version if it has one, and all values.
type StateContent = (Option<u64>, Values);

impl StateFile {
    /// Takes the file and reads all of it.
    pub(super) fn open(dir: &Path) -> Result<(Self, Values), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::File { path, source }
        };
        let created = create_dir(dir);
        let created = created.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::other("is not a folder; name one, or a place for one"),
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
        // The database library would write a database into it.
        if fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            return Err(damaged("it is empty".to_owned()));
        }
        // What is damaged may be so in ways that its reader does not expect.
        let read = quiet::catch(|| read(&path));
        let (handle, database, (version, values)) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(redb::Error::Io(source)))
                if !CORRUPTION_KINDS.contains(&source.kind()) && !regular_file::is_refusal(&source) =>
            {
                return Err(StateError::File { path, source });
            }
            Ok(Err(error)) => return Err(damaged(error.to_string())),
            Err(panic) => return Err(damaged(format!("it cannot be read, {}", sanitize(&panic)))),
        };
        match version {
            Some(VERSION) => Ok((Self { path, handle, database: Some(database), lock }, values)),
            // Only a repair can bring it to light: whole files of other versions were set aside.
            _ => Err(damaged("it has another format version".to_owned())),
        }
    }

    /// Where it is.
    pub(super) fn dir(&self) -> PathBuf {
        self.path.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Has changes on disk, all of them or none.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<(), WriteError> {
        self.restore()?;
        self.with_database(|database| apply(database, changes))
    }

    /// Uses the database, which is closed after a failure.
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
        match FileId::from_path(&self.path) {
            Ok(named) if named == FileId::from_metadata(&self.handle.metadata()?) => Ok(Presence::There),
            Ok(_) => Ok(Presence::Replaced),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(Presence::Removed),
            Err(other) => Err(other),
        }
    }

    /// Writes the file again with its whole content if it was removed: a file without a name is lost when it
    /// is closed.
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
        // Another process may have created one before the lock was taken.
        if fs::exists(&self.path)? {
            return Err(WriteError::Replaced(self.path.clone()));
        }
        // The removed file is given up only once another holds all values: until then it is the only copy.
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

/// The file below a folder.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("state.redb")
}

/// Name of a state file that is still being written.
fn new_path(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Creates an empty state file. It is written under another name first, so that it is whole once it has its
/// own.
fn make(path: &Path) -> Result<(), redb::Error> {
    let new = new_path(path);
    drop(create(&new, &Values::new())?);
    fs::rename(&new, path)?;
    Ok(sync_parent_dir(path)?)
}

/// Creates a file with these values and has it on disk.
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

/// Makes a folder for its owner alone, where it is missing.
fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn open(path: &Path) -> Result<(fs::File, Database), DatabaseError> {
    // Neither the mode nor the content of a device or a FIFO is changed.
    let file = regular_file::open_for_writing(path)?;
    // It may have been put back from elsewhere.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let database = database_in(&file)?;
    Ok((file, database))
}

/// Opens the database in a file.
fn database_in(file: &fs::File) -> Result<Database, DatabaseError> {
    Database::builder().create_with_backend(FileBackend::new(file.try_clone()?)?)
}

/// Opens a file, checks every page of it, and reads all of it. A page that is damaged would else be found
/// later, or never.
fn read(path: &Path) -> Result<(fs::File, Database, StateContent), redb::Error> {
    let (file, mut database) = open(path)?;
    if !database.check_integrity()? {
        let path = path.display();
        warn!(%path, "it was damaged, and has been repaired: what was written last may be missing");
    }
    let content = values(&database)?;
    Ok((file, database, content))
}

/// Reads the format version of a file. The file is not changed, also where a crash has left it open.
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

/// Format version of a database, if it has one.
fn version(database: &Database) -> Result<Option<u64>, redb::Error> {
    match database.begin_read()?.open_table(META_TABLE) {
        Ok(about) => Ok(about.get("version")?.map(|version| version.value())),
        Err(TableError::Storage(error)) => Err(error.into()),
        // Another program's, or of a version that notes it elsewhere.
        Err(_) => Ok(None),
    }
}

/// Returns the version of a database, if it has one, and everything in it.
fn values(database: &Database) -> Result<StateContent, redb::Error> {
    let version = version(database)?;
    let reading = database.begin_read()?;
    let mut values = Vec::new();
    if version != Some(VERSION) {
        return Ok((version, values));
    }
    for table in StateTable::ALL {
        let opened = match reading.open_table(definition(table)) {
            // The file is older than the table.
            Err(TableError::TableDoesNotExist(_)) if table == StateTable::SubPathMounts => continue,
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
pub(super) mod tests {
    use super::*;

    /// Changes the version of a file, or removes it with its table.
    pub(in crate::state) fn set_version(path: &Path, version: Option<u64>) {
        let (_file, database) = open(path).unwrap();
        let writing = database.begin_write().unwrap();
        match version {
            Some(version) => {
                drop(writing.open_table(META_TABLE).unwrap().insert("version", version).unwrap());
            }
            None => assert!(writing.delete_table(META_TABLE).unwrap()),
        }
        writing.commit().unwrap();
    }

    /// Does to a file what a probeshim does that ends without closing it. Returns the bytes that it leaves.
    pub(in crate::state) fn bytes_after_crash(path: &Path) -> Vec<u8> {
        let (_file, database) = open(path).unwrap();
        let writing = database.begin_write().unwrap();
        writing.open_table(definition(StateTable::Pods)).unwrap().insert("crashed", &b"1"[..]).unwrap();
        writing.commit().unwrap();
        fs::read(path).unwrap()
    }

    /// A probeshim has written the file that did not have the table yet.
    pub(in crate::state) fn remove_table(path: &Path, table: StateTable) {
        let (_file, database) = open(path).unwrap();
        let writing = database.begin_write().unwrap();
        assert!(writing.delete_table(definition(table)).unwrap());
        writing.commit().unwrap();
    }
}
