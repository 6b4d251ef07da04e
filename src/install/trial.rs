//! Switches a kubelet on trial: the switch stays only if it is confirmed.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::InstallError;
use super::confirm::{Confirmation, confirm, has_timer, switch_state};
use super::finding::Finding;
use super::installer::Installer;
use super::paths::Paths;
use super::plan::InstallPlan;
use super::systemctl::ServiceManager;
use crate::terminal::format;

/// Part of the time for the confirmation that is left to the user after the checks.
const CHECKS_SHARE: u32 = 2;

/// Interval at which a confirmation by another process, or the revert, is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which a missing timer is noticed. A confirmation stops the timer before it is
/// recorded, which takes less time.
const TIMER_INTERVAL: Duration = Duration::from_secs(10);

/// Decision about a switch whose checks have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialDecision {
    /// The user confirms the switch.
    Confirm,
    /// Another process has confirmed the switch.
    ConfirmedByOther,
    /// Another process has reverted the switch.
    RevertedByOther,
}

/// A switch that was not confirmed.
#[derive(Debug)]
pub struct FailedTrial<E> {
    /// Cause of the end.
    pub cause: E,
    /// Whether the switch was reverted now, or the error of the revert. False if there was no
    /// switch, or if it was confirmed before.
    pub reverted: Result<bool, InstallError>,
}

impl Installer<'_> {
    /// Points the kubelet at probeshim, shows the results of the checks, and confirms the switch if
    /// `decide` does. Reverts it immediately if a check fails, on any error, and once `interrupted`
    /// is ready.
    pub async fn try_switch<E: From<InstallError>>(
        &self,
        plan: InstallPlan,
        show: impl FnOnce(&[Finding]) -> Result<(), E>,
        decide: impl AsyncFnOnce() -> Result<TrialDecision, E>,
        interrupted: impl Future<Output = ()>,
    ) -> Result<(), FailedTrial<E>> {
        let check_failed = Cell::new(false);
        let trial = async {
            let time = plan.confirm_within.checked_div(CHECKS_SHARE).unwrap_or_default();
            let Some(checks) = self.switch_kubelet(&plan)? else { return Ok(()) };
            // Other processes may confirm the switch or remove it from here on.
            drop(plan);
            (self.report)(&format!(
                "checking the kubelet's health, lists, calls and exec probes, for at most {}",
                format::duration(time)
            ));
            let findings = checks.run(Instant::now() + time).await;
            check_failed.set(Finding::any_failed(&findings));
            show(&findings)?;
            if check_failed.get() {
                return Err(InstallError::CheckFailed.into());
            }
            if switch_state(self.paths)? == Some(Confirmation::Confirmed) {
                return Ok(());
            }
            match decide().await? {
                TrialDecision::Confirm => Ok(confirm(self.paths, self.manager)?),
                TrialDecision::ConfirmedByOther => Ok(()),
                TrialDecision::RevertedByOther => Err(InstallError::Reverted.into()),
            }
        };
        // The branches are dropped before the result is used, and the lock of the plan with them.
        let result = tokio::select! {
            biased;
            result = trial => result,
            () = interrupted => Err(InstallError::Interrupted.into()),
        };
        result.map_err(|cause| {
            // A confirmed switch stays after an error that is not its fault.
            let is_confirmed =
                switch_state(self.paths).is_ok_and(|state| state == Some(Confirmation::Confirmed));
            let stays = is_confirmed && !check_failed.get();
            let reverted = if stays { Ok(false) } else { self.revert() };
            FailedTrial { cause, reverted }
        })
    }
}

/// Waits until another process or the timer has decided about the switch. Fails if no timer is left
/// that would revert it.
pub async fn decision_by_others(
    paths: &Paths,
    manager: &dyn ServiceManager,
) -> Result<TrialDecision, InstallError> {
    let mut was_missing = false;
    loop {
        let end = Instant::now() + TIMER_INTERVAL;
        while Instant::now() < end {
            match switch_state(paths)? {
                Some(Confirmation::Awaited) => sleep(POLL_INTERVAL).await,
                Some(Confirmation::Confirmed) => return Ok(TrialDecision::ConfirmedByOther),
                Some(Confirmation::Reverted) | None => return Ok(TrialDecision::RevertedByOther),
            }
        }
        let is_missing = has_timer(manager).is_ok_and(|has_timer| !has_timer);
        if is_missing && was_missing {
            return Err(InstallError::NoTimer);
        }
        was_missing = is_missing;
    }
}
