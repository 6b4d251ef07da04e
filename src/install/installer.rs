//! Makes the changes of a plan.

use std::time::Duration;

use tokio::time::Instant;

use super::InstallError;
use super::checks::SwitchChecks;
use super::finding::Finding;
use super::node::main_pid;
use super::paths::{InstalledUnit, Paths};
use super::plan::InstallPlan;
use super::record::{InstallRecord, KubeletRecord};
use super::steps::Step;
use super::systemctl::ServiceManager;

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
        let steps = plan.install_steps(self.paths, self.manager)?;
        let mut record = self.record(plan)?;
        self.make(&steps)?;
        let [socket, service] = [InstalledUnit::Socket, InstalledUnit::Service].map(InstalledUnit::name);
        (self.report)(&format!("{socket} listens on {}", plan.listen));
        let runs = |command: &str| steps.iter().any(|step| step.runs(command, service));
        if runs("reload") {
            (self.report)(&format!("{service} is replaced; calls in flight finish in the old process"));
        }
        if runs("restart") {
            (self.report)(&format!(
                "{service} is restarted, because its unit has changed; new connections wait until it serves"
            ));
        }
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
            record.kubelet = Some(KubeletRecord { switch, confirmed, reverted: false });
        }
        record.write(self.paths)?;
        Ok(record)
    }

    /// Points the kubelet at probeshim, and returns the results of the checks. From the first
    /// change on, a timer of systemd reverts it unless it is confirmed.
    pub async fn switch_kubelet(&self, plan: &InstallPlan) -> Result<Vec<Finding>, InstallError> {
        let Some(kubelet) = &plan.kubelet else { return Ok(Vec::new()) };
        let steps = plan.switch_steps(self.paths);
        if !steps.is_empty() {
            // A confirmation of an earlier change does not confirm this one.
            InstallRecord::set_confirmed(self.paths, false)?;
        }
        let mut pid = kubelet.pid;
        let unit = kubelet.switch.unit();
        self.make(&steps)?;
        if steps.iter().any(|step| step.runs("restart", unit)) {
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
        Ok(InstallRecord::set_reverted(self.paths)?)
    }

    /// Makes steps.
    fn make(&self, steps: &[Step]) -> Result<(), InstallError> {
        for step in steps {
            if let Some(path) = step.make(self.paths, self.manager)? {
                (self.report)(&format!("wrote {}", path.display()));
            }
        }
        Ok(())
    }
}
