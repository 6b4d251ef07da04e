//! Makes the changes of a plan.

use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use super::InstallError;
use super::checks::SwitchChecks;
use super::files::{copy_program, has_content, write_file};
use super::finding::Finding;
use super::node::main_pid;
use super::paths::{InstalledUnit, Paths};
use super::plan::InstallPlan;
use super::record::{InstallRecord, KubeletRecord};
use super::switch::InstalledFile;
use super::systemctl::{ServiceManager, property};
use crate::regular_file::path_of_deleted;

/// Part of the time for the confirmation that is left to the user after the checks.
const CHECKS_SHARE: u32 = 2;

/// Makes the changes of a plan. Each step may be interrupted: a repetition continues, and an
/// uninstallation undoes what was done.
#[allow(missing_debug_implementations, reason = "it has references to functions only")]
pub struct Installer<'a> {
    /// The paths of the node.
    pub paths: &'a Paths,
    /// The manager of units.
    pub manager: &'a dyn ServiceManager,
    /// Receives a line for each change.
    pub report: &'a dyn Fn(&str),
}

impl Installer<'_> {
    /// Installs the program and its units, and starts them. Waits for no service.
    pub fn install(&self, plan: &InstallPlan) -> Result<(), InstallError> {
        let mut record = self.record(plan)?;
        let program_changed = plan.program_changes;
        if program_changed {
            let to = Paths::program();
            copy_program(&plan.program, &self.paths.at(to)).map_err(InstallError::file("write", to))?;
            (self.report)(&format!("wrote {}", to.display()));
        }
        let units_changed = self.write_files(&plan.units())?;
        self.manager.run(&["daemon-reload"])?;
        self.start(plan, &record, program_changed || units_changed)?;
        record.listen = plan.listen.to_string();
        record.write(self.paths)?;
        Ok(())
    }

    /// Writes the record before the first change.
    fn record(&self, plan: &InstallPlan) -> Result<InstallRecord, InstallError> {
        let new = || InstallRecord::new(&plan.listen);
        let mut record = plan.record.clone().unwrap_or_else(new);
        record.upstream = plan.explicit_upstream.as_ref().map(ToString::to_string);
        record.owns_program |= !self.paths.at(Paths::program()).exists();
        let files = plan.units().into_iter().chain(plan.kubelet_files()).map(|file| file.path);
        for path in files.chain([Paths::program().to_owned()]) {
            record.add_dirs(self.paths, &path);
        }
        if let Some(kubelet) = &plan.kubelet {
            let switch = kubelet.switch.clone();
            let confirmed = record.kubelet.is_some_and(|known| known.confirmed && known.switch == switch);
            record.kubelet = Some(KubeletRecord { switch, confirmed });
        }
        record.write(self.paths)?;
        Ok(record)
    }

    /// Starts the socket and the service. A running service is replaced without a gap.
    fn start(&self, plan: &InstallPlan, record: &InstallRecord, changed: bool) -> Result<(), InstallError> {
        let [socket, service] = [InstalledUnit::Socket, InstalledUnit::Service].map(InstalledUnit::name);
        if record.listen != plan.listen.to_string() {
            self.manager.run(&["stop", service, socket])?;
        }
        for unit in [socket, service] {
            if property(self.manager, unit, "ActiveState")? == "failed" {
                self.manager.run(&["reset-failed", unit])?;
            }
        }
        self.manager.run(&["enable", "--now", socket])?;
        self.manager.run(&["enable", service])?;
        (self.report)(&format!("{socket} listens on {}", plan.listen));
        if property(self.manager, service, "ActiveState")? != "active" {
            self.manager.run(&["start", "--no-block", service])?;
        } else if changed || self.is_replaced(service)? {
            self.manager.run(&["reload", service])?;
            (self.report)(&format!("{service} is replaced; calls in flight finish in the old process"));
        }
        Ok(())
    }

    /// Returns whether the program of a running unit was replaced on disk, for example by
    /// `make install`.
    fn is_replaced(&self, unit: &str) -> Result<bool, InstallError> {
        let Some(pid) = main_pid(self.manager, unit)? else { return Ok(false) };
        let program = fs::read_link(self.paths.at(format!("/proc/{pid}/exe")));
        Ok(program.is_ok_and(|program| path_of_deleted(&program).is_some()))
    }

    /// Points the kubelet at probeshim, and returns the results of the checks. From the first
    /// change on, a timer of systemd reverts it unless it is confirmed.
    pub async fn switch_kubelet(&self, plan: &InstallPlan) -> Result<Vec<Finding>, InstallError> {
        let Some(kubelet) = &plan.kubelet else { return Ok(Vec::new()) };
        let unit = kubelet.switch.unit();
        let record = InstallRecord::read(self.paths)?;
        let confirmed = record.and_then(|record| record.kubelet).is_some_and(|kubelet| kubelet.confirmed);
        let files = plan.kubelet_files();
        let is_switched =
            files.iter().all(|file| self.is_written(file)) && kubelet.uses(&plan.listen) == Some(true);
        if !(is_switched && confirmed) {
            // A confirmation of an earlier change does not confirm this one.
            InstallRecord::set_confirmed(self.paths, false)?;
            let timer = InstalledUnit::Revert.name();
            self.manager.run(&["enable", timer])?;
            self.manager.run(&["restart", timer])?;
        }
        let mut pid = kubelet.pid;
        if !is_switched {
            self.write_files(&files)?;
            self.manager.run(&["daemon-reload"])?;
            self.manager.run(&["restart", unit])?;
            (self.report)(&format!("{unit} was restarted with {}", plan.listen));
            pid = main_pid(self.manager, unit)?;
        }
        let checks = SwitchChecks {
            upstream: plan.upstream.clone(),
            listen: plan.listen.clone(),
            healthz: kubelet.config.healthz,
            pid,
            admin: plan.admin.clone(),
        };
        let time = plan.confirm_within.checked_div(CHECKS_SHARE).unwrap_or(Duration::ZERO);
        Ok(checks.run(Instant::now() + time).await)
    }

    /// Points the kubelet back at the runtime's own socket.
    pub fn revert(&self) -> Result<(), InstallError> {
        self.manager.run(&["start", InstalledUnit::Bypass.name()])?;
        self.manager.run(&["disable", "--now", InstalledUnit::Revert.name()])?;
        Ok(())
    }

    fn is_written(&self, file: &InstalledFile) -> bool {
        has_content(&self.paths.at(&file.path), file.text.as_bytes())
    }

    /// Writes the files whose content differs. Returns whether there were any.
    fn write_files(&self, files: &[InstalledFile]) -> Result<bool, InstallError> {
        let mut changed = false;
        for file in files.iter().filter(|file| !self.is_written(file)) {
            let written = write_file(&self.paths.at(&file.path), file.text.as_bytes(), 0o644);
            written.map_err(InstallError::file("write", &file.path))?;
            (self.report)(&format!("wrote {}", file.path.display()));
            changed = true;
        }
        Ok(changed)
    }
}
