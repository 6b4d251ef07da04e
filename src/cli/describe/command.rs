//! Queries a pod, its events and its calls.

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::super::CliError;
use super::super::admin_args::AdminArgs;
use super::super::pod_arg::{NamespaceArg, find_one_pod};
use super::super::pod_list::PodList;
use super::super::pods::managed_object;
use super::super::probes::ObservedProbes;
use super::super::stderr::note;
use super::other::{self, Observed};
use super::render;
use crate::admin::Client;
use crate::admin::api::{Call, CallsQuery, Event, EventsQuery, StatusPod};
use crate::terminal::screen::Screen;

/// Number of calls that are shown of a pod that probeshim does not manage.
const CALLS: usize = 10;

/// Arguments of `describe`.
#[derive(Debug, Args)]
pub struct DescribeCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Pod to describe: NAME, NAMESPACE/NAME, uid, or KIND/NAME of a workload, of which one pod is
    /// chosen. The word pod before it is ignored
    #[arg(value_name = "POD", required = true, num_args = 1..=2)]
    pod: Vec<String>,

    #[command(flatten)]
    namespace: NamespaceArg,
}

impl DescribeCommand {
    /// Queries the pod and prints its description.
    pub async fn run(self) -> Result<(), CliError> {
        let name = match &self.pod[..] {
            [name] => name,
            [kind, name] if matches!(kind.as_str(), "pod" | "pods" | "po") => name,
            _ => return Err(CliError::Usage("describe takes one POD".to_owned())),
        };
        let client = self.at.client()?;
        let list = PodList::query(&client).await?;
        let (pod, remark) = find_one_pod(&list.sandboxes, name, self.namespace.namespace.as_deref())?;
        if let Some(remark) = remark {
            note(&remark);
        }
        let is_same = |known: &&StatusPod| {
            (&known.namespace, &known.name, &known.uid) == (&pod.namespace, &pod.name, &pod.uid)
        };
        let sandboxes: Vec<&StatusPod> = list.sandboxes.iter().filter(is_same).collect();
        let events = events(&client).await?;
        let is_about = |event: &&Event| event.namespace == pod.namespace && event.pod == pod.name;
        let events: Vec<&Event> = events.iter().filter(is_about).collect();
        let (now, screen) = (Timestamp::now(), Screen::stdout());
        let text = if let Some(object) = managed_object(&client, &sandboxes).await? {
            let object: Pod =
                serde_json::from_str(object.get()).context("the response is not a list of pods")?;
            render(object, pod, &events, &list.mode, now, screen)
        } else {
            let probes =
                ObservedProbes::query(&client, &list.sandboxes, Some(std::slice::from_ref(&sandboxes)))
                    .await?;
            let observed =
                Observed { events: &events, calls: &calls(&client, pod).await?, probes: probes.of_pod() };
            other::render(&sandboxes, &observed, &list.mode, now, screen)
        };
        screen.print(&text)?;
        Ok(())
    }
}

async fn events(client: &Client) -> Result<Vec<Event>, CliError> {
    let events = client.events(&EventsQuery::default()).await?;
    Ok(serde_json::from_slice(&events).context("the response is not a list of events")?)
}

/// Returns the last calls about a pod.
async fn calls(client: &Client, pod: &StatusPod) -> Result<Vec<Call>, CliError> {
    let query = CallsQuery { pod: Some(pod.id.clone()), last: Some(CALLS), ..CallsQuery::default() };
    let calls = client.calls(&query).await?;
    Ok(serde_json::from_slice(&calls).context("the response is not a list of calls")?)
}
