//! Content of a file of manifests, with its errors, warnings and remarks.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::cursor::{Severity, Violation};
use crate::manifest::document::{self, Document, Purpose, ReadOptions};
use crate::manifest::document_text::{DocumentTexts, DuplicateKey};
use crate::manifest::remarks;
use crate::manifest::stdin::shown_path;

/// Reason why the manifests of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// The file or directory cannot be read.
    #[error("{}: {source}", shown_path(.path))]
    Unreadable {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is neither YAML nor JSON.
    #[error("{at}: {reason}")]
    Malformed {
        /// The file, with the line if it is known.
        at: String,
        /// Error of the parser.
        reason: String,
    },
    /// A field has an invalid value or must not be present.
    #[error("{}:{line}: {reason}", shown_path(.path))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Line of the field.
        line: u64,
        /// Error, with the path of the field.
        reason: String,
    },
}

/// Content of a file, with its errors and warnings.
#[derive(Default)]
pub(super) struct FileContents {
    pub(super) documents: Vec<Document>,
    pub(super) errors: Vec<FileError>,
    pub(super) warnings: Vec<FileError>,
    pub(super) remarks: Vec<FileError>,
    pub(super) repeated: Vec<RepeatedRemark>,
}

/// A remark about several values.
pub(super) struct RepeatedRemark {
    /// The first value, with its line.
    first: FileError,
    /// Number of the others.
    others: usize,
    text: &'static str,
}

impl fmt::Display for RepeatedRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, others, text } = self;
        match others {
            0 => write!(f, "{first}: {text}"),
            others => write!(f, "{first}, and {others} more: {text}"),
        }
    }
}

impl FileContents {
    pub(super) fn from_error(error: FileError) -> Self {
        Self { errors: vec![error], ..Self::default() }
    }

    /// Adds a remark about a value, and counts it if an earlier one has the same text.
    fn add_repeated(&mut self, first: FileError, text: &'static str) {
        match self.repeated.iter_mut().find(|known| known.text == text) {
            Some(known) => known.others += 1,
            None => self.repeated.push(RepeatedRemark { first, others: 0, text }),
        }
    }
}

/// Parses the documents of a text, and reads their objects.
pub(super) fn read_text(path: &Path, text: &str, options: ReadOptions) -> FileContents {
    match DocumentTexts::parse(path, text) {
        Ok(texts) => read_documents(path, &texts, options),
        Err((at, reason)) => FileContents::from_error(FileError::Malformed { at, reason }),
    }
}

/// Reads the objects of documents. Errors are in the order of their lines.
fn read_documents(path: &Path, texts: &DocumentTexts<'_>, options: ReadOptions) -> FileContents {
    let mut read = FileContents::default();
    for (place, (document, first_line)) in texts.documents.iter().enumerate() {
        let mut problems = Vec::new();
        let at = format!("{}:{first_line}", shown_path(path));
        read.documents.extend(document::read(document, options, &at, &mut problems));
        let located = |line: u64, reason: String| FileError::Wrong { path: path.to_owned(), line, reason };
        if options.purpose != Purpose::Probe {
            read.remarks.extend(texts.duplicate_keys(place).into_iter().map(|key| {
                let DuplicateKey { path, lines: [line, earlier] } = key;
                let text = if line == earlier {
                    "the key occurs twice".to_owned()
                } else {
                    format!("the key is on line {earlier} as well")
                };
                located(line, format!("{path}: {text}; the last one counts"))
            }));
            let remarks = remarks::remarks(document, options).into_iter();
            // A value with an error needs no remark.
            let is_valid =
                |remark: &Violation| !problems.iter().any(|problem| problem.path() == remark.path());
            let remarks: Vec<_> = remarks.filter(is_valid).collect();
            problems.extend(remarks);
        }
        let with_line = |problem: Violation| (texts.line(place, problem.path()), problem);
        let mut problems: Vec<_> = problems.into_iter().map(with_line).collect();
        problems.sort_by_key(|(line, _)| *line);
        for (line, problem) in problems {
            let error = located(line, problem.to_string());
            match problem.severity {
                Severity::Remark("") => read.remarks.push(error),
                Severity::Remark(text) => read.add_repeated(error, text),
                Severity::Unsupported if options.ignore_unsupported => read.warnings.push(error),
                Severity::Unsupported | Severity::Invalid => read.errors.push(error),
            }
        }
    }
    read
}
