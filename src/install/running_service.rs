//! The process of the installed service, which may be older than the program and the unit on disk.

use std::fs;

use super::InstallError;
use super::node::{environment_variable, main_pid};
use super::paths::{InstalledUnit, Paths};
use super::systemctl::ServiceManager;
use super::units::UNIT_VARIABLE;
use crate::regular_file::path_of_deleted;

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
        let unit = environment_variable(paths, pid, UNIT_VARIABLE);
        Ok(Some(Self { pid, is_replaced, unit }))
    }

    /// Returns whether the process has other settings than a unit with this digest gives it.
    pub(super) fn has_other_unit(&self, digest: &str) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit != digest)
    }
}
