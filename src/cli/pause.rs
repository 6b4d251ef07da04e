//! `probeshim pause` and `probeshim resume`

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::AnsiColor;
use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::query::query_status;
use super::table::{Cell, Column, Table};
use crate::admin::api::{Pause, PauseBody, PauseReport, PausedContainer, PausedProbe, ResumeBody, StatusPod};
use crate::config::BoundedDuration;
use crate::object_ref;
use crate::policy::{self, PauseSelector};
use crate::terminal::screen::{Screen, print};
use crate::terminal::{format, harmless_lines};

/// Minimum width of the column of treatments.
const MIN_TREATMENT_WIDTH: usize = 30;

/// Maximum number of pods that are named if a selector matches none.
const MAX_PODS: usize = 10;

/// Maximum number of probes in a table.
const MAX_PROBES: usize = 50;

/// Treatment of a probe that does not pass through probeshim.
const NOT_RELAYED: &str = "not-relayed";

/// Error of a response with another form.
const NOT_PAUSES: &str = "the response is not a list of pauses";

/// Remark about probes that do not pass through probeshim.
const NOT_RELAYED_REMARK: &str = "HTTP, TCP and gRPC probes of a kubelet do not pass through probeshim: the kubelet \
     still kills containers whose liveness or startup probe of these kinds fails\n";

/// Formats of the pauses.
const FORMATS: &[OutputFormat] =
    &[OutputFormat::Table, OutputFormat::Json, OutputFormat::Yaml, OutputFormat::Name];

/// Arguments of `pause`.
#[derive(Debug, Args)]
pub struct PauseCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Containers: POD, NAMESPACE/POD, or KEY=PATTERN, several separated by commas, all of which
    /// must match. Keys: namespace, pod, container, image, label.NAME. * matches any text, and ?
    /// one character [default: show the active pauses]
    #[arg(value_name = "SELECTOR", requires = "lifetime")]
    selector: Option<PauseSelector>,

    /// Duration after which the pause ends, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    lifetime: Option<BoundedDuration<1>>,

    /// Pause readiness probes too: the pod stays as ready as it is. Without it, only those are
    /// paused that have the command and timeout of another probe
    #[arg(long, requires = "lifetime")]
    readiness: bool,

    /// Name of the pause [default: pause-N]
    #[arg(long, value_name = "NAME", requires = "lifetime")]
    name: Option<String>,

    /// Permit a pause of every container
    #[arg(long, requires = "lifetime")]
    all: bool,

    /// Output format: table, json, yaml or name
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(FORMATS), hide_possible_values = true)]
    output: OutputFormat,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub struct ResumeCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Names of the pauses to end [default: the only pause]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// End all pauses
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

impl PauseCommand {
    /// Begins a pause, or shows the active pauses.
    pub async fn run(self) -> Result<(), CliError> {
        let Self { at, selector, lifetime, readiness, name, all, output } = self;
        let Some(lifetime) = lifetime.map(Duration::from) else { return list(at, output).await };
        let PauseSelector(selector) = match selector {
            Some(selector) => selector,
            None if all => PauseSelector::default(),
            None => {
                let reason =
                    "--for needs a SELECTOR of containers such as shop/web-*, or --all for every container";
                return Err(CliError::Usage(reason.to_owned()));
            }
        };
        // An invalid pause is refused without a running probeshim.
        let pause = policy::Pause { name, selector, lifetime, readiness };
        let pause = pause.validated(all).map_err(|error| CliError::Usage(error.to_string()))?;
        let policy::Pause { name, selector, .. } = pause;
        let for_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let selector = PauseSelector(selector).to_string();
        let client = at.client()?;
        let answer = client.begin_pause(&PauseBody { name, selector, for_ms, readiness, all }).await?;
        let not_one = "the response is not a pause";
        if output.is_document() {
            print(&output.document(serde_json::from_slice(&answer).context(not_one)?)?)?;
            return Ok(());
        }
        let report: PauseReport = serde_json::from_slice(&answer).context(not_one)?;
        if output == OutputFormat::Name {
            print(&names(std::slice::from_ref(&report)))?;
            return Ok(());
        }
        let screen = Screen::stdout();
        let mut text = began(&report, Timestamp::now(), screen);
        if report.containers.is_empty() {
            text += &pods_that_exist(&query_status(&client).await?.pods);
        }
        screen.print(&text)?;
        Ok(())
    }
}

