//! Makes the changes of a plan.

use super::InstallError;
use super::checks::SwitchChecks;
use super::confirm::{Confirmation, switch_state};
use super::lock::InstallLock;
use super::paths::{InstalledUnit, Paths};
use super::plan::InstallPlan;
use super::record::InstallRecord;
use super::steps::Step;
use super::systemctl::ServiceManager;

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
        // The record is written before the first change. Until the sockets are exchanged, the
        // earlier socket is the one to undo.
        let mut record = plan.record.clone();
        if let Some(earlier) = &plan.earlier {
            record.listen.clone_from(&earlier.listen);
        }
        record.write(self.paths)?;
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
        plan.record.write(self.paths)?;
        Ok(())
    }

    /// Points the kubelet at probeshim, and returns the checks of that change. From the first
    /// change on, a timer of systemd reverts it unless it is confirmed.
    pub(super) fn switch_kubelet(
        &self,
        plan: &InstallPlan,
    ) -> Result<Option<SwitchChecks<'_>>, InstallError> {
        let Some(kubelet) = &plan.kubelet else { return Ok(None) };
        let steps = plan.switch_steps(self.paths);
        if !steps.is_empty() {
            // A confirmation of an earlier change does not confirm this one.
            InstallRecord::set_confirmed(self.paths, false)?;
        }
        let unit = kubelet.switch.unit();
        self.make(&steps)?;
        if steps.iter().any(|step| step.runs("restart", unit)) {
            (self.report)(&format!("{unit} was restarted with {}", plan.listen));
        }
        Ok(Some(SwitchChecks {
            manager: self.manager,
            unit: unit.to_owned(),
            upstream: plan.upstream.clone(),
            listen: plan.listen.clone(),
            healthz: kubelet.config.healthz,
            admin: plan.admin.clone(),
        }))
    }

    /// Points the kubelet back at the runtime's own socket. Returns false if it uses that already.
    pub(super) fn revert(&self) -> Result<bool, InstallError> {
        let _lock = InstallLock::acquire(self.paths)?;
        // Another process may have removed the installation.
        let Some(state) = switch_state(self.paths)? else { return Ok(false) };
        let is_switched = state != Confirmation::Reverted;
        if is_switched {
            self.manager.run(&["start", InstalledUnit::Bypass.name()])?;
        }
        self.manager.run(&["disable", "--now", InstalledUnit::Revert.name()])?;
        if is_switched {
            InstallRecord::set_reverted(self.paths)?;
        }
        Ok(is_switched)
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
