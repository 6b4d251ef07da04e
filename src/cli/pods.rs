//! `probeshim pods`

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::pod_list::{PodList, PodListArgs};
use super::pod_summary::PodSummary;
use super::table::{Cell, Column, Table};
use super::watch::{WatchItem, WatchOutput, watch};
use crate::admin::Client;
use crate::admin::api::StatusPod;
use crate::terminal::sanitize;
use crate::terminal::screen::{Screen, print};

/// Number of characters of a sandbox's id that are shown, as in crictl.
const SHORT_ID: usize = 13;

/// Minimum width of the last column. In a narrower column, its texts are shown below their rows.
const MIN_LAST_WIDTH: usize = 24;

/// Arguments of `pods`.
#[derive(Debug, Args)]
pub struct PodsCommand {
    #[command(flatten)]
    at: AdminArgs,

    #[command(flatten)]
    which: PodListArgs,

    /// Show pods again whenever they change
    #[arg(short, long, visible_alias = "follow")]
    watch: bool,

    /// Output format: table, wide, json, yaml or name. json and yaml of one POD that probeshim
    /// manages are its object in /pods
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::LISTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl PodsCommand {
    /// Queries the pods and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let list = PodList::query(&client).await?;
        self.which.validate(&list)?;
        if self.watch {
            return watch_pods(&client, &self.which, self.output).await;
        }
        let pods = self.which.select(&list);
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                if let ([_], [pod]) = (&self.which.pods[..], &pods[..])
                    && let Some(object) = managed_object(&client, pod).await?
                {
                    print(&self.output.document(&object)?)?;
                } else {
                    let newest = pods.iter().filter_map(|pod| list.json(pod.last()?));
                    let newest: Vec<&RawValue> = newest.collect();
                    let text = match (&self.which.pods[..], &newest[..]) {
                        ([_], [pod]) => self.output.document(pod)?,
                        _ => self.output.list(&newest)?,
                    };
                    print(&text)?;
                }
            }
            OutputFormat::Name => {
                print(&pods.iter().filter_map(|pod| name(pod)).collect::<String>())?;
            }
            _ if pods.is_empty() => {
                print(&self.which.nothing("pods"))?;
            }
            _ => {
                let screen = Screen::stdout();
                let with_namespace = self.which.shows_namespaces(&pods);
                let is_wide = self.output == OutputFormat::Wide;
                screen.print(&table(&pods, is_wide, with_namespace, Timestamp::now(), screen))?;
            }
        }
        Ok(())
    }
}

/// Returns the object of a managed pod in `/pods`; `None` for another pod.
pub(super) async fn managed_object(
    client: &Client,
    sandboxes: &[&StatusPod],
) -> Result<Option<Box<RawValue>>, CliError> {
    let Some(pod) = sandboxes.last().filter(|pod| pod.status.is_some()) else { return Ok(None) };
    let list: serde_json::Value =
        serde_json::from_slice(&client.pods().await?).context("the response is not a list of pods")?;
    let is_it = |item: &&serde_json::Value| {
        let text = |field: &str| item["metadata"][field].as_str().map(str::to_owned);
        (text("namespace"), text("name")) == (pod.namespace.clone(), pod.name.clone())
    };
    let item = list["items"].as_array().into_iter().flatten().find(is_it);
    let item = item.context("the pod was removed meanwhile")?;
    Ok(Some(to_raw_value(item).context("the pod cannot be written as JSON")?))
}

async fn watch_pods(client: &Client, which: &PodListArgs, output: OutputFormat) -> Result<(), CliError> {
    let (is_wide, with_namespace) = (output == OutputFormat::Wide, which.watch_shows_namespaces());
    let item = |list: &PodList, pod: &[&StatusPod]| {
        let summary = PodSummary::new(pod, Timestamp::now())?;
        let document = |text: Result<String, CliError>| text.map(WatchOutput::Document);
        let output = match output {
            OutputFormat::Json | OutputFormat::Yaml => document(output.streamed(list.json(pod.last()?)?)),
            OutputFormat::Name => document(Ok(name(pod)?)),
            _ => Ok(WatchOutput::Row(row(&summary, is_wide, with_namespace))),
        };
        let state = summary.without_times();
        let key = format!("{}/{} {:?}", summary.namespace, summary.name, pod.last()?.uid);
        Some(output.map(|output| WatchItem { key, state: format!("{state:?}"), output }))
    };
    watch(columns(is_wide, with_namespace), async || {
        let list = PodList::query(client).await?;
        which.select(&list).iter().filter_map(|pod| item(&list, pod)).collect()
    })
    .await
}

/// Returns the name of a pod with its kind, as a line.
fn name(sandboxes: &[&StatusPod]) -> Option<String> {
    let name = sandboxes.last()?.name.as_deref()?;
    Some(format!("pod/{}\n", sanitize(name)))
}

/// Returns the table of these pods.
fn table(
    pods: &[Vec<&StatusPod>],
    is_wide: bool,
    with_namespace: bool,
    now: Timestamp,
    screen: Screen,
) -> String {
    let summaries = pods.iter().filter_map(|pod| PodSummary::new(pod, now));
    let rows: Vec<Vec<Cell>> = summaries.map(|summary| row(&summary, is_wide, with_namespace)).collect();
    Table::new(columns(is_wide, with_namespace), screen).render_complete(&rows, MIN_LAST_WIDTH)
}

fn columns(is_wide: bool, with_namespace: bool) -> Vec<Column> {
    let namespace = with_namespace.then(|| Column::text("NAMESPACE"));
    let common = [
        Column::text("NAME"),
        Column::text("READY"),
        Column::text("STATUS"),
        Column::text("RESTARTS"),
        Column::text("AGE"),
    ];
    let wide = [
        Column::text("IP"),
        Column::text("SANDBOX").optional(),
        Column::text("STATE").optional(),
        Column::text("CONTAINERS"),
    ];
    let wide = wide.into_iter().filter(|_| is_wide);
    namespace.into_iter().chain(common).chain(wide).collect()
}

fn row(pod: &PodSummary, is_wide: bool, with_namespace: bool) -> Vec<Cell> {
    let namespace = with_namespace.then(|| Cell::new(&pod.namespace));
    let common = [
        Cell::new(&pod.name),
        Cell::new(&pod.ready),
        Cell::styled(&pod.status, pod.style()),
        Cell::new(&pod.restarts),
        Cell::new(&pod.age),
    ];
    let sandbox: String = pod.sandbox.chars().take(SHORT_ID).collect();
    let wide = [&pod.ip, &sandbox, &pod.sandbox_state, &pod.containers].map(Cell::new);
    namespace.into_iter().chain(common).chain(wide.into_iter().filter(|_| is_wide)).collect()
}

#[cfg(test)]
mod tests;
