//! Manifests in files and folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::manifest::{self, Manifest};
use crate::probe::manifests::Manifests;
use crate::probe::source::Source;

/// What files of manifests are called, other files of a folder are passed over.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Why the manifests of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file or folder cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is neither YAML nor JSON.
    #[error("{path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// It says what no manifest says.
    #[error("{path}{document}: {reason}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Which document of it, if there are several.
        document: String,
        /// What is wrong, and where.
        reason: String,
    },
}

/// Files and folders of manifests, as they were when they were looked at last.
#[derive(Clone, Debug, Default)]
pub struct Files {
    paths: Vec<PathBuf>,
    /// Whether commands are not shown in what is wrong.
    redacts: bool,
    /// In the order of the paths, and of the names in a folder.
    known: BTreeMap<(usize, PathBuf), Known>,
    /// What cannot be looked at, by the places of the paths.
    unreadable: Vec<(usize, String)>,
}

/// A file.
#[derive(Clone, Debug)]
struct Known {
    mark: Mark,
    manifests: Vec<Manifest>,
    problems: Vec<String>,
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Files {
    /// Reads them for the first time. Of a file that is named everything has to be right, or everything that is not is returned; what is
    /// wrong in a folder is left out, and is told of once they are watched: others depend on the rest.
    pub fn read(paths: &[PathBuf], redacts: bool) -> Result<Self, Vec<String>> {
        let mut files = Self { paths: paths.to_owned(), redacts, ..Self::default() };
        files.look();
        let is_named = |place: usize| !paths[place].is_dir();
        let unreadable =
            files.unreadable.iter().filter(|(place, _)| is_named(*place)).map(|(_, reason)| reason);
        let of_files = files.known.iter().filter(|((place, _), _)| is_named(*place));
        let wrong = unreadable.chain(of_files.flat_map(|(_, known)| &known.problems));
        let wrong: Vec<String> = wrong.cloned().collect();
        if wrong.is_empty() { Ok(files) } else { Err(wrong) }
    }

    /// Whether there are none to look at.
    pub(in crate::probe) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Looks at them again. Tells whether there are other manifests now. Of a file that cannot be read any more, what it said before goes on
    /// to count.
    pub(in crate::probe) fn look(&mut self) -> bool {
        let (mut there, mut has_changed) = (BTreeSet::new(), false);
        self.unreadable.clear();
        for (place, path) in self.paths.iter().enumerate() {
            match files(path) {
                Ok(files) => there.extend(files.into_iter().map(|file| (place, file))),
                Err(source) => {
                    let error = FileError::Unreadable { path: path.clone(), source };
                    self.unreadable.push((place, error.to_string()));
                    // It may be about to be put there anew.
                    there.extend(self.known.keys().filter(|(of, _)| *of == place).cloned());
                }
            }
        }
        let before = self.known.len();
        self.known.retain(|key, _| there.contains(key));
        has_changed |= self.known.len() != before;
        for key in there {
            let mark = match Mark::of(&key.1) {
                Ok(mark) => mark,
                Err(source) => {
                    let error = FileError::Unreadable { path: key.1, source };
                    self.unreadable.push((key.0, error.to_string()));
                    continue;
                }
            };
            let known = self.known.get(&key);
            if known.is_some_and(|known| known.mark == mark) {
                continue;
            }
            let mut errors = Vec::new();
            let manifests = read_file(&key.1, self.redacts, &mut errors);
            let problems = errors.iter().map(ToString::to_string).collect();
            let manifests = match known {
                Some(known) if !errors.is_empty() => with_those_before(manifests, &known.manifests),
                _ => manifests,
            };
            has_changed |= known.is_none_or(|known| known.manifests != manifests);
            self.known.insert(key, Known { mark, manifests, problems });
        }
        has_changed
    }

    /// The manifests.
    pub(in crate::probe) fn manifests(&self) -> Manifests {
        self.known.values().flat_map(|known| known.manifests.iter().cloned()).collect()
    }

    /// Everything that is wrong with them.
    pub(in crate::probe) fn problems(&self) -> BTreeSet<String> {
        let of_files = self.known.values().flat_map(|known| &known.problems);
        self.unreadable.iter().map(|(_, reason)| reason).chain(of_files).cloned().collect()
    }
}

/// What a file says in which something is wrong, with what it said before of others: of them something may be what is wrong.
fn with_those_before(now: Vec<Manifest>, before: &[Manifest]) -> Vec<Manifest> {
    let is_said = |known: &&Manifest| now.iter().any(|said| said.owner.key() == known.owner.key());
    let others: Vec<Manifest> = before.iter().filter(|known| !is_said(known)).cloned().collect();
    now.into_iter().chain(others).collect()
}

impl Mark {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let modified = (found.mtime(), found.mtime_nsec());
        Ok(Self { inode: found.ino(), length: found.len(), modified })
    }
}

/// Reads a file, or all manifests of a folder, in the order of their names. Says everything that is wrong.
pub(crate) fn read(path: &Path, errors: &mut Vec<FileError>) -> Vec<Manifest> {
    let files = match files(path) {
        Ok(files) => files,
        Err(source) => {
            errors.push(FileError::Unreadable { path: path.to_owned(), source });
            return Vec::new();
        }
    };
    files.iter().flat_map(|file| read_file(file, false, errors)).collect()
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_manifest =
            file.extension().is_some_and(|ending| EXTENSIONS.iter().any(|known| ending == *known));
        // One that cannot be looked at is told of when it is read.
        let may_be_file = || fs::metadata(&file).map_or(true, |found| found.is_file());
        if is_manifest && !name.starts_with('.') && may_be_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Every manifest of a node may well be in one file.
fn options() -> serde_saphyr::Options {
    let budget = serde_saphyr::budget! {
        max_documents: 100_000,
        max_nodes: 25_000_000,
        max_events: 100_000_000,
    };
    serde_saphyr::options! { budget: budget }
}

/// How often each kind is there that makes no pods, in files and folders that can be read.
#[must_use]
pub fn passed_over<P: AsRef<Path>>(paths: &[P]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    let files = paths.iter().filter_map(|path| files(path.as_ref()).ok()).flatten();
    for document in files.flat_map(|file| documents(&file).unwrap_or_default()) {
        for kind in manifest::passed_over(&document) {
            *kinds.entry(kind).or_default() += 1;
        }
    }
    kinds
}

/// The documents of a file.
fn documents(path: &Path) -> Result<Vec<serde_json::Value>, FileError> {
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unreadable)?;
    serde_saphyr::from_multiple_with_options(&text, options()).map_err(|error| FileError::Malformed {
        path: path.to_owned(),
        reason: error.without_snippet().to_string(),
    })
}

fn read_file(path: &Path, redact: bool, errors: &mut Vec<FileError>) -> Vec<Manifest> {
    let documents = match documents(path) {
        Ok(documents) => documents,
        Err(error) => {
            errors.push(error);
            return Vec::new();
        }
    };
    let (mut manifests, several) = (Vec::new(), documents.len() > 1);
    for (place, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let mut problems = Vec::new();
        manifests.extend(manifest::read(document, Source::Manifest, redact, &mut problems));
        errors.extend(problems.iter().map(|problem| FileError::Wrong {
            path: path.to_owned(),
            document: if several { format!(", document {}", place + 1) } else { String::new() },
            reason: problem.to_string(),
        }));
    }
    manifests
}
