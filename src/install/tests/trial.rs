//! A switch of the kubelet that is not confirmed, and commands that run at the same time.

use std::future::{pending, ready};
use std::pin::pin;
use std::sync::mpsc;
use std::thread;

use tokio::time::timeout;

use super::*;

impl TestNode {
    /// Switches the kubelet to a runtime that no process serves, so that the checks fail.
    async fn try_switch(
        &self,
        decision: Result<TrialDecision, InstallError>,
        interrupted: impl Future<Output = ()>,
    ) -> Result<(), FailedTrial<InstallError>> {
        let plan = self.plan().await.unwrap();
        let installer = Installer { paths: &self.paths, manager: &self.manager, report: &|_| {} };
        installer.install(&plan).unwrap();
        let show = |_: &[Finding]| Ok(());
        installer.try_switch(plan, show, async || decision, interrupted).await
    }

    fn state(&self) -> Option<Confirmation> {
        switch_state(&self.paths).unwrap()
    }
}

#[tokio::test]
async fn a_failed_check_reverts_the_change_also_if_it_was_confirmed_before() {
    let node = TestNode::new();
    let failed = node.try_switch(Ok(TrialDecision::Confirm), pending()).await.unwrap_err();
    assert!(matches!(failed.cause, InstallError::CheckFailed), "{failed:?}");
    assert!(matches!(failed.reverted, Ok(true)), "{failed:?}");
    assert!(!node.kubelet_uses_probeshim());
    assert!(!node.manager.has_timer.get());
    node.install().await.unwrap();
    confirm(&node.paths, &node.manager).unwrap();
    let failed = node.try_switch(Ok(TrialDecision::Confirm), pending()).await.unwrap_err();
    assert!(matches!(failed.reverted, Ok(true)), "{failed:?}");
    assert!(!node.kubelet_uses_probeshim());
}

#[tokio::test]
async fn a_signal_during_the_checks_reverts_the_change_unless_it_was_confirmed_before() {
    let node = TestNode::new();
    let failed = node.try_switch(Ok(TrialDecision::Confirm), ready(())).await.unwrap_err();
    assert!(matches!(failed.cause, InstallError::Interrupted), "{failed:?}");
    assert!(matches!(failed.reverted, Ok(true)), "{failed:?}");
    assert_eq!(node.state(), Some(Confirmation::Reverted));
    assert!(!node.kubelet_uses_probeshim());
    node.install().await.unwrap();
    confirm(&node.paths, &node.manager).unwrap();
    let failed = node.try_switch(Ok(TrialDecision::Confirm), ready(())).await.unwrap_err();
    assert!(matches!(failed.reverted, Ok(false)), "{failed:?}");
    assert!(node.kubelet_uses_probeshim());
}

#[tokio::test]
async fn an_error_after_any_step_of_the_change_reverts_it() {
    let node = TestNode::new();
    let plan = node.plan().await.unwrap();
    let installer = Installer { paths: &node.paths, manager: &node.manager, report: &|_| {} };
    installer.install(&plan).unwrap();
    let first = node.manager.steps.borrow().len() + 1;
    installer.switch_kubelet(&plan).unwrap();
    let last = node.manager.steps.borrow().len();
    drop(plan);
    assert!(first < last, "{:?}", node.manager.steps);
    node.uninstall().await.unwrap();
    for step in first..=last {
        for point in [KillPoint::Before, KillPoint::After] {
            node.kill_at(Some((step, point)));
            let failed = node.try_switch(Ok(TrialDecision::Confirm), pending()).await.unwrap_err();
            assert!(matches!(failed.cause, InstallError::ServiceManager(_)), "{failed:?}");
            assert!(failed.reverted.is_ok(), "{failed:?}");
            assert!(!node.kubelet_uses_probeshim(), "{step} {point:?}");
            assert!(!node.manager.has_timer.get(), "{step} {point:?}");
            node.kill_at(None);
            node.uninstall().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_confirmation_lasts_as_long_as_a_timer_runs_and_fails_without_one() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let mut decision = pin!(decision_by_others(&node.paths, &node.manager));
    assert!(timeout(Duration::from_secs(7200), &mut decision).await.is_err());
    node.manager.has_timer.set(false);
    assert!(matches!(decision.await, Err(InstallError::NoTimer)));
}

#[tokio::test]
async fn a_confirmation_during_the_revert_does_not_confirm() {
    let node = TestNode::new();
    node.install().await.unwrap();
    // The timer has expired, and the bypass has not removed the file yet.
    node.manager.bypass_state.set("activating");
    assert!(matches!(confirm(&node.paths, &node.manager), Err(InstallError::Reverted)));
    assert_ne!(node.state(), Some(Confirmation::Confirmed));
}

#[tokio::test]
async fn a_confirmation_that_was_interrupted_is_shown_as_a_change_without_a_timer() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let endpoint = async || {
        let findings = diagnose(&node.paths, &node.manager).await.unwrap();
        findings.into_iter().find(|finding| finding.check == "kubelet endpoint").unwrap()
    };
    assert!(endpoint().await.detail.contains("it is reverted after its time"));
    node.kill_at(Some((1, KillPoint::After)));
    confirm(&node.paths, &node.manager).unwrap_err();
    assert_eq!(node.state(), Some(Confirmation::Awaited));
    let finding = endpoint().await;
    assert_eq!(finding.detail, "the change is not confirmed, and no timer runs that reverts it");
    node.kill_at(None);
    confirm(&node.paths, &node.manager).unwrap();
    assert_eq!(node.state(), Some(Confirmation::Confirmed));
}

#[tokio::test]
async fn a_confirmation_stops_the_timer_of_an_interrupted_repetition() {
    let node = TestNode::new();
    node.install().await.unwrap();
    confirm(&node.paths, &node.manager).unwrap();
    node.manager.has_timer.set(true);
    confirm(&node.paths, &node.manager).unwrap();
    assert!(!node.manager.has_timer.get());
}

#[tokio::test]
async fn a_second_command_waits_until_the_first_has_made_its_changes() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let plan = node.plan().await.unwrap();
    let (sender, receiver) = mpsc::channel();
    let paths = node.paths.clone();
    let second = thread::spawn(move || {
        let manager = FakeManager::new(paths.clone());
        sender.send("started").unwrap();
        confirm(&paths, &manager).unwrap();
        sender.send("confirmed").unwrap();
    });
    assert_eq!(receiver.recv().unwrap(), "started");
    let installer = Installer { paths: &node.paths, manager: &node.manager, report: &|_| {} };
    installer.install(&plan).unwrap();
    installer.switch_kubelet(&plan).unwrap();
    // Neither command loses the change of the other.
    assert_eq!(node.state(), Some(Confirmation::Awaited));
    drop(plan);
    assert_eq!(receiver.recv().unwrap(), "confirmed");
    second.join().unwrap();
    assert_eq!(node.state(), Some(Confirmation::Confirmed));
}