impl ResumeCommand {
    /// Ends pauses.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let mut names = self.names;
        if names.is_empty() && !self.all {
            let active = pauses(&client.pauses().await?)?;
            names = active.into_iter().map(|report| report.pause.name).collect();
            if names.is_empty() {
                print("no pause is active\n")?;
                return Ok(());
            }
            if names.len() > 1 {
                let reason = format!(
                    "several pauses are active: name one of {}, or end all with --all",
                    names.join(", ")
                );
                return Err(CliError::Usage(reason));
            }
        }
        let ended: Vec<Pause> =
            serde_json::from_slice(&client.resume(&ResumeBody { names }).await?).context(NOT_PAUSES)?;
        let lines = ended.iter().map(|pause| {
            let probes = format::counted(pause.answered, "probe");
            format!("pause {} has ended; {probes} were answered in place of the runtime\n", pause.name)
        });
        let text: String = lines.collect();
        print(&if text.is_empty() { "no pause is active\n".to_owned() } else { harmless_lines(&text) })?;
        Ok(())
    }
}

async fn list(at: AdminArgs, output: OutputFormat) -> Result<(), CliError> {
    let answer = at.client()?.pauses().await?;
    match output {
        OutputFormat::Json | OutputFormat::Yaml => {
            let items: Vec<&RawValue> = serde_json::from_slice(&answer).context(NOT_PAUSES)?;
            print(&output.list(&items)?)?;
        }
        OutputFormat::Name => {
            print(&names(&pauses(&answer)?))?;
        }
        _ => {
            let pauses = pauses(&answer)?;
            let (now, screen) = (Timestamp::now(), Screen::stdout());
            let text = match pauses.len() {
                0 => "no pause is active\n".to_owned(),
                _ => {
                    pauses.iter().map(|report| described(report, now, screen)).collect::<Vec<_>>().join("\n")
                }
            };
            screen.print(&text)?;
        }
    }
    Ok(())
}

fn pauses(answer: &[u8]) -> Result<Vec<PauseReport>, CliError> {
    Ok(serde_json::from_slice(answer).context(NOT_PAUSES)?)
}

fn names(reports: &[PauseReport]) -> String {
    let names = reports.iter().map(|report| format!("pause/{}\n", report.pause.name));
    harmless_lines(&names.collect::<String>())
}

