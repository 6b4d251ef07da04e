//! `probeshim describe`: describes a pod in the format of `kubectl describe`. A managed pod is
//! described from its object in `/pods`, its probes and its events.

mod command;
mod other;

use std::collections::{BTreeMap, BTreeSet};

use anstyle::Style;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStatus, Pod, PodCondition, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::events::message;
use super::pod_summary::NONE;
use super::probe_result::ProbeOfPod;
use super::table::{Cell, Column, Table};
use crate::admin::api::{Event, StatusPod};
use crate::manifest::ProbeType;
use crate::terminal::screen::Screen;
use crate::terminal::{format, harmless_name, harmless_text};

pub use command::DescribeCommand;

/// Minimum width of the last column of a table. In a narrower column, its texts are shown below the
/// rows.
const MIN_LAST_WIDTH: usize = 32;

/// Source of the probes in a pod's specification, which is not shown.
const MANIFEST: &str = "manifest";

/// Width of the names before values, including two blanks.
const NAMES: usize = 18;

/// A page of names and values, each indented below its parent.
struct DescribePrinter<'a> {
    lines: Vec<String>,
    /// Enforcement mode.
    mode: &'a str,
    now: Timestamp,
    screen: Screen,
}

/// Returns the description of a pod. `status` has its probe results.
fn render(
    pod: Pod,
    status: &StatusPod,
    events: &[&Event],
    mode: &str,
    now: Timestamp,
    screen: Screen,
) -> String {
    let mut page = DescribePrinter { lines: Vec::new(), mode, now, screen };
    let (metadata, spec, state) =
        (pod.metadata, pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    let node = [spec.node_name, state.host_ip].map(Option::unwrap_or_default);
    page.field(0, "Name", metadata.name.unwrap_or_default());
    page.field(0, "Namespace", metadata.namespace.unwrap_or_default());
    page.field(0, "UID", metadata.uid.unwrap_or_default());
    page.optional(0, "Runtime Class", spec.runtime_class_name.as_deref());
    page.field(0, "Node", node.join("/"));
    page.field(0, "Start Time", state.start_time.as_ref().map(time).unwrap_or_default());
    page.list("Labels", entries(metadata.labels, "="));
    page.list("Annotations", entries(metadata.annotations, ": "));
    page.field(0, "Status", status.status.clone().unwrap_or_default());
    page.optional(0, "Reason", state.reason.as_deref());
    page.optional(0, "Message", state.message.as_deref());
    page.field(0, "IP", state.pod_ip.unwrap_or_default());
    let sandbox = status.sandbox_state().map(|state| format!("{} ({state})", status.id));
    page.field(0, "Sandbox", sandbox.as_deref().unwrap_or(NONE));
    let init = (spec.init_containers.unwrap_or_default(), state.init_container_statuses);
    for (title, (containers, statuses)) in
        [("Init Containers", init), ("Containers", (spec.containers, state.container_statuses))]
    {
        if !containers.is_empty() {
            page.title(title);
        }
        for container in containers {
            let state = statuses.iter().flatten().find(|known| known.name == container.name);
            page.container(&container, state, status);
        }
    }
    page.conditions(&state.conditions.unwrap_or_default());
    page.list("Volumes", spec.volumes.iter().flatten().map(volume).collect());
    page.field(0, "QoS Class", state.qos_class.unwrap_or_default());
    page.events(events);
    page.lines.join("\n") + "\n"
}

impl DescribePrinter<'_> {
    fn line(&mut self, line: &str) {
        self.lines.push(line.trim_end().to_owned());
    }

    fn title(&mut self, title: &str) {
        let bold = if self.screen.colour { Style::new().bold() } else { Style::new() };
        self.line(&format!("{bold}{title}:{bold:#}"));
    }

    fn field(&mut self, depth: usize, name: &str, value: impl AsRef<str>) {
        let (moved, name) = (" ".repeat(2 * depth), format!("{name}:"));
        let start = 2 * depth + name.len().max(NAMES);
        let mut lines = self.wrapped(&harmless_text(value.as_ref()), start).into_iter();
        self.line(&format!("{moved}{name:<NAMES$}{}", lines.next().unwrap_or_default()));
        for line in lines {
            self.line(&format!("{:start$}{line}", ""));
        }
    }

    /// Wraps a text that starts in a column of the screen.
    fn wrapped(&self, text: &str, start: usize) -> Vec<String> {
        let Some(width) = self.screen.width else { return vec![text.to_owned()] };
        let width = width.saturating_sub(start).max(MIN_LAST_WIDTH);
        format::wrapped(text, width).lines().map(|line| line.trim_start().to_owned()).collect()
    }

    fn optional(&mut self, depth: usize, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.field(depth, name, value);
        }
    }

    fn time(&mut self, depth: usize, name: &str, value: Option<&Time>) {
        self.optional(depth, name, value.map(time).as_deref());
    }

    /// Adds a field with one value per line.
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

    fn container(&mut self, spec: &Container, state: Option<&ContainerStatus>, status: &StatusPod) {
        self.line(&format!("  {}:", harmless_name(&spec.name)));
        self.optional(2, "Container ID", state.and_then(|state| state.container_id.as_deref()));
        self.optional(2, "Image", spec.image.as_deref());
        self.optional(2, "Image ID", state.map(|state| state.image_id.as_str()));
        for (name, args) in [("Command", &spec.command), ("Args", &spec.args)] {
            if let Some(args) = args.as_ref().filter(|args| !args.is_empty()) {
                self.field(2, name, args.join(" "));
            }
        }
        let ports = spec
            .ports
            .iter()
            .flatten()
            .map(|port| format!("{}/{}", port.container_port, port.protocol.as_deref().unwrap_or("TCP")));
        self.optional(2, "Ports", Some(&ports.collect::<Vec<_>>().join(", ")));
        // A rejected pod has no states of containers.
        if let Some(state) = state {
            self.state("State", state.state.as_ref());
            self.state("Last State", state.last_state.as_ref());
            self.field(2, "Ready", title_case(state.ready));
            self.field(2, "Restart Count", state.restart_count.to_string());
        }
        let ResourceRequirements { limits, requests, .. } = spec.resources.clone().unwrap_or_default();
        for (name, amounts) in [("Limits", limits), ("Requests", requests)] {
            self.optional(2, name, Some(&quantities(amounts).join(", ")));
        }
        let known = status.containers.iter().rev().find(|known| known.name.as_deref() == Some(&spec.name));
        if let Some(container) = known {
            for probe in &container.probes {
                self.probe(ProbeOfPod { pod: status, container, probe });
            }
        }
        let mounts = spec.volume_mounts.iter().flatten().map(|mount| {
            let mode = if mount.read_only == Some(true) { "ro" } else { "rw" };
            format!("{} from {} ({mode})", mount.mount_path, mount.name)
        });
        self.optional(2, "Mounts", Some(&mounts.collect::<Vec<_>>().join(", ")));
    }

    /// Adds the current or the last state of a container.
    fn state(&mut self, name: &str, state: Option<&ContainerState>) {
        let ContainerState { waiting, running, terminated } = state.cloned().unwrap_or_default();
        if let Some(waiting) = waiting {
            self.field(2, name, "Waiting");
            self.optional(3, "Reason", waiting.reason.as_deref());
            self.optional(3, "Message", waiting.message.as_deref());
        } else if let Some(running) = running {
            self.field(2, name, "Running");
            self.time(3, "Started", running.started_at.as_ref());
        } else if let Some(ended) = terminated {
            self.field(2, name, "Terminated");
            self.optional(3, "Reason", ended.reason.as_deref());
            self.optional(3, "Message", ended.message.as_deref());
            self.field(3, "Exit Code", ended.exit_code.to_string());
            self.time(3, "Started", ended.started_at.as_ref());
            self.time(3, "Finished", ended.finished_at.as_ref());
        } else if name == "State" {
            // As in kubectl, a container without a state is waiting, and a missing last state has
            // no line.
            self.field(2, name, "Waiting");
        }
    }

    fn probe(&mut self, of: ProbeOfPod<'_>) {
        let probe = of.probe;
        let kind = ProbeType::ALL.into_iter().find(|kind| kind.name() == probe.r#type);
        self.field(2, kind.map_or(probe.r#type.as_str(), |kind| kind.title()), of.description());
        self.optional(3, "Source", Some(&probe.source).filter(|it| *it != MANIFEST).map(String::as_str));
        self.field(3, "Result", of.result(self.mode, self.now).text);
    }

    fn conditions(&mut self, conditions: &[PodCondition]) {
        let row = |condition: &PodCondition| {
            let PodCondition { type_, status, reason, message, .. } = condition;
            let [reason, message] = [reason, message].map(|it| it.as_deref().unwrap_or_default());
            [type_, status, reason, message].map(Cell::new).into()
        };
        let rows: Vec<Vec<Cell>> = conditions.iter().map(row).collect();
        self.table("Conditions", ["Type", "Status", "Reason", "Message"].map(Column::text), &rows);
    }

    fn events(&mut self, events: &[&Event]) {
        let containers: BTreeSet<_> = events.iter().filter_map(|event| event.container.as_ref()).collect();
        let has_several = containers.len() > 1;
        let row = |event: &&Event| -> Vec<Cell> {
            let container = event.container.as_deref().unwrap_or_default();
            let message = message(event);
            let first = [event.r#type.as_str(), &event.reason, &age_of(event, self.now)].map(Cell::new);
            let container = has_several.then(|| Cell::new(container));
            first.into_iter().chain(container).chain([Cell::new(message)]).collect()
        };
        // A stop that no failed probe explains is recorded after the restart, with its own time.
        let mut sorted = events.to_vec();
        sorted.sort_by(|a, b| a.time.cmp(&b.time));
        let rows: Vec<Vec<Cell>> = sorted.iter().map(row).collect();
        let container = has_several.then_some("Container");
        let columns = ["Type", "Reason", "Age"].into_iter().chain(container).chain(["Message"]);
        self.table("Events", columns.map(Column::text).collect::<Vec<_>>(), &rows);
    }

    /// Adds a table, whose last column is wrapped.
    fn table(&mut self, title: &str, columns: impl Into<Vec<Column>>, rows: &[Vec<Cell>]) {
        if rows.is_empty() {
            return self.field(0, title, "<none>");
        }
        self.title(title);
        // The indentation takes two columns of the width.
        let screen = Screen { width: self.screen.width.map(|width| width.saturating_sub(2)), ..self.screen };
        for line in Table::new(columns.into(), screen).render_wrapped(rows, MIN_LAST_WIDTH).lines() {
            self.line(&format!("  {line}"));
        }
    }
}

/// Returns the age of an event, with the number of its occurrences.
fn age_of(event: &Event, now: Timestamp) -> String {
    let age = format::age(&event.time, now);
    if event.count < 2 {
        return age;
    }
    let over = event.first_time.as_deref().map(|first| format!(" over {}", format::age(first, now)));
    format!("{age} (x{}{})", event.count, over.unwrap_or_default())
}

/// Returns each key with its value.
fn entries(texts: Option<BTreeMap<String, String>>, between: &str) -> Vec<String> {
    texts.into_iter().flatten().map(|(key, text)| format!("{key}{between}{text}")).collect()
}

/// Returns each resource with its quantity.
fn quantities(amounts: Option<BTreeMap<String, Quantity>>) -> Vec<String> {
    amounts.into_iter().flatten().map(|(resource, amount)| format!("{resource}: {}", amount.0)).collect()
}

/// Returns the name of a volume with its type, which is the name of its other field, and with what
/// it lacks here. A volume without a type is an emptyDir.
fn volume(volume: &Volume) -> String {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let mut fields = value.as_object().into_iter().flat_map(|object| object.keys());
    let kind = fields.find(|field| *field != "name").map_or("emptyDir", String::as_str);
    format!("{} ({kind}{})", volume.name, lack(volume).unwrap_or_default())
}

/// Returns what a volume lacks without a cluster.
fn lack(volume: &Volume) -> Option<&'static str> {
    if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        return Some(", an emptyDir in its place");
    }
    let sources = volume.projected.as_ref()?.sources.as_ref()?;
    let tokens = sources.iter().filter(|source| source.service_account_token.is_some()).count();
    match tokens {
        0 => None,
        all if all == sources.len() => Some(", empty: there are no service account tokens"),
        _ => Some(", without the service account token"),
    }
}

fn title_case(is: bool) -> &'static str {
    if is { "True" } else { "False" }
}

/// Returns a time in kubectl's format.
fn time(time: &Time) -> String {
    time.0.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests;
