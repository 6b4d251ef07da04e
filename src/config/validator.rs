//! Collects the problems of values while they are checked, alone and against each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::environment::RUNTIME_ENDPOINT;
use super::values::{ByteSize, OrOff};
use super::{ConfigProblem, Environment, FreeInstance, InstanceArg};
use crate::distributions::DEFAULT_CONTAINERD;
use crate::history::journal;
use crate::manifest::Files;
use crate::socket::SocketPath;

/// Default size limit of the recorded calls on disk.
const RECORD_LIMIT: OrOff<ByteSize> = OrOff(Some(ByteSize(64 << 20)));

/// Collects problems while values are checked.
#[derive(Default)]
pub(super) struct Validator {
    pub(super) problems: Vec<ConfigProblem>,
    /// File and field of each flag whose value comes from the configuration file, by the flag's
    /// name.
    pub(super) written: BTreeMap<&'static str, String>,
}

impl Validator {
    /// Returns the environment of the instance of a command other than `play`, which chooses no
    /// name.
    pub(super) fn named_instance(&mut self, arg: &InstanceArg, around: &Environment) -> Environment {
        if let Some(name) = arg.instance.as_ref().filter(|name| name.is_auto()) {
            let reason = "must be the name of an instance; only play chooses a free name, such as auto-1";
            self.error("--instance", Some(&name.to_string()), reason.to_owned());
        }
        around.of_instance(arg.instance.as_ref())
    }

    /// Returns an instance with a free name.
    pub(super) fn free_instance(&mut self, around: &Environment) -> Option<FreeInstance> {
        FreeInstance::choose(around).map_err(|reason| self.error("--instance", Some("auto"), reason)).ok()
    }

    /// Returns the runtime's socket in the environment, or that of the node's containerd. A
    /// variable with the socket on which probeshim itself listens is for its clients, and is
    /// ignored.
    pub(super) fn default_upstream(
        &mut self,
        around: &Environment,
        listen: Option<&SocketPath>,
    ) -> Option<SocketPath> {
        if let Some(endpoint) = &around.runtime_endpoint {
            match SocketPath::parse(endpoint) {
                Ok(endpoint) if listen.is_some_and(|listen| listen.is_same_as(&endpoint)) => {}
                Ok(endpoint) => return Some(endpoint),
                Err(error) => self.error(RUNTIME_ENDPOINT, Some(endpoint), error.to_string()),
            }
        }
        let containerd = SocketPath::new(Path::new(around.containerd.unwrap_or(DEFAULT_CONTAINERD)))
            .map_err(|error| error.to_string());
        self.default_from("--upstream", containerd)
    }

    /// Reads files and directories of manifests. Each error in a file is a separate problem.
    pub(super) fn files(&mut self, paths: &[PathBuf], redacts: bool) -> Files {
        Files::read(paths, redacts).unwrap_or_else(|errors| {
            for error in errors {
                self.error("--manifests", None, error);
            }
            Files::default()
        })
    }

    /// Returns the settings of the journal; `None` if calls are not recorded. With a limit and
    /// without a state directory, uses the default directory; a missing default is an error.
    pub(super) fn journal(
        &mut self,
        state: Option<&Path>,
        limit: Option<OrOff<ByteSize>>,
        around: &Environment,
    ) -> Option<journal::JournalConfig> {
        let ByteSize(bytes) = limit.unwrap_or(RECORD_LIMIT).0?;
        let state = match state {
            Some(state) => state.to_owned(),
            // Without a limit from the user and without a directory, calls are not recorded.
            None if limit.is_none() => return None,
            None => self.default_from("--state-dir", around.state_dir())?,
        };
        Some(journal::JournalConfig { dir: state.join("calls"), limit: bytes })
    }

    pub(super) fn error(&mut self, field: &'static str, value: Option<&str>, reason: String) {
        let field = self.written.get(field).cloned().unwrap_or_else(|| field.to_owned());
        self.problems.push(ConfigProblem { field, value: value.map(str::to_owned), reason });
    }

    /// Returns a default. A missing default is a problem, unless the file has an invalid value for
    /// the flag, which has already been reported.
    pub(super) fn default_from<T>(&mut self, field: &'static str, default: Result<T, String>) -> Option<T> {
        let complain = |reason| {
            if !self.written.contains_key(field) {
                self.error(field, None, reason);
            }
        };
        default.map_err(complain).ok()
    }
}
