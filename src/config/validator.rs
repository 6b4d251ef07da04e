//! Collects what is wrong with values while they are checked against each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::values::{ByteSize, OrOff};
use super::{ConfigProblem, Environment};
use crate::history::journal;
use crate::manifest::Files;
use crate::socket::SocketPath;

/// Size limit of the recorded calls on disk, unless told otherwise.
const RECORD_LIMIT: OrOff<ByteSize> = OrOff(Some(ByteSize(64 << 20)));

/// Collects what is wrong while values are checked.
#[derive(Default)]
pub(super) struct Validator {
    pub(super) problems: Vec<ConfigProblem>,
    /// Where flags are written that come from a file, by their names.
    pub(super) written: BTreeMap<&'static str, String>,
}

impl Validator {
    pub(super) fn admin(&mut self, flag: Option<SocketPath>, around: &Environment) -> Option<SocketPath> {
        flag.or_else(|| self.default_from("--admin", around.default_socket("admin.sock")))
    }

    /// Files and folders of manifests; everything that is wrong with files that are named is a problem of its own.
    pub(super) fn files(&mut self, paths: &[PathBuf], redacts: bool) -> Files {
        Files::read(paths, redacts).unwrap_or_else(|errors| {
            for error in errors {
                self.error("--manifests", None, error);
            }
            Files::default()
        })
    }

    /// What is recorded on disk, if anything is; a lack of a place for it is a problem.
    pub(super) fn journal(
        &mut self,
        state: Option<&Path>,
        limit: Option<OrOff<ByteSize>>,
        around: &Environment,
    ) -> Option<journal::JournalConfig> {
        let ByteSize(bytes) = limit.unwrap_or(RECORD_LIMIT).0?;
        let state = match state {
            Some(state) => state.to_owned(),
            // Nobody asked for it, and there is no place for it.
            None if limit.is_none() => return None,
            None => self.default_from("--state-dir", around.require_state_dir())?,
        };
        Some(journal::JournalConfig { dir: state.join("calls"), limit: bytes })
    }

    pub(super) fn error(&mut self, field: &'static str, value: Option<&str>, reason: String) {
        let field = self.written.get(field).cloned().unwrap_or_else(|| field.to_owned());
        self.problems.push(ConfigProblem { field, value: value.map(str::to_owned), reason });
    }

    /// Returns a default. A lack of it is a problem, unless the file has a value that is a problem already.
    pub(super) fn default_from<T>(&mut self, field: &'static str, default: Result<T, String>) -> Option<T> {
        let complain = |reason| {
            if !self.written.contains_key(field) {
                self.error(field, None, reason);
            }
        };
        default.map_err(complain).ok()
    }
}
