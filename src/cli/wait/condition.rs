//! The condition for which `wait` waits, and its state for a pod.

use std::fmt;
use std::str::FromStr;

use super::super::pod_arg::owner;
use crate::admin::api::{StatusContainer, StatusPod};
use crate::config::{Until, ValueError};
use crate::terminal::sanitize;

/// Condition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitCondition {
    Ready,
    Succeeded,
    Deleted,
    Restarts(u32),
}

/// State of the condition for the pods of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WaitState {
    Met,
    /// The condition may still be met.
    Pending(String),
    /// The condition can no longer be met.
    Failed(String),
}

impl WaitCondition {
    /// Returns the state of the condition for a pod.
    pub(super) fn state(self, pod: &StatusPod) -> WaitState {
        let (name, phase) = (sanitize(&owner(pod)), pod.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        let is_met = match self {
            Self::Ready => pod.ready == Some(true),
            Self::Succeeded => phase == Some("Succeeded"),
            Self::Deleted => false,
            Self::Restarts(count) => restarts(pod) >= count,
        };
        if is_met {
            return WaitState::Met;
        }
        let shown = description(pod);
        // Before its first sync, a managed pod has neither readiness nor phase.
        let is_managed = pod.status.is_some();
        match self {
            Self::Ready if pod.ready.is_none() && phase.is_none() && !is_managed => WaitState::Failed(
                format!("{name} has no readiness, because probeshim neither runs nor probes it"),
            ),
            Self::Succeeded if phase.is_none() && !is_managed => {
                WaitState::Failed(format!("{name} has no phase, because probeshim does not run it"))
            }
            Self::Deleted => WaitState::Pending(format!("{name} exists ({shown})")),
            Self::Succeeded if phase == Some("Failed") => {
                WaitState::Failed(format!("{name} has failed ({shown})"))
            }
            Self::Ready | Self::Restarts(_) if has_ended => {
                WaitState::Failed(format!("{name} has ended and cannot meet the condition {self} ({shown})"))
            }
            Self::Ready => WaitState::Pending(format!("{name} is not ready ({shown})")),
            Self::Succeeded => WaitState::Pending(format!("{name} has not ended ({shown})")),
            Self::Restarts(_) => {
                WaitState::Pending(format!("{name} has been restarted {} times ({shown})", restarts(pod)))
            }
        }
    }
}

/// Returns the restart count of a pod, or the highest attempt of its containers if probeshim does
/// not run it.
fn restarts(pod: &StatusPod) -> u32 {
    let attempts = pod.containers.iter().filter_map(|container| container.attempt);
    pod.restarts.or_else(|| attempts.max()).unwrap_or(0)
}

/// Returns the state of a pod, and of its first container with a reason, or else the reason why the
/// pod is not ready although its containers are.
fn description(pod: &StatusPod) -> String {
    let status = pod.status.as_deref().or(pod.phase.as_deref()).unwrap_or(&pod.sandbox);
    let explained = |container: &&StatusContainer| {
        container.ready != Some(true)
            && (container.message.is_some() || container.exit_code.is_some_and(|code| code != 0))
    };
    let Some(container) = pod.containers.iter().find(explained) else {
        let condition = |kind: &str| pod.conditions.iter().find(|it| it.r#type == kind);
        let are_containers_ready = condition("ContainersReady").is_some_and(|it| it.status == "True");
        let ready = condition("Ready").filter(|_| are_containers_ready);
        let message = ready.and_then(|it| it.message.as_deref());
        let message = pod.message.as_deref().or(message);
        return sanitize(&[Some(status), message].into_iter().flatten().collect::<Vec<_>>().join("; "));
    };
    let name = container.name.as_deref().unwrap_or_default();
    let exit = container.exit_code.map(|code| format!(" exited with code {code}"));
    let message = container.message.as_deref().map(|message| format!(": {}", message.trim()));
    sanitize(&format!("{status}; {name}{}{}", exit.unwrap_or_default(), message.unwrap_or_default()))
}

impl fmt::Display for WaitCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Succeeded => f.write_str("succeeded"),
            Self::Deleted => f.write_str("deleted"),
            Self::Restarts(count) => write!(f, "restarts={count}"),
        }
    }
}

impl FromStr for WaitCondition {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.to_ascii_lowercase().as_str() {
            // A workload is available once enough of its pods are ready; wait waits for all.
            "ready" | "condition=ready" | "condition=ready=true" | "condition=available" => Ok(Self::Ready),
            "succeeded" => Ok(Self::Succeeded),
            "deleted" | "delete" => Ok(Self::Deleted),
            _ => match text.parse() {
                Ok(Until::Restarts(count)) => Ok(Self::Restarts(count)),
                _ => Err(ValueError::expected("ready, succeeded, deleted, or restarts=N with N from 1")),
            },
        }
    }
}
