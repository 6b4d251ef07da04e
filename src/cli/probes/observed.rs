//! Probes of a probeshim that runs none itself: those of kubelets and other clients, with their
//! results since the start or in the last hour, and those that are known from manifests.

use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use serde_json::value::{RawValue, to_raw_value};

use super::document;
use crate::admin::Client;
use crate::admin::api::{Call, CallsQuery, StatusPod, TimelineQuery};
use crate::cli::CliError;
use crate::cli::probe_result::{OFF, ProbeOfPod, probes};
use crate::cli::table::{Cell, Column, Table};
use crate::history::json::{milliseconds, time};
use crate::history::timeline::TimelineReader;
use crate::overview::{CurrentPods, LastResults, ProbeRow, rows};
use crate::report::{Report, ReportInput, Selection, report};
use crate::terminal::format;
use crate::terminal::screen::Screen;

/// Length of the period with the results.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// Number of last calls from which the last results are known.
const PAST_CALLS: usize = 500;

/// The probes of the selected pods.
#[derive(Debug)]
pub(in crate::cli) struct ObservedProbes {
    rows: Vec<ProbeRow>,
    /// Probes that are known from manifests and similar sources, as JSON.
    known: Vec<(KnownProbe, serde_json::Value)>,
}

/// Pod, container and type of a probe.
type KnownProbe = [String; 4];

impl ObservedProbes {
    /// Queries the results. `selected` are the pods that are shown; `None` shows those of pods that
    /// no longer exist too.
    pub(in crate::cli) async fn query(
        client: &Client,
        pods: &[StatusPod],
        selected: Option<&[Vec<&StatusPod>]>,
    ) -> Result<Self, CliError> {
        let report = query_report(client).await?;
        let mut live = LastResults::default();
        let last = CallsQuery {
            method: Some("ExecSync".to_owned()),
            this_run: true,
            last: Some(PAST_CALLS),
            ..CallsQuery::default()
        };
        let calls: Vec<Call> = serde_json::from_slice(&client.calls(&last).await?)
            .context("the response is not a list of calls")?;
        for call in &calls {
            live.add(call);
        }
        let mut rows = rows(Some(&report), Some(CurrentPods { mode: OFF, pods }), &live);
        if let Some(selected) = selected {
            rows.retain(|row| selected.iter().flatten().any(|pod| is_of_pod(row, pod)));
        }
        let sandboxes: Vec<&StatusPod> = pods.iter().collect();
        let all = crate::cli::pod_summary::by_pod(&sandboxes);
        let known = all.iter().flat_map(|pod| probes(pod)).map(|of| Ok((names(&of), json(of)?)));
        Ok(Self { rows, known: known.collect::<Result<_, CliError>>()? })
    }

