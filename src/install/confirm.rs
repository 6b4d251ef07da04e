//! Confirms the change of a kubelet.

use super::InstallError;
use super::paths::{InstalledUnit, Paths};
use super::record::InstallRecord;
use super::systemctl::ServiceManager;

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

/// Confirms the change of the kubelet, so that it is not reverted.
pub fn confirm(paths: &Paths, manager: &dyn ServiceManager) -> Result<(), InstallError> {
    let state = switch_state(paths)?.ok_or(InstallError::NothingToConfirm)?;
    if state == Confirmation::Confirmed {
        return Ok(());
    }
    manager.run(&["disable", "--now", InstalledUnit::Revert.name()])?;
    // The timer may have expired before it was stopped.
    match switch_state(paths)? {
        None => Err(InstallError::NothingToConfirm),
        Some(Confirmation::Reverted) => Err(InstallError::Reverted),
        Some(_) => Ok(InstallRecord::set_confirmed(paths, true)?),
    }
}
