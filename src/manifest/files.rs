//! Manifests in files and directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::manifest::document::{Document, DocumentKind, Manifest, ReadOptions};
use crate::manifest::file_contents::{FileContents, FileError, read_text};
use crate::manifest::index::Manifests;
use crate::manifest::remarks;
use crate::manifest::source::Source;
use crate::manifest::stdin::is_stdin;
use crate::regular_file::{MAX_YAML_BYTES, read_named_to_string, read_stdin_to_string, read_to_string};

/// Extensions of manifest files. Other files of a directory are skipped.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Files and directories with manifests, and their content when they were last read.
#[derive(Clone, Debug, Default)]
pub struct Files {
    paths: Vec<PathBuf>,
    options: ReadOptions,
    /// Files by the index of the path and the name of the file.
    known: BTreeMap<(usize, PathBuf), CachedFile>,
    /// Paths that cannot be read, by index, with the error.
    unreadable: Vec<(usize, String)>,
}

/// A file and the result of reading it.
#[derive(Clone, Debug)]
struct CachedFile {
    mark: FileStamp,
    documents: Vec<Document>,
    problems: Vec<String>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// Reads the text of a file up to a length limit in bytes.
type DocumentReader = fn(&Path, u64) -> io::Result<String>;

/// Metadata that change when the content of a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Files {
    /// Reads manifests for probing. Fails with all errors in files that are named directly. Files
    /// with errors in directories are left out, because other programs depend on the rest; the
    /// errors are reported once the directory is watched.
    pub fn read(paths: &[PathBuf], redact: bool) -> Result<Self, Vec<String>> {
        let files = Self::new(paths, ReadOptions { redact, ..ReadOptions::default() });
        let is_named = |place: usize| !paths[place].is_dir();
        let unreadable =
            files.unreadable.iter().filter(|(place, _)| is_named(*place)).map(|(_, reason)| reason);
        let of_files = files.known.iter().filter(|((place, _), _)| is_named(*place));
        let wrong = unreadable.chain(of_files.flat_map(|(_, known)| &known.problems));
        let wrong: Vec<String> = wrong.cloned().collect();
        if wrong.is_empty() { Ok(files) } else { Err(wrong) }
    }

    /// Returns the pods to probe.
    pub(crate) fn manifests(&self) -> Manifests {
        self.probed().collect()
    }

    /// Returns the pods to probe, in the order of the documents.
    pub(crate) fn probed(&self) -> impl Iterator<Item = Manifest> {
        self.documents().filter_map(manifest).cloned()
    }

    /// Reads all files for the first time.
    pub(crate) fn new(paths: &[PathBuf], options: ReadOptions) -> Self {
        let mut files = Self { paths: paths.to_owned(), options, ..Self::default() };
        files.look_for(true);
        files
    }

    /// Reads the text of a file that has this path. No file is opened.
    pub(crate) fn from_text(path: &Path, text: &str, options: ReadOptions) -> Self {
        let mut files = Self { paths: vec![path.to_owned()], options, ..Self::default() };
        let mark = FileStamp { inode: 0, length: 0, modified: (0, 0) };
        let file = CachedFile::new(mark, read_text(path, text, options), None);
        files.known.insert((0, path.to_owned()), file);
        files
    }

    /// Returns whether no paths are configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the configured paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Reads changed files again, and returns whether the documents have changed. The earlier
    /// content of a file that cannot be read any more remains in effect.
    pub(crate) fn rescan(&mut self) -> bool {
        self.look_for(false)
    }

    /// Reads new and changed files. If `is_first`, also reads FIFOs among the paths: a FIFO has its
    /// content only once, and later there may be no writer.
    fn look_for(&mut self, is_first: bool) -> bool {
        let (mut there, mut has_changed) = (BTreeSet::new(), false);
        self.unreadable.clear();
        for (place, path) in self.paths.iter().enumerate() {
            match files(path, self.options.source) {
                Ok(files) => there.extend(files.into_iter().map(|file| (place, file))),
                Err(source) => {
                    let error = FileError::Unreadable { path: path.clone(), source };
                    self.unreadable.push((place, error.to_string()));
                    // The path may be about to be replaced.
                    there.extend(self.known.keys().filter(|(of, _)| *of == place).cloned());
                }
            }
        }
        let before = self.known.len();
        self.known.retain(|key, _| there.contains(key));
        has_changed |= self.known.len() != before;
        for key in there {
            let mark = match FileStamp::read_stamp(&key.1) {
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
            let contents = read_file(&key.1, self.reader(&key, is_first), self.options);
            let file = CachedFile::new(mark, contents, known);
            has_changed |= known.is_none_or(|known| known.documents != file.documents);
            self.known.insert(key, file);
        }
        has_changed
    }

    fn reader(&self, (place, file): &(usize, PathBuf), is_first: bool) -> DocumentReader {
        // A user names a FIFO because it has a writer. That of a path which was found may never
        // write.
        let is_named = self.paths.get(*place) == Some(file) && self.options.source != Source::StaticPods;
        if is_first && is_named { reader_of_named(file) } else { read_to_string }
    }

    /// Returns the documents of all files, in their order.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &Document> {
        self.known.values().flat_map(|known| &known.documents)
    }

