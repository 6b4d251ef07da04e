//! A pod that is played, as `kubectl describe` shows it: from what a kubelet's `/pods` would say of it, its probes and its events.

use anstyle::Style;
use jiff::Timestamp;
use serde_json::Value;

use super::table::{Cell, Column, Table};
use crate::admin::api::{Event, StatusPod, StatusProbe};
use crate::manifest::ProbeType;
use crate::terminal::screen::Screen;
use crate::terminal::{format, harmless_name, harmless_text};

/// How wide what stands before values is, with two blanks.
const NAMES: usize = 18;

/// A page of names and values, moved in by what they belong to.
struct DescribePrinter {
    lines: Vec<String>,
    screen: Screen,
}

/// The pod as a page. `status` has what its probes say.
pub(super) fn render(
    pod: &Value,
    status: &StatusPod,
    events: &[&Event],
    now: Timestamp,
    screen: Screen,
) -> String {
    let mut page = DescribePrinter { lines: Vec::new(), screen };
    let (metadata, spec, state) = (&pod["metadata"], &pod["spec"], &pod["status"]);
    page.field(0, "Name", text(&metadata["name"]));
    page.field(0, "Namespace", text(&metadata["namespace"]));
    page.field(0, "UID", text(&metadata["uid"]));
    page.optional(0, "Runtime Class", &spec["runtimeClassName"]);
    page.field(0, "Node", format!("{}/{}", text(&spec["nodeName"]), text(&state["hostIP"])));
    page.field(0, "Start Time", time(&state["startTime"]));
    page.list("Labels", map(&metadata["labels"], "="));
    page.list("Annotations", map(&metadata["annotations"], ": "));
    page.field(0, "Status", status.status.clone().unwrap_or_default());
    page.optional(0, "Reason", &state["reason"]);
    page.optional(0, "Message", &state["message"]);
    page.field(0, "IP", text(&state["podIP"]));
    page.field(0, "Sandbox", format!("{} ({})", status.id, status.sandbox));
    for (title, specs, statuses) in [
        ("Init Containers", "initContainers", "initContainerStatuses"),
        ("Containers", "containers", "containerStatuses"),
    ] {
        let mut specs = elements(&spec[specs]).peekable();
        if specs.peek().is_some() {
            page.title(title);
        }
        for spec in specs {
            let is_it = |status: &&Value| status["name"] == spec["name"];
            let state = elements(&state[statuses]).find(is_it).unwrap_or(&Value::Null);
            page.container(spec, state, status);
        }
    }
    page.conditions(&state["conditions"]);
    page.list("Volumes", volumes(&spec["volumes"]));
    page.field(0, "QoS Class", text(&state["qosClass"]));
    page.events(events, now);
    page.lines.join("\n") + "\n"
}

impl DescribePrinter {
    fn line(&mut self, line: &str) {
        self.lines.push(line.trim_end().to_owned());
    }

    fn title(&mut self, title: &str) {
        let bold = if self.screen.colour { Style::new().bold() } else { Style::new() };
        self.line(&format!("{bold}{title}:{bold:#}"));
    }

    fn field(&mut self, depth: usize, name: &str, value: impl AsRef<str>) {
        let (moved, name) = (" ".repeat(2 * depth), format!("{name}:"));
        self.line(&format!("{moved}{name:<NAMES$}{}", harmless_text(value.as_ref())));
    }

    fn optional(&mut self, depth: usize, name: &str, value: &Value) {
        let value = text(value);
        if !value.is_empty() {
            self.field(depth, name, value);
        }
    }

    /// A value on each line.
    fn list(&mut self, name: &str, values: Vec<String>) {
        let mut name = name;
        if values.is_empty() {
            self.field(0, name, "<none>");
        }
        for value in values {
            if name.is_empty() {
                let blank = " ".repeat(NAMES);
                self.line(&format!("{blank}{}", harmless_text(&value)));
            } else {
                self.field(0, name, value);
            }
            name = "";
        }
    }

