//! `probeshim probes`

mod observed;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::pod_list::{PodList, PodListArgs};
use super::probe_result::{OFF, ProbeOfPod, probes};
use super::table::{Cell, Column, Table};
use super::watch::{WatchItem, WatchOutput, watch};
use crate::admin::Client;
use crate::admin::api::StatusPod;
use crate::terminal::screen::{Screen, print};
pub(super) use observed::ObservedProbes;

/// Minimum width of the last column. In a narrower column, its texts are shown below their rows.
const MIN_LAST_WIDTH: usize = 24;

/// Minimum width of the handlers with their timing.
const MIN_HANDLER_WIDTH: usize = 60;

/// End of the remark if probeshim runs no probes, and has observed none.
const NO_ATTEMPTS: &str = " yet: no client has executed an exec probe through probeshim, and probeshim runs probes only with --enforce dry-run, kill or restart";

/// Arguments of `probes`.
#[derive(Debug, Args)]
pub struct ProbesCommand {
    #[command(flatten)]
    at: AdminArgs,

    #[command(flatten)]
    which: PodListArgs,

    /// Show probes again whenever they change
    #[arg(short, long, visible_alias = "follow")]
    watch: bool,

    /// Output format: table, wide, json or yaml (a list of probes, each with its pod and container)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::WITHOUT_NAMES), hide_possible_values = true)]
    output: OutputFormat,
}

impl ProbesCommand {
    /// Queries the probes and prints them.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let list = PodList::query(&client).await?;
        self.which.validate(&list)?;
        if self.watch {
            return watch_probes(&client, &self.which, self.output).await;
        }
        if list.mode == OFF {
            return print_observed(&client, &self.which, self.output, &list).await;
        }
        let pods = self.which.select(&list);
        let probes: Vec<ProbeOfPod<'_>> = pods.iter().flat_map(|pod| probes(pod)).collect();
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let documents: Result<Vec<_>, _> = probes.iter().map(|probe| document(*probe)).collect();
                let documents = documents?;
                let documents: Vec<&RawValue> = documents.iter().map(AsRef::as_ref).collect();
                print(&self.output.list(&documents)?)?;
            }
            _ if probes.is_empty() => {
                print(&self.which.nothing("probes"))?;
            }
            _ => {
                let screen = Screen::stdout();
                let with_namespace = self.which.shows_namespaces(&pods);
                let is_wide = self.output == OutputFormat::Wide;
                screen.print(&table(
                    &probes,
                    &list.mode,
                    is_wide,
                    with_namespace,
                    Timestamp::now(),
                    screen,
                ))?;
            }
        }
        Ok(())
    }
}

/// Prints the probes of a probeshim that runs none itself.
async fn print_observed(
    client: &Client,
    which: &PodListArgs,
    output: OutputFormat,
    list: &PodList,
) -> Result<(), CliError> {
    let pods = which.select(list);
    let selected = which.is_selective().then_some(pods.as_slice());
    let probes = ObservedProbes::query(client, &list.sandboxes, selected).await?;
    match output {
        OutputFormat::Json | OutputFormat::Yaml => {
            let documents = probes.documents()?;
            let documents: Vec<&RawValue> = documents.iter().map(AsRef::as_ref).collect();
            print(&output.list(&documents)?)?;
        }
        _ if probes.is_empty() => {
            print(&format!("{}{NO_ATTEMPTS}\n", which.nothing("probes").trim_end()))?;
        }
        _ => {
            let screen = Screen::stdout();
            let with_namespace = which.shows_namespaces(&pods) || probes.has_namespaces();
            screen.print(&probes.table(with_namespace, screen))?;
        }
    }
    Ok(())
}

async fn watch_probes(client: &Client, which: &PodListArgs, output: OutputFormat) -> Result<(), CliError> {
    let (is_wide, with_namespace) = (output == OutputFormat::Wide, which.watch_shows_namespaces());
    let item = |probe: ProbeOfPod<'_>, mode: &str| {
        let now = Timestamp::now();
        let shown = match output {
            OutputFormat::Json | OutputFormat::Yaml => {
                WatchOutput::Document(output.streamed(&document(probe)?)?)
            }
            _ => WatchOutput::Row(row(probe, mode, is_wide, with_namespace, now)),
        };
        let key = format!("{} {} {}", probe.pod.id, probe.container.id, probe.probe.r#type);
        // The age of a result is not worth a row.
        let since = probe.probe.since.as_deref().or(probe.probe.running_since.as_deref());
        let since = since.and_then(|since| since.parse().ok());
        let result = probe.result(mode, since.unwrap_or(now));
        let state = format!("{result:?} {} {}", probe.probe.killed, probe.probe.would_have_killed);
        Ok(WatchItem { key, state, output: shown })
    };
    watch(columns(is_wide, with_namespace), async || {
        let list = PodList::query(client).await?;
        let pods = which.select(&list);
        pods.iter().flat_map(|pod| probes(pod)).map(|probe| item(probe, &list.mode)).collect()
    })
    .await
}

