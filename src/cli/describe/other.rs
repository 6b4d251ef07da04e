//! Describes a pod that probeshim does not manage, from its sandboxes and containers on the node,
//! its probes, its events and its last calls. Facts that only a kubelet has are left out.

use jiff::Timestamp;

use super::super::pod_summary::{PodSummary, newest_containers};
use super::super::probe_result::ProbeOfPod;
use super::super::table::{Cell, Column};
use super::{DescribePrinter, entries, title_case};
use crate::admin::api::{Call, Event, StatusContainer, StatusPod};
use crate::terminal::screen::Screen;
use crate::terminal::{format, harmless_name};

/// Observations of a pod.
pub(super) struct Observed<'a> {
    pub(super) events: &'a [&'a Event],
    pub(super) calls: &'a [Call],
    /// Columns and rows of the results of its probes in the last hour.
    pub(super) probes: (Vec<Column>, Vec<Vec<Cell>>),
}

/// Returns the description of a pod. Its newest sandbox is the last one.
pub(super) fn render(
    sandboxes: &[&StatusPod],
    observed: &Observed<'_>,
    mode: &str,
    now: Timestamp,
    screen: Screen,
) -> String {
    let mut page = DescribePrinter { lines: Vec::new(), mode, now, screen };
    let (Some(pod), Some(summary)) = (sandboxes.last(), PodSummary::new(sandboxes, now)) else {
        return String::new();
    };
    page.field(0, "Name", &summary.name);
    page.field(0, "Namespace", &summary.namespace);
    page.field(0, "UID", pod.uid.as_deref().unwrap_or_default());
    page.optional(0, "Created", pod.created.as_deref());
    page.list("Labels", entries(Some(pod.labels.clone()), "="));
    page.field(0, "Status", &summary.status);
    page.field(0, "Managed By", "a client of the runtime");
    page.field(0, "IP", &summary.ip);
    page.list("Sandboxes", sandboxes.iter().rev().map(|it| format!("{} ({})", it.id, it.sandbox)).collect());
    let containers = newest_containers(sandboxes);
    if containers.is_empty() {
        page.field(0, "Containers", "<none>");
    } else {
        page.title("Containers");
    }
    for container in containers {
        page.other_container(pod, container);
    }
    let (columns, rows) = &observed.probes;
    page.table("Probes", columns.clone(), rows);
    page.events(observed.events);
    page.calls(observed.calls);
    page.lines.join("\n") + "\n"
}

impl DescribePrinter<'_> {
    fn other_container(&mut self, pod: &StatusPod, container: &StatusContainer) {
        self.line(&format!("  {}:", harmless_name(container.name.as_ref().unwrap_or(&container.id))));
        self.field(2, "Container ID", &container.id);
        self.field(2, "State", format::capitalized(&container.state));
        self.optional(3, "Reason", container.reason.as_deref());
        self.optional(3, "Exit Code", container.exit_code.map(|code| code.to_string()).as_deref());
        let is_ready = if container.state == "running" { container.ready } else { Some(false) };
        self.field(2, "Ready", is_ready.map_or("Unknown", title_case));
        self.optional(2, "Attempt", container.attempt.map(|attempt| attempt.to_string()).as_deref());
        self.optional(2, "Not Restartable", container.not_restartable.as_deref());
        for probe in &container.probes {
            self.probe(ProbeOfPod { pod, container, probe });
        }
    }

    fn calls(&mut self, calls: &[Call]) {
        let row = |call: &Call| -> Vec<Cell> {
            let exec = call.exec.as_ref();
            let code = exec.and_then(|exec| exec.exit_code).map(|code| format!("exit {code}"));
            let probe = exec.and_then(|exec| exec.probe.as_ref()).map(|probe| probe.r#type.clone());
            let name = call.container.as_ref().and_then(|container| container.name.clone());
            let about: Vec<String> = name.into_iter().chain(probe).chain(code).collect();
            let (age, duration) =
                (format::age(&call.start, self.now), format::milliseconds(call.duration_ms));
            [call.id.to_string(), age, call.method.clone(), call.code.clone(), duration, about.join(" ")]
                .map(Cell::new)
                .into()
        };
        let rows: Vec<Vec<Cell>> = calls.iter().map(row).collect();
        let columns = ["ID", "Age", "Method", "Code", "Duration", "Subject"].map(Column::text);
        self.table("Calls", columns, &rows);
    }
}
