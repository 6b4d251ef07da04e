//! The process of the installed service, which may be older than the program and the unit on disk.

use std::fs;

use super::InstallError;
use super::node::main_pid;
use super::paths::{InstalledUnit, Paths};
use super::systemctl::ServiceManager;
use super::units::UNIT_VARIABLE;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, path_of_deleted, read};

/// The main process of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningService {
    /// Its pid.
    pub(super) pid: u32,
    /// Whether its program was replaced on disk, for example by `make install`.
    pub(super) is_replaced: bool,
    /// Digest of the unit with which systemd started the process, or the first of the processes
    /// that handed their socket on to it; `None` if the environment cannot be read.
    unit: Option<String>,
}

impl RunningService {
    /// Finds the process. Returns `None` if the service does not run.
    pub(super) fn find(paths: &Paths, manager: &dyn ServiceManager) -> Result<Option<Self>, InstallError> {
        let Some(pid) = main_pid(manager, InstalledUnit::Service.name())? else { return Ok(None) };
        let program = fs::read_link(paths.at(format!("/proc/{pid}/exe")));
        let is_replaced = program.is_ok_and(|program| path_of_deleted(&program).is_some());
        let environment = read(&paths.at(format!("/proc/{pid}/environ")), MAX_SMALL_FILE_BYTES).ok();
        let unit = environment.map(|environment| {
            let mut variables = environment.split(|byte| *byte == 0);
            let name = format!("{UNIT_VARIABLE}=");
            let digest = variables.find_map(|variable| variable.strip_prefix(name.as_bytes()));
            String::from_utf8_lossy(digest.unwrap_or_default()).into_owned()
        });
        Ok(Some(Self { pid, is_replaced, unit }))
    }

    /// Returns whether the process has other settings than a unit with this digest gives it.
    pub(super) fn has_other_unit(&self, digest: &str) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit != digest)
    }
}