/// Returns a probe as JSON, with the names of its pod and container.
fn document(of: ProbeOfPod<'_>) -> Result<Box<RawValue>, CliError> {
    let ProbeOfPod { pod, container, probe } = of;
    let mut json = serde_json::to_value(probe).context("the probe cannot be written as JSON")?;
    if let Some(fields) = json.as_object_mut() {
        for (name, value) in
            [("namespace", &pod.namespace), ("pod", &pod.name), ("container", &container.name)]
        {
            fields.insert(name.to_owned(), serde_json::json!(value));
        }
    }
    Ok(to_raw_value(&json).context("the probe cannot be written as JSON")?)
}

fn table(
    probes: &[ProbeOfPod<'_>],
    mode: &str,
    is_wide: bool,
    with_namespace: bool,
    now: Timestamp,
    screen: Screen,
) -> String {
    let rows: Vec<Vec<Cell>> =
        probes.iter().map(|probe| row(*probe, mode, is_wide, with_namespace, now)).collect();
    let min_last_width = if is_wide { MIN_HANDLER_WIDTH } else { MIN_LAST_WIDTH };
    Table::new(columns(is_wide, with_namespace), screen).render_complete(&rows, min_last_width)
}

fn columns(is_wide: bool, with_namespace: bool) -> Vec<Column> {
    let handler = Column::text("HANDLER");
    let namespace = with_namespace.then(|| Column::text("NAMESPACE"));
    let others = [
        Column::text("POD"),
        Column::text("CONTAINER"),
        Column::text("PROBE"),
        Column::text("RESULT"),
        Column::text("SOURCE").optional(),
        Column::numeric("WOULD HAVE KILLED").optional(),
        Column::numeric("KILLED").optional(),
        if is_wide { handler } else { handler.optional() },
    ];
    namespace.into_iter().chain(others).collect()
}

fn row(of: ProbeOfPod<'_>, mode: &str, is_wide: bool, with_namespace: bool, now: Timestamp) -> Vec<Cell> {
    let ProbeOfPod { pod, container, probe } = of;
    let StatusPod { namespace, name, id, .. } = pod;
    let namespace = with_namespace.then(|| Cell::new(namespace.as_deref().unwrap_or_default()));
    let result = of.result(mode, now);
    let others = [
        Cell::new(name.as_ref().unwrap_or(id)),
        Cell::new(container.name.as_ref().unwrap_or(&container.id)),
        Cell::new(&probe.r#type),
        Cell::styled(&result.text, result.style()),
        Cell::new(&probe.source),
        Cell::new(probe.would_have_killed.to_string()),
        Cell::new(probe.killed.to_string()),
        Cell::new(if is_wide { of.description() } else { probe.handler.clone() }),
    ];
    namespace.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshots::assert_screens;
    use super::*;

    #[test]
    fn each_probe_is_shown_with_its_result_and_handler() {
        let probe = |kind: &str, more: serde_json::Value| {
            let mut probe = json!({
                "type": kind, "handler": "exec", "source": "manifest", "result": null, "run": 0, "threshold": 3,
                "verdict": null, "onHold": false, "wouldHaveKilled": 0, "since": "2026-11-24T12:59:20Z",
                "action": "exec [cat /tmp/healthy]", "initialDelaySeconds": 0, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3,
            });
            probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            probe
        };
        let pods: Vec<StatusPod> = serde_json::from_value(json!([{
            "namespace": "shop", "name": "web-7d4b9c6f8-x2x9z", "uid": "1", "id": "s", "sandbox": "ready", "ip": null, "source": "list",
            "containers": [{"name": "main", "id": "c", "state": "running", "source": "list", "probes": [
                probe("startup", json!({"result": "success", "verdict": "success", "onHold": true})),
                probe("readiness", json!({"result": "failure", "verdict": "failure", "run": 17})),
                probe("liveness", json!({"result": "error", "errors": 8, "lastError": "executable not found", "source": "annotation"})),
            ]}, {"name": "sidecar", "id": "d", "state": "running", "source": "list", "probes": [
                probe("liveness", json!({"result": "failure", "verdict": "success", "run": 2, "killed": 4, "handler": "httpGet"})),
            ]}],
        }])).unwrap();
        let pods: Vec<&StatusPod> = pods.iter().collect();
        let now = "2026-11-24T13:00:00Z".parse().unwrap();
        assert_screens("probes", |screen| table(&probes(&pods), "restart", false, true, now, screen));
        assert_screens("probes_wide", |screen| table(&probes(&pods), "restart", true, true, now, screen));
        assert_screens("probes_off", |screen| table(&probes(&pods), "off", false, false, now, screen));
    }
}