    fn container(&mut self, spec: &Value, state: &Value, status: &StatusPod) {
        self.line(&format!("  {}:", harmless_name(&text(&spec["name"]))));
        self.optional(2, "Container ID", &state["containerID"]);
        self.optional(2, "Image", &spec["image"]);
        self.optional(2, "Image ID", &state["imageID"]);
        for (name, field) in [("Command", "command"), ("Args", "args")] {
            let message: Vec<String> = elements(&spec[field]).map(text).collect();
            if !message.is_empty() {
                self.field(2, name, message.join(" "));
            }
        }
        let port = |port: &Value| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            format!("{}/{protocol}", text(&port["containerPort"]))
        };
        let ports: Vec<String> = elements(&spec["ports"]).map(port).collect();
        if !ports.is_empty() {
            self.field(2, "Ports", ports.join(", "));
        }
        self.state("State", &state["state"]);
        self.state("Last State", &state["lastState"]);
        self.field(2, "Ready", title_case(state["ready"] == true));
        self.field(2, "Restart Count", text(&state["restartCount"]));
        for (name, field) in [("Limits", "limits"), ("Requests", "requests")] {
            let amounts = map(&spec["resources"][field], ": ");
            if !amounts.is_empty() {
                self.field(2, name, amounts.join(", "));
            }
        }
        let known =
            status.containers.iter().rev().find(|known| known.name.as_deref() == spec["name"].as_str());
        for probe in known.into_iter().flat_map(|known| &known.probes) {
            self.probe(probe, spec);
        }
        let mount = |mount: &Value| {
            let way = if mount["readOnly"] == true { "ro" } else { "rw" };
            format!("{} from {} ({way})", text(&mount["mountPath"]), text(&mount["name"]))
        };
        let mounts: Vec<String> = elements(&spec["volumeMounts"]).map(mount).collect();
        if !mounts.is_empty() {
            self.field(2, "Mounts", mounts.join(", "));
        }
    }

    /// How a container is, or was before.
    fn state(&mut self, name: &str, state: &Value) {
        let known = [("waiting", "Waiting"), ("running", "Running"), ("terminated", "Terminated")];
        let Some((state, word)) = known.into_iter().find_map(|(field, word)| Some((state.get(field)?, word)))
        else {
            // As kubectl: of one of which nothing is known yet, and no line for what has not been before.
            if name == "State" {
                self.field(2, name, "Waiting");
            }
            return;
        };
        self.field(2, name, word);
        for (name, field) in [("Reason", "reason"), ("Message", "message"), ("Exit Code", "exitCode")] {
            self.optional(3, name, &state[field]);
        }
        for (name, field) in [("Started", "startedAt"), ("Finished", "finishedAt")] {
            if state[field].is_string() {
                self.field(3, name, time(&state[field]));
            }
        }
    }

    fn probe(&mut self, probe: &StatusProbe, spec: &Value) {
        let kind = ProbeType::ALL.into_iter().find(|kind| kind.name() == probe.r#type);
        let title = kind.map_or(probe.r#type.as_str(), |kind| kind.title());
        // What other sources say is not in the spec.
        let written = kind.and_then(|kind| spec.get(kind.field())).filter(|_| probe.source == "manifest");
        let times = written.map(|written| {
            let number =
                |field: &str, default: u64| written[field].as_u64().filter(|it| *it > 0).unwrap_or(default);
            format!(
                " delay={}s timeout={}s period={}s #success={} #failure={}",
                number("initialDelaySeconds", 0),
                number("timeoutSeconds", 1),
                number("periodSeconds", 10),
                number("successThreshold", 1),
                number("failureThreshold", 3),
            )
        });
        let (verdict, times) = (probe.verdict.as_deref().unwrap_or("none yet"), times.unwrap_or_default());
        let run = probe.result.as_ref();
        let run = run.map(|result| format!(", {} of {} {result}", probe.run, probe.threshold));
        let said =
            format!("{} ({}){times}: {verdict}{}", probe.handler, probe.source, run.unwrap_or_default());
        self.field(2, title, said);
    }

    fn conditions(&mut self, conditions: &Value) {
        let rows: Vec<Vec<Cell>> = elements(conditions)
            .map(|condition| {
                ["type", "status", "reason", "message"].map(|field| Cell::new(text(&condition[field]))).into()
            })
            .collect();
        self.table("Conditions", ["Type", "Status", "Reason", "Message"].map(Column::text), &rows);
    }

    fn events(&mut self, events: &[&Event], now: Timestamp) {
        let row = |event: &&Event| -> Vec<Cell> {
            let age = format::age(&event.time, now);
            let often = if event.count > 1 { format!("{age} (x{})", event.count) } else { age };
            [
                event.r#type.as_str(),
                &event.reason,
                &often,
                event.container.as_deref().unwrap_or_default(),
                &event.message,
            ]
            .map(Cell::new)
            .into()
        };
        let rows: Vec<Vec<Cell>> = events.iter().map(row).collect();
        let columns = ["Type", "Reason", "Age", "Container", "Message"].map(Column::text);
        self.table("Events", columns, &rows);
    }

    fn table<const N: usize>(&mut self, title: &str, columns: [Column; N], rows: &[Vec<Cell>]) {
        if rows.is_empty() {
            return self.field(0, title, "<none>");
        }
        self.title(title);
        // What stands before each line takes of the width.
        let screen = Screen { width: self.screen.width.map(|width| width.saturating_sub(2)), ..self.screen };
        for line in Table::new(columns, screen).render(rows).lines() {
            self.line(&format!("  {line}"));
        }
    }
}

/// The keys and values of an object.
fn map(object: &Value, between: &str) -> Vec<String> {
    let entries = object.as_object().into_iter().flatten();
    entries.map(|(key, value)| format!("{key}{between}{}", text(value))).collect()
}

/// Volumes by their names, with what they are.
fn volumes(list: &Value) -> Vec<String> {
    let volume = |volume: &Value| {
        let kinds = volume.as_object().into_iter().flat_map(|object| object.keys());
        let kind = kinds.filter(|kind| *kind != "name").map(String::as_str).next().unwrap_or_default();
        format!("{} ({kind})", text(&volume["name"]))
    };
    elements(list).map(volume).collect()
}

fn elements(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A value without quotes; nothing where it is not there.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn title_case(is: bool) -> &'static str {
    if is { "True" } else { "False" }
}

/// A time as kubectl writes it.
fn time(value: &Value) -> String {
    match value.as_str().map(str::parse::<Timestamp>) {
        Some(Ok(time)) => time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
        _ => text(value),
    }
}