    /// Returns all errors, in the order of files and lines.
    pub(crate) fn problems(&self) -> Vec<String> {
        let of_files = self.known.values().flat_map(|known| &known.problems);
        unique(self.unreadable.iter().map(|(_, reason)| reason).chain(of_files))
    }

    /// Returns all warnings about fields that are left out, in the order of files and lines.
    pub(crate) fn warnings(&self) -> Vec<String> {
        unique(self.known.values().flat_map(|known| &known.warnings))
    }

    /// Returns what is valid in the documents, but probably a mistake, and the objects that are
    /// ignored. `Purpose::Probe` does not look for mistakes.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let ignored = remarks::ignored_objects(self.documents());
        unique(self.known.values().flat_map(|known| &known.remarks).chain(&ignored))
    }

    /// Returns the configured paths from which no pod is read, neither with nor without errors.
    pub(crate) fn paths_without_pods(&self) -> impl Iterator<Item = &Path> {
        let has_pod = |place: usize| {
            let mut files = self.known.iter().filter(move |((of, _), _)| *of == place);
            let is_pod = |document: &Document| {
                matches!(
                    document.kind,
                    DocumentKind::Pod { .. } | DocumentKind::Workload { .. } | DocumentKind::Probed(_)
                )
            };
            files.any(|(_, file)| !file.problems.is_empty() || file.documents.iter().any(is_pod))
        };
        let is_readable = |place: usize| !self.unreadable.iter().any(|(of, _)| *of == place);
        let paths = self.paths.iter().enumerate();
        paths
            .filter(move |(place, _)| is_readable(*place) && !has_pod(*place))
            .map(|(_, path)| path.as_path())
    }
}

/// Returns texts without those that occur earlier.
fn unique<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    texts.filter(|text| known.insert(*text)).cloned().collect()
}

/// Returns the pods that the document specifies for probing.
fn manifest(document: &Document) -> Option<&Manifest> {
    match &document.kind {
        DocumentKind::Probed(manifest) => Some(manifest),
        _ => None,
    }
}

/// Adds to the documents of a file with errors the earlier documents that they do not replace. One
/// of the earlier documents may be the one that has the error now.
fn with_earlier(now: Vec<Document>, earlier: &[Document]) -> Vec<Document> {
    let is_replaced = |known: &&Document| now.iter().any(|document| document.replaces(known));
    let others: Vec<Document> = earlier.iter().filter(|known| !is_replaced(known)).cloned().collect();
    now.into_iter().chain(others).collect()
}

impl CachedFile {
    /// Creates a file with its contents, and `known`, its earlier contents.
    fn new(mark: FileStamp, contents: FileContents, known: Option<&Self>) -> Self {
        let FileContents { documents, errors, warnings, remarks, repeated } = contents;
        let documents = match known {
            Some(known) if !errors.is_empty() => with_earlier(documents, &known.documents),
            _ => documents,
        };
        let texts = |all: Vec<FileError>| all.iter().map(ToString::to_string).collect();
        let [problems, warnings, mut remarks]: [Vec<String>; 3] = [errors, warnings, remarks].map(texts);
        remarks.extend(repeated.iter().map(ToString::to_string));
        Self { mark, documents, problems, warnings, remarks }
    }
}

impl FileStamp {
    fn read_stamp(path: &Path) -> io::Result<Self> {
        if is_stdin(path) {
            // Standard input is read once, so its stamp never changes.
            return Ok(Self { inode: 0, length: 0, modified: (0, 0) });
        }
        let found = fs::metadata(path)?;
        // The times of a FIFO change as it is read and written, but its content cannot be read
        // again.
        let is_fifo = found.file_type().is_fifo();
        let modified = if is_fifo { (0, 0) } else { (found.mtime(), found.mtime_nsec()) };
        Ok(Self { inode: found.ino(), length: found.len(), modified })
    }
}

/// Returns the reader of a file that a user names.
fn reader_of_named(path: &Path) -> DocumentReader {
    if is_stdin(path) { |_, limit| read_stdin_to_string(limit) } else { read_named_to_string }
}

/// Returns the file itself, or all manifests of a directory in the order of their names. A kubelet
/// reads static pods from files of any extension.
fn files(path: &Path, source: Source) -> io::Result<Vec<PathBuf>> {
    if is_stdin(path) || !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = visible_files(path)?;
    files.retain(|file| has_known_extension(file) || source == Source::StaticPods);
    Ok(files)
}

/// Returns the files of a directory that are not manifests because of their names.
pub(crate) fn skipped_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = visible_files(directory).unwrap_or_default();
    files.retain(|file| !has_known_extension(file));
    files
}

/// Returns the files of a directory whose names do not begin with a dot, in the order of their
/// names.
fn visible_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let file = entry?.path();
        let is_hidden = file.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
        // A file without metadata is reported when it is read.
        if !is_hidden && fs::metadata(&file).map_or(true, |found| found.is_file()) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn has_known_extension(file: &Path) -> bool {
    file.extension().is_some_and(|ending| EXTENSIONS.iter().any(|known| ending == *known))
}

fn read_file(path: &Path, reader: DocumentReader, options: ReadOptions) -> FileContents {
    match reader(path, MAX_YAML_BYTES) {
        Ok(text) => read_text(path, &text, options),
        Err(source) => FileContents::from_error(FileError::Unreadable { path: path.to_owned(), source }),
    }
}