/// Returns a line with the pods of the node: a selector that matches none of them may have a typing
/// error.
fn pods_that_exist(pods: &[StatusPod]) -> String {
    let name = |pod: &StatusPod| {
        pod.name.as_ref().map(|name| object_ref::pod_name(pod.namespace.as_deref().unwrap_or_default(), name))
    };
    let names: BTreeSet<String> = pods.iter().filter_map(name).collect();
    if names.is_empty() {
        return "no pods are known\n".to_owned();
    }
    let more = match names.len().saturating_sub(MAX_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown: Vec<&str> = names.iter().take(MAX_PODS).map(String::as_str).collect();
    harmless_lines(&format!("the pods are {}{more}\n", shown.join(", ")))
}

/// Describes a pause that has just begun.
fn began(report: &PauseReport, now: Timestamp, screen: Screen) -> String {
    let name = harmless_lines(&report.pause.name);
    described(report, now, screen)
        + "probeshim kills none of these containers, nor those that start later and match\n"
        + &format!("`probeshim resume {}` ends the pause earlier\n", name.trim_end())
}

/// Describes a pause, with the probes of its containers.
fn described(report: &PauseReport, now: Timestamp, screen: Screen) -> String {
    let PauseReport { pause, containers } = report;
    let ends = format::time_until(&pause.expires, now);
    let readiness = if pause.readiness { ", with readiness probes" } else { "" };
    let mut text = harmless_lines(&format!(
        "pause {} of {}{readiness} ends in {ends}; answered probes: {}\n",
        pause.name, pause.selector, pause.answered
    ));
    if containers.is_empty() {
        return text + "no running container matches now\n";
    }
    let columns = ["OBJECT", "PROBE", "HANDLER", "TREATMENT"].map(Column::text);
    let rows: Vec<Vec<Cell>> = containers.iter().flat_map(rows).collect();
    let shown = &rows[..rows.len().min(MAX_PROBES)];
    text += &Table::new(columns, screen).render_wrapped(shown, MIN_TREATMENT_WIDTH);
    if shown.len() < rows.len() {
        let _ = writeln!(text, "and {} more; -o json has all", rows.len() - shown.len());
    }
    let is_other = |container: &PausedContainer| {
        !container.probes_known || container.probes.iter().any(|probe| probe.treatment == NOT_RELAYED)
    };
    if containers.iter().any(is_other) {
        text += NOT_RELAYED_REMARK;
    }
    text
}

/// Returns the rows of a container's probes.
fn rows(container: &PausedContainer) -> Vec<Vec<Cell>> {
    let pod: Vec<&str> = container.namespace.iter().chain(&container.pod).map(String::as_str).collect();
    let object = [&pod.join("/"), container.container.as_deref().unwrap_or("?")].join(" ");
    let row = |probe: &str, handler: &str, treatment: Cell| {
        let names = [object.as_str(), probe, handler].map(Cell::new);
        names.into_iter().chain([treatment]).collect::<Vec<Cell>>()
    };
    let known = container.probes.iter().map(|probe| row(&probe.r#type, &probe.handler, treatment(probe)));
    let mut rows: Vec<Vec<Cell>> = known.collect();
    if !container.probes_known {
        let text = "paused: each ExecSync of a kubelet with a timeout is discarded";
        rows.push(row("unknown", "exec", Cell::styled(text, AnsiColor::Yellow.on_default())));
    } else if rows.is_empty() {
        rows.push(row("none", "", Cell::new("")));
    }
    rows
}

/// Returns the description of a treatment.
fn treatment(probe: &PausedProbe) -> Cell {
    let text = match (probe.treatment.as_str(), probe.r#type.as_str()) {
        ("success", _) => "paused: answered with success",
        ("discarded", _) => "paused: the kubelet discards the result",
        ("executed", _) => "not paused: executed",
        (NOT_RELAYED, "readiness") => "not paused: does not pass through probeshim",
        (NOT_RELAYED, _) => {
            let text = "not paused, still kills: does not pass through probeshim";
            return Cell::styled(text, AnsiColor::Yellow.on_default());
        }
        ("kill-held", _) => "run by probeshim, which does not kill",
        (other, _) => other,
    };
    Cell::new(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::snapshots::assert_screens;

    #[test]
    fn a_pause_of_no_pod_names_the_pods_that_exist() {
        let pod = |name: &str| json!({"namespace": "shop", "name": name, "id": name, "sandbox": "ready", "source": "list", "containers": []});
        let pods = |names: &[String]| -> Vec<StatusPod> {
            names.iter().map(|name| serde_json::from_value(pod(name)).unwrap()).collect()
        };
        let some = pods(&["web", "web", "db"].map(str::to_owned));
        assert_eq!(pods_that_exist(&some), "the pods are shop/db, shop/web\n");
        let many: Vec<String> = (0..12).map(|number| format!("p{number:02}")).collect();
        assert!(pods_that_exist(&pods(&many)).ends_with("shop/p09 and 2 more\n"));
        assert_eq!(pods_that_exist(&[]), "no pods are known\n");
    }

    #[test]
    fn a_pause_is_described_with_the_treatment_of_each_probe() {
        let probe = |kind: &str, handler: &str, treatment: &str| json!({"type": kind, "handler": handler, "treatment": treatment});
        let container = |pod: &str, known: bool, probes: serde_json::Value| json!({"namespace": "shop", "pod": pod, "container": "main", "probesKnown": known, "probes": probes});
        let report = json!({
            "name": "pause-1", "selector": "namespace=shop,pod=web-*", "readiness": false,
            "expires": "2026-11-24T13:10:00Z", "answered": 7,
            "containers": [
                container("web-1", true, json!([
                    probe("startup", "exec", "discarded"), probe("readiness", "exec", "executed"),
                    probe("liveness", "exec", "success"),
                ])),
                container("web-2", true, json!([
                    probe("readiness", "tcpSocket", "not-relayed"), probe("liveness", "httpGet", "not-relayed"),
                ])),
                container("web-3", false, json!([])),
                container("web-4", true, json!([])),
                container("web-5", true, json!([probe("liveness", "httpGet", "kill-held")])),
            ],
        });
        let report: PauseReport = serde_json::from_value(report).unwrap();
        let now = "2026-11-24T13:00:00Z".parse().unwrap();
        assert_screens("pause", |screen| began(&report, now, screen));
        let none = PauseReport { containers: Vec::new(), ..report };
        let plain = Screen { width: None, colour: false, utf8: true };
        assert_eq!(
            described(&none, now, plain),
            "pause pause-1 of namespace=shop,pod=web-* ends in 10m00s; answered probes: 7\n\
             no running container matches now\n"
        );
    }
}
