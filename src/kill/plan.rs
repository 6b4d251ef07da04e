//! Plan for the stop of one container.

use crate::manifest::Hook;
use std::time::Duration;

/// Plan for the stop of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KillPlan {
    /// Message of the `Killing` event, see [`message`](super::message).
    pub(crate) message: String,
    /// Grace period in seconds, for the preStop hook and the end of the container together.
    pub(crate) grace_period: u32,
    /// `PreStop` hook of the container, if it has one.
    pub(crate) pre_stop: Option<Hook>,
    /// Reason that blocks the plan: a part of the container's specification is unreadable.
    pub(crate) blocked_by: Option<String>,
}

impl KillPlan {
    /// Shortest time that the kubelet gives a container for its end, in seconds
    /// (`minimumGracePeriodInSeconds`).
    const MIN_GRACE_PERIOD: u32 = 2;

    /// Returns the time limit of the hook; `None` if the grace period is 0, because no hook runs
    /// then.
    pub(crate) fn hook_period(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.grace_period.into())).filter(|period| !period.is_zero())
    }

    /// Returns the seconds that remain for the predecessors and the container after its hook took
    /// `hook`. As in the kubelet, only whole seconds are subtracted.
    pub(crate) fn grace_period_after(&self, hook: Duration) -> u32 {
        let taken = u32::try_from(hook.as_secs()).unwrap_or(u32::MAX);
        self.grace_period.saturating_sub(taken)
    }

    /// Returns the timeout of `StopContainer` if `left` seconds of the grace period remain.
    pub(crate) fn stop_timeout(left: u32) -> u32 {
        left.max(Self::MIN_GRACE_PERIOD)
    }
}
