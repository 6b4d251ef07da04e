//! Manifests in files and folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::{self, Manifest};
use crate::probe::spec::Source;

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

/// Reads a file, or all manifests of a folder, in the order of their names. Says everything that is wrong.
pub(crate) fn read(path: &Path, errors: &mut Vec<FileError>) -> Vec<Manifest> {
    let files = match files(path) {
        Ok(files) => files,
        Err(source) => {
            errors.push(FileError::Unreadable { path: path.to_owned(), source });
            return Vec::new();
        }
    };
    files.iter().flat_map(|file| read_file(file, errors)).collect()
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
        if is_manifest && !name.starts_with('.') && fs::metadata(&file)?.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, errors: &mut Vec<FileError>) -> Vec<Manifest> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) => {
            errors.push(FileError::Unreadable { path: path.to_owned(), source });
            return Vec::new();
        }
    };
    let documents: Vec<serde_json::Value> = match serde_saphyr::from_multiple(&text) {
        Ok(documents) => documents,
        Err(error) => {
            let reason = error.without_snippet().to_string();
            errors.push(FileError::Malformed { path: path.to_owned(), reason });
            return Vec::new();
        }
    };
    let (mut manifests, several) = (Vec::new(), documents.len() > 1);
    for (place, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let mut problems = Vec::new();
        manifests.extend(manifest::read(document, Source::Manifest, &mut problems));
        errors.extend(problems.iter().map(|problem| FileError::Wrong {
            path: path.to_owned(),
            document: if several { format!(", document {}", place + 1) } else { String::new() },
            reason: problem.to_string(),
        }));
    }
    manifests
}
