//! `probeshim wait`

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::time::{Instant, sleep};

use super::CliError;
use super::admin_args::AdminArgs;
use super::pod_arg::{NamespaceArg, find_pod, owner, without_kind};
use super::workload_arg::WorkloadArg;
use crate::admin::api::{Status, StatusContainer, StatusPod};
use crate::admin::{Client, ClientError};
use crate::config::{BoundedDuration, Until, ValueError};
use crate::terminal::screen::print;
use crate::terminal::{format, sanitize};

/// Interval between queries of the pods.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub struct WaitCommand {
    /// Pods: NAME, NAMESPACE/NAME, pod/NAME or uid. A pod that does not exist yet is awaited
    #[arg(value_name = "POD", required = true)]
    pods: Vec<String>,

    /// Condition for each pod: ready, succeeded, deleted, or restarts=N (restarted at least N
    /// times). kubectl's condition=Ready and delete are accepted too
    #[arg(
        long = "for",
        value_name = "ready|succeeded|deleted|restarts=N",
        default_value = "ready",
        allow_hyphen_values = true
    )]
    condition: WaitCondition,

    /// Time after which the exit code is 1, 1s to 24h
    #[arg(long, value_name = "DURATION", default_value = "30s", allow_hyphen_values = true)]
    timeout: BoundedDuration<1>,

    #[command(flatten)]
    namespace: NamespaceArg,

    #[command(flatten)]
    at: AdminArgs,
}

/// Condition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitCondition {
    Ready,
    Succeeded,
    Deleted,
    Restarts(u32),
}

/// State of the condition for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitState {
    Met,
    /// The condition may still be met.
    Pending(String),
    /// The condition can no longer be met.
    Failed(String),
}

