//! `probeshim delete`

use std::time::Duration;

use clap::{ArgAction, Args};
use tokio::time::sleep;

use super::CliError;
use super::admin_args::AdminArgs;
use super::pod_arg::{NamespaceArg, find_pod};
use super::query::query_status;
use crate::admin::api::{DeleteQuery, StatusPod};
use crate::config::whole_number;
use crate::terminal::harmless_name;
use crate::terminal::screen::print;

/// Interval between two looks at a pod that is being deleted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct DeleteCommand {
    /// Name of the pod, NAMESPACE/NAME, or uid. The word pod may precede it, as in kubectl
    #[arg(value_name = "POD", required = true, num_args = 1..=2)]
    pod: Vec<String>,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// Seconds that the containers have to end, 0 to 2147483647 [default: the pod's own]
    #[arg(long, value_name = "SECONDS", value_parser = whole_number::<u32, 0, { i32::MAX as u64 }>)]
    grace_period: Option<u32>,

    /// Whether to wait until the pod is gone
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set)]
    wait: bool,

    #[command(flatten)]
    at: AdminArgs,
}

impl DeleteCommand {
    /// Requests the termination of the pod, reports it as kubectl does, and waits until nothing of
    /// the pod is left.
    pub async fn run(self) -> Result<(), CliError> {
        let Self { pod, namespace, grace_period, wait, at } = self;
        let name = match &pod[..] {
            [name] => name,
            [kind, name] if matches!(kind.as_str(), "pod" | "pods" | "po") => name,
            _ => return Err(CliError::Usage("only pods can be deleted: write delete POD".to_owned())),
        };
        let client = at.client()?;
        let mut pods = query_status(&client).await?.pods;
        pods.retain(|pod| pod.removed.is_none());
        let pod = find_pod(&pods, name, namespace.namespace.as_deref())?.clone();
        let [namespace, name] = [&pod.namespace, &pod.name].map(|text| text.clone().unwrap_or_default());
        let query = DeleteQuery { uid: pod.uid.clone(), grace_period_seconds: grace_period };
        client.delete_pod(&namespace, &name, &query).await?;
        let [namespace, name] = [namespace, name].map(|text| harmless_name(&text));
        print(&format!("pod {name:?} deleted from {namespace} namespace\n"))?;
        if wait {
            let is_it = |known: &StatusPod| known.uid == pod.uid && known.removed.is_none();
            while query_status(&client).await?.pods.iter().any(is_it) {
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}