    /// Returns the table of the probes of one pod, for its description.
    pub(in crate::cli) fn of_pod(&self) -> (Vec<Column>, Vec<Vec<Cell>>) {
        let columns = [
            Column::text("Container"),
            Column::text("Probe"),
            Column::text("Last Result"),
            Column::numeric("Attempts"),
            Column::numeric("Failed"),
            Column::numeric("P99"),
            Column::text("Handler"),
        ];
        let cells = |row: &ProbeRow| {
            let [result, attempts, failed, p99] = numbers(row);
            vec![
                Cell::new(&row.key.container),
                Cell::new(type_of(row)),
                result,
                attempts,
                failed,
                p99,
                Cell::new(&row.handler),
            ]
        };
        (columns.into(), self.rows.iter().map(cells).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the probes as JSON: the fields of those that probeshim runs, as far as they are
    /// known, and the numbers of the attempts.
    pub(super) fn documents(&self) -> Result<Vec<Box<RawValue>>, CliError> {
        self.rows.iter().map(|row| self.row_document(row)).collect()
    }

    fn row_document(&self, row: &ProbeRow) -> Result<Box<RawValue>, CliError> {
        let key = [&row.key.namespace, &row.key.pod, &row.key.container, &row.key.probe].map(Clone::clone);
        let known = self.known.iter().find(|(names, _)| *names == key).map(|(_, json)| json.clone());
        let ms = |duration: Option<Duration>| duration.map(milliseconds);
        let numbers = serde_json::json!({
            "namespace": row.key.namespace, "pod": row.key.pod, "container": row.key.container,
            "type": row.key.probe, "prober": row.key.prober, "learned": row.key.learned,
            "command": row.handler, "lastResult": row.result.text, "isBad": row.result.is_bad,
            "attempts": row.attempts, "failed": row.failed, "p50Ms": ms(row.p50), "p99Ms": ms(row.p99),
            "marginMs": row.margin_ms, "kills": row.kills, "restarts": row.restarts,
        });
        let mut document = known.unwrap_or_else(|| serde_json::json!({}));
        if let (Some(fields), Some(more)) = (document.as_object_mut(), numbers.as_object()) {
            fields.extend(more.clone());
        }
        Ok(to_raw_value(&document).context("the probe cannot be written as JSON")?)
    }

    /// Returns the table of the probes.
    pub(super) fn table(&self, with_namespace: bool, screen: Screen) -> String {
        let cells: Vec<Vec<Cell>> = self.rows.iter().map(|row| cells(row, with_namespace)).collect();
        Table::new(columns(with_namespace), screen).render_complete(&cells, super::MIN_LAST_WIDTH)
    }

    /// Returns whether the probes are of several namespaces.
    pub(super) fn has_namespaces(&self) -> bool {
        self.rows.windows(2).any(|rows| rows[0].key.namespace != rows[1].key.namespace)
    }
}

/// Queries the results of the last hour. Findings are not needed.
async fn query_report(client: &Client) -> Result<Report, CliError> {
    let to = SystemTime::now();
    let from = to.checked_sub(PERIOD).unwrap_or(SystemTime::UNIX_EPOCH);
    let [since, until] = [from, to].map(time);
    let lines = client.timeline(&TimelineQuery { since, until }).await?;
    let mut reader = TimelineReader::new(from, to);
    lines.split(|byte| *byte == b'\n').for_each(|line| reader.add_line(line));
    let source = "a running probeshim".to_owned();
    let input = ReportInput { generated: to, source, selection: Selection::default(), findings: Vec::new() };
    Ok(report(&reader.finish(), input))
}

fn is_of_pod(row: &ProbeRow, pod: &StatusPod) -> bool {
    pod.namespace.as_deref().unwrap_or_default() == row.key.namespace
        && pod.name.as_ref().unwrap_or(&pod.id) == &row.key.pod
}

fn names(of: &ProbeOfPod<'_>) -> KnownProbe {
    [
        of.pod.namespace.clone().unwrap_or_default(),
        of.pod.name.clone().unwrap_or_else(|| of.pod.id.clone()),
        of.container.name.clone().unwrap_or_else(|| of.container.id.clone()),
        of.probe.r#type.clone(),
    ]
}

fn json(of: ProbeOfPod<'_>) -> Result<serde_json::Value, CliError> {
    let text = document(of)?;
    Ok(serde_json::from_str(text.get()).context("the probe cannot be written as JSON")?)
}

fn columns(with_namespace: bool) -> Vec<Column> {
    let namespace = with_namespace.then(|| Column::text("NAMESPACE"));
    let others = [
        Column::text("POD"),
        Column::text("CONTAINER"),
        Column::text("PROBE"),
        Column::text("LAST RESULT"),
        Column::numeric("ATTEMPTS"),
        Column::numeric("FAILED"),
        Column::numeric("P99").optional(),
        Column::text("PROBER").optional(),
        Column::text("HANDLER").optional(),
    ];
    namespace.into_iter().chain(others).collect()
}

fn cells(row: &ProbeRow, with_namespace: bool) -> Vec<Cell> {
    let namespace = with_namespace.then(|| Cell::new(&row.key.namespace));
    let first =
        [&row.key.pod, &row.key.container].map(Cell::new).into_iter().chain([Cell::new(type_of(row))]);
    let last = [&row.key.prober, &row.handler].map(Cell::new);
    namespace.into_iter().chain(first).chain(numbers(row)).chain(last).collect()
}

/// Returns the type of a probe, or the program of one that is inferred.
fn type_of(row: &ProbeRow) -> &str {
    row.key.learned.as_ref().map_or(row.key.probe.as_str(), |learned| learned.program())
}

/// Returns the cells of the last result, the attempts, the failures and the 99th percentile.
fn numbers(row: &ProbeRow) -> [Cell; 4] {
    let bad = |is_bad: bool| if is_bad { AnsiColor::Yellow.on_default() } else { Style::new() };
    let result = match row.result.text.as_str() {
        "" => "not observed".to_owned(),
        text => text.to_owned(),
    };
    [
        Cell::styled(result, bad(row.result.is_bad)),
        Cell::new(row.attempts.to_string()),
        Cell::styled(row.failed.to_string(), bad(row.failed > 0)),
        Cell::new(row.p99.map(format::duration).unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::snapshots::assert_screens;
    use crate::history::timeline::LearnedExec;
    use crate::overview::{ProbeKey, RowResult};

    impl ObservedProbes {
        /// Returns a probe that fails, a command that is inferred to be one, and a probe that was
        /// not observed.
        pub(in crate::cli) fn samples() -> Self {
            let row = |probe: &str, handler: &str, learned: bool, result: &str, failed: u32| ProbeRow {
                key: ProbeKey {
                    namespace: "shop".to_owned(),
                    pod: "web".to_owned(),
                    container: "main".to_owned(),
                    probe: probe.to_owned(),
                    prober: if result.is_empty() { "" } else { "kubelet" }.to_owned(),
                    learned: learned
                        .then(|| LearnedExec { command: handler.to_owned(), timeout_ms: Some(1000) }),
                },
                index: Some(0),
                rank: 0,
                handler: handler.to_owned(),
                result: RowResult { text: result.to_owned(), is_bad: failed > 0, long_text: None },
                strip: Vec::new(),
                attempts: if result.is_empty() { 0 } else { 42 },
                failed,
                p50: None,
                p99: (!result.is_empty()).then(|| Duration::from_millis(90)),
                margin_ms: None,
                kills: 0,
                would_be_kills: 0,
                restarts: 0,
                failure_thresholds: Vec::new(),
            };
            let rows = vec![
                row("liveness", "cat /tmp/healthy", false, "exit 1", 21),
                row("sh -c 'exit 0'", "sh -c 'exit 0'", true, "ok", 0),
                row("readiness", "http-get http://:8080/", false, "", 0),
            ];
            let known = vec![(
                ["shop", "web", "main", "readiness"].map(str::to_owned),
                json!({"type": "readiness", "source": "manifest"}),
            )];
            Self { rows, known }
        }
    }

    #[test]
    fn probes_of_other_clients_have_their_last_result_and_the_numbers_of_their_attempts() {
        let probes = ObservedProbes::samples();
        assert_screens("probes_observed", |screen| probes.table(false, screen));
        let documents = probes.documents().unwrap();
        let document: serde_json::Value = serde_json::from_str(documents[2].get()).unwrap();
        assert_eq!((&document["source"], &document["attempts"]), (&json!("manifest"), &json!(0)));
        let document: serde_json::Value = serde_json::from_str(documents[1].get()).unwrap();
        assert_eq!(document["learned"], json!({"command": "sh -c 'exit 0'", "timeoutMs": 1000}));
        assert_eq!((&document["lastResult"], &document["p99Ms"]), (&json!("ok"), &json!(90.0)));
    }
}
