//! `probeshim wait`

mod condition;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{ArgGroup, Args};
use tokio::time::{Instant, sleep};

use super::CliError;
use super::admin_args::AdminArgs;
use super::label_selector::LabelSelector;
use super::pod_arg::NamespaceArg;
use crate::admin::api::{Status, StatusPod};
use crate::admin::{Client, ClientError};
use crate::config::BoundedDuration;
use crate::terminal::format;
use crate::terminal::screen::print;
use condition::{WaitCondition, WaitState};
use target::WaitTarget;

/// Interval between queries of the pods.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `wait`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("targets").required(true).multiple(true).args(["pods", "selector"])))]
pub struct WaitCommand {
    /// Pods: NAME, NAMESPACE/NAME, pod/NAME, uid, or KIND/NAME for all pods of a workload, such as
    /// deployment/web. A pod that does not exist yet is awaited
    #[arg(value_name = "POD")]
    pods: Vec<String>,

    /// Wait for all pods with these labels, such as app=web,tier!=cache; at least one
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true)]
    selector: Option<LabelSelector>,

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

impl WaitCommand {
    /// Queries the pods until the condition is met for each of them. Returns an error after the
    /// timeout, or as soon as the condition can no longer be met.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let (namespace, timeout) = (self.namespace.namespace.as_deref(), Duration::from(self.timeout));
        let deadline = Instant::now() + timeout;
        let named = self.pods.into_iter().map(WaitTarget::Named);
        let mut waiting: Vec<WaitTarget> = named.chain(self.selector.map(WaitTarget::Labelled)).collect();
        let mut has_answered = false;
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
            for target in std::mem::take(&mut waiting) {
                match target.state(&pods, namespace, self.condition)? {
                    // The pods of a probeshim that has ended are gone; of one that never answered,
                    // nothing is known.
                    WaitState::Met if absence.is_some() && !has_answered => {
                        pending.extend(absence.clone());
                        waiting.push(target);
                    }
                    WaitState::Met => {
                        print(&format!("{target} condition met\n"))?;
                    }
                    WaitState::Failed(reason) => return Err(anyhow!("{reason}").into()),
                    WaitState::Pending(reason) => {
                        pending.push(absence.clone().unwrap_or(reason));
                        waiting.push(target);
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