impl WaitCommand {
    /// Queries the pods until the condition is met for each of them. Returns an error after the
    /// timeout, or as soon as the condition can no longer be met.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let (namespace, timeout) = (self.namespace.namespace.as_deref(), Duration::from(self.timeout));
        let deadline = Instant::now() + timeout;
        let (mut waiting, mut has_answered) = (self.pods, false);
        loop {
            let (pods, absence) = match pods(&client).await {
                Ok(pods) => {
                    has_answered = true;
                    (pods, None)
                }
                // The probeshim may be about to start.
                Err(error @ ClientError::NotRunning { .. }) => (Vec::new(), Some(error.to_string())),
                Err(error) => return Err(error.into()),
            };
            let mut pending = Vec::new();
            for name in std::mem::take(&mut waiting) {
                match state(&pods, &name, namespace, self.condition)? {
                    // The pods of a probeshim that has ended are gone; of one that never answered,
                    // nothing is known.
                    WaitState::Met if absence.is_some() && !has_answered => {
                        pending.extend(absence.clone());
                        waiting.push(name);
                    }
                    WaitState::Met => {
                        print(&format!("pod/{} condition met\n", sanitize(without_kind(&name))))?;
                    }
                    WaitState::Failed(reason) => return Err(anyhow!("{reason}").into()),
                    WaitState::Pending(reason) => {
                        pending.push(absence.clone().unwrap_or(reason));
                        waiting.push(name);
                    }
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                pending.dedup();
                let (timeout, reasons) = (format::duration(timeout), pending.join("; "));
                return Err(
                    anyhow!("timed out after {timeout} waiting for {}: {reasons}", self.condition).into()
                );
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Queries the pods of the node.
async fn pods(client: &Client) -> Result<Vec<StatusPod>, ClientError> {
    let answer = client.status().await?;
    let status: Result<Status, _> = serde_json::from_slice(&answer);
    let status = status.context("the response is not a status");
    Ok(status.map_err(|error| client.invalid_response(&format!("{error:#}")))?.pods)
}

/// Returns the state of the condition for the pod with this name. An ambiguous name is an error.
fn state(
    pods: &[StatusPod],
    name: &str,
    namespace: Option<&str>,
    condition: WaitCondition,
) -> Result<WaitState, CliError> {
    let plain = without_kind(name);
    let is_it = |pod: &&StatusPod| {
        namespace.is_none_or(|namespace| pod.namespace.as_deref() == Some(namespace))
            && (pod.name.as_deref() == Some(plain)
                || pod.uid.as_deref() == Some(plain)
                || owner(pod) == plain)
    };
    // The final status of a removed pod is shown for a while, also beside a new pod of its name.
    let (removed, present): (Vec<StatusPod>, Vec<StatusPod>) =
        pods.iter().filter(is_it).cloned().partition(|pod| pod.removed.is_some());
    let found = match (present.is_empty(), condition) {
        (false, _) => present,
        (true, _) if removed.is_empty() && WorkloadArg::parse(plain).is_some() => {
            let hint = "wait takes pods: play --until waits for all pods of workloads";
            return Err(CliError::Usage(format!("POD {:?} is a workload; {hint}", sanitize(plain))));
        }
        (true, WaitCondition::Deleted) => return Ok(WaitState::Met),
        (true, _) if removed.is_empty() => {
            return Ok(WaitState::Pending(format!("pod {:?} does not exist", sanitize(plain))));
        }
        (true, _) => removed,
    };
    Ok(condition.state(find_pod(&found, plain, namespace)?))
}

impl WaitCondition {
    /// Returns the state of the condition for a pod.
    fn state(self, pod: &StatusPod) -> WaitState {
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
            "ready" | "condition=ready" | "condition=ready=true" => Ok(Self::Ready),
            "succeeded" => Ok(Self::Succeeded),
            "deleted" | "delete" => Ok(Self::Deleted),
            _ => match text.parse() {
                Ok(Until::Restarts(count)) => Ok(Self::Restarts(count)),
                _ => Err(ValueError::expected("ready, succeeded, deleted, or restarts=N with N from 1")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: &serde_json::Value) -> StatusPod {
        let mut pod = serde_json::json!({
            "namespace": "shop", "name": "web", "uid": "1", "id": "a", "sandbox": "ready", "ip": null,
            "source": "play", "containers": [],
        });
        pod.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
        serde_json::from_value(pod).unwrap()
    }

    fn state_of(pods: &[StatusPod], condition: &str) -> WaitState {
        state(pods, "pod/web", None, condition.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_wait_condition_is_met_pending_or_impossible() {
        let running = [pod(&serde_json::json!({"phase": "Running", "status": "Running", "ready": true}))];
        for condition in ["ready", "condition=Ready"] {
            assert_eq!(state_of(&running, condition), WaitState::Met);
        }
        let exists = WaitState::Pending("shop/web exists (Running)".to_owned());
        assert_eq!(state_of(&running, "delete"), exists);
        assert_eq!(state_of(&[], "deleted"), WaitState::Met);
        let new = [pod(&serde_json::json!({"status": "Pending"}))];
        let pending = WaitState::Pending("shop/web is not ready (Pending)".to_owned());
        assert_eq!(state_of(&new, "ready"), pending, "before the first sync");
        assert!(matches!(state_of(&[pod(&serde_json::json!({}))], "ready"), WaitState::Failed(_)));
        assert!(state(&[], "deploy/web", None, WaitCondition::Ready).is_err(), "a workload is no pod");
        let absent = WaitState::Pending("pod \"web\" does not exist".to_owned());
        assert_eq!(state_of(&[], "ready"), absent);
        let failed = [pod(&serde_json::json!({"phase": "Failed", "status": "Error", "ready": false}))];
        assert_eq!(
            state_of(&failed, "succeeded"),
            WaitState::Failed("shop/web has failed (Error)".to_owned())
        );
        assert!(matches!(state_of(&failed, "restarts=1"), WaitState::Failed(_)));
        let container = serde_json::json!({
            "name": "main", "id": "", "attempt": null, "state": "waiting", "exitCode": null,
            "reason": "CrashLoopBackOff", "message": "back-off 10s", "ready": false, "source": "play",
        });
        let crashing = [pod(&serde_json::json!({
            "phase": "Running", "status": "CrashLoopBackOff", "ready": false, "restarts": 2, "containers": [container],
        }))];
        let reason = "shop/web is not ready (CrashLoopBackOff; main: back-off 10s)".to_owned();
        assert_eq!(state_of(&crashing, "ready"), WaitState::Pending(reason));
        assert_eq!(state_of(&crashing, "restarts=2"), WaitState::Met);
        let gated = [pod(&serde_json::json!({
            "phase": "Running", "status": "Running", "ready": false, "conditions": [
                {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "no gate"},
                {"type": "ContainersReady", "status": "True"},
            ],
        }))];
        let reason = "shop/web is not ready (Running; no gate)".to_owned();
        assert_eq!(state_of(&gated, "ready"), WaitState::Pending(reason));
    }

    #[test]
    fn wait_distinguishes_pods_of_the_same_name_and_removed_pods() {
        let removed = pod(
            &serde_json::json!({"phase": "Succeeded", "ready": false, "removed": "2026-11-22T12:00:00Z"}),
        );
        let other =
            pod(&serde_json::json!({"namespace": "other", "uid": "2", "phase": "Running", "ready": false}));
        assert_eq!(state_of(std::slice::from_ref(&removed), "deleted"), WaitState::Met);
        assert_eq!(state_of(std::slice::from_ref(&removed), "succeeded"), WaitState::Met);
        let both = [pod(&serde_json::json!({"ready": true})), other];
        assert!(state(&both, "web", None, WaitCondition::Ready).is_err());
        assert_eq!(state(&both, "web", Some("shop"), WaitCondition::Ready).unwrap(), WaitState::Met);
        assert!(WaitCondition::from_str("restarts=0").is_err());
    }
}
