//! Confirms the change of a kubelet.

use super::InstallError;
use super::lock::InstallLock;
use super::paths::{InstalledUnit, Paths};
use super::record::InstallRecord;
use super::systemctl::{ServiceManager, ServiceManagerError, property};

/// State of the change of a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The change is reverted unless it is confirmed.
    Awaited,
    /// The change was confirmed.
    Confirmed,
    /// The change was reverted: the kubelet uses the runtime's own socket.
    Reverted,
}

/// Returns the state of the change of the kubelet; `None` if it was not switched.
pub fn switch_state(paths: &Paths) -> Result<Option<Confirmation>, InstallError> {
    let Some(kubelet) = InstallRecord::read(paths)?.and_then(|record| record.kubelet) else {
        return Ok(None);
    };
    Ok(Some(match kubelet.confirmed {
        _ if !paths.at(kubelet.switch.effective_file()).exists() => Confirmation::Reverted,
        true => Confirmation::Confirmed,
        false => Confirmation::Awaited,
    }))
}

/// Returns whether the timer that reverts an unconfirmed change waits for its time, or has started
/// the bypass. A timer stays active after its time.
pub(super) fn has_timer(manager: &dyn ServiceManager) -> Result<bool, ServiceManagerError> {
    let state = property(manager, InstalledUnit::Revert.name(), "SubState")?;
    Ok(matches!(&*state, "waiting" | "running"))
}

/// Confirms the change of the kubelet, so that it is not reverted. Stops the timer also of a change
/// that is confirmed: a repeated installation may have started it and been interrupted.
pub fn confirm(paths: &Paths, manager: &dyn ServiceManager) -> Result<(), InstallError> {
    let _lock = InstallLock::acquire(paths)?;
    if switch_state(paths)?.is_none() {
        return Err(InstallError::NothingToConfirm);
    }
    manager.run(&["disable", "--now", InstalledUnit::Revert.name()])?;
    // The timer may have expired before it was stopped, and the bypass may not have removed the
    // file yet.
    let bypass = property(manager, InstalledUnit::Bypass.name(), "ActiveState")?;
    let is_bypassed = !matches!(&*bypass, "inactive" | "failed");
    if is_bypassed || switch_state(paths)? == Some(Confirmation::Reverted) {
        return Err(InstallError::Reverted);
    }
    Ok(InstallRecord::set_confirmed(paths, true)?)
}
