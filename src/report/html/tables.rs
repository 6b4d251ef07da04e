//! Tables of restarts, pods, gaps, and of the node with its settings.

use super::page::Page;
use super::probes::cell;
use super::strip::symbol;
use super::time::{exact_time, number, span};
use crate::history::timeline::NodeFacts;
use crate::object_ref::pod_name;
use crate::report::lifecycle::{LifecycleEvent, LifecycleKind};
use crate::report::model::Report;
use crate::terminal::{MAX_NAME_WIDTH, format, shortened};

/// Maximum number of rows of the table of restarts.
const MAX_EVENTS: usize = 100;

/// Maximum number of rows of the table of gaps.
const MAX_GAPS: usize = 40;

/// Maximum number of settings.
const MAX_SETTINGS: usize = 100;

/// Writes the kills, exits and restarts of containers, the most recent first.
pub(super) fn write_restarts(page: &mut Page, report: &Report, max_rows: usize) {
    page.markup("<section aria-labelledby=\"restarts\">\n<h2 id=\"restarts\">Kills and restarts</h2>\n");
    let is_shown = |event: &&LifecycleEvent| event.kind != LifecycleKind::Started || event.is_restart;
    let mut events: Vec<&LifecycleEvent> = report.lifecycle.iter().filter(is_shown).collect();
    let (all, shown) = (events.len(), MAX_EVENTS.min(max_rows));
    if all > shown {
        // Kills are the ones that a reader looks for.
        events.sort_by_key(|event| matches!(event.kind, LifecycleKind::Exited | LifecycleKind::Started));
        events.truncate(shown);
        events.sort_by_key(|event| event.time);
    }
    if events.is_empty() {
        page.markup("<p class=\"fine\">No container was killed, exited or restarted.</p>\n</section>\n");
        return;
    }
    page.markup(
        r#"<div class="scroll" tabindex="0" role="region" aria-labelledby="restarts-caption"><table>
<caption id="restarts-caption">Kills, exits and restarts of containers, the most recent first</caption>
<thead><tr><th scope="col">Time (UTC)</th><th scope="col">Change</th><th scope="col">Container</th>
<th scope="col">Message</th></tr></thead>
<tbody>
"#,
    );
    page.each(events.into_iter().rev(), |page, event| {
        page.markup("<tr><td class=\"time\">")
            .text(exact_time(event.time))
            .markup("</td><td class=\"change\">");
        let symbol = symbol(event.kind);
        page.markup("<span class=\"marks\" aria-hidden=\"true\"><svg class=\"").markup(symbol);
        page.markup("\"><use href=\"#").markup(symbol).markup("\"/></svg></span> ");
        page.text(if event.is_restart { "restarted" } else { event.kind.text() });
        if event.count > 1 {
            page.text(format_args!(" × {}", event.count));
        }
        page.markup("</td><td class=\"of\">").name(&pod_name(&event.namespace, &event.pod)).text(" ");
        page.markup("<span class=\"container\">")
            .name(&event.container)
            .markup("</span></td><td class=\"message\">");
        page.message(&event.message).markup("</td></tr>\n");
    })
    .markup("</tbody></table></div>\n");
    page.left_out(all, shown, "changes");
    page.markup("</section>\n");
}

/// Writes the pods.
pub(super) fn write_pods(page: &mut Page, report: &Report, max_rows: usize) {
    if report.pods.is_empty() {
        return;
    }
    page.markup(
        r#"<section aria-labelledby="pods">
<h2 id="pods">Pods</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="pods-caption"><table>
<caption id="pods-caption">Pods with probes or changes in this period, the worst first</caption>
<thead><tr><th scope="col">Pod</th><th scope="col">Containers</th><th scope="col" class="num">Probes</th>
<th scope="col" class="num">Attempts</th><th scope="col" class="num">Failed</th><th scope="col" class="num">Slow</th>
<th scope="col" class="num">Kills</th><th scope="col" class="num">Restarts</th></tr></thead>
<tbody>
"#,
    );
    page.each(report.pods.iter().take(max_rows), |page, pod| {
        page.markup("<tr><th scope=\"row\">").name(&pod_name(&pod.namespace, &pod.name)).markup("</th><td>");
        page.message(&pod.containers.join(", ")).markup("</td>");
        cell(page, pod.probes);
        for count in [pod.attempts, pod.failed, pod.slow, pod.kills, pod.restarts] {
            cell(page, number(count));
        }
        page.markup("</tr>\n");
    })
    .markup("</tbody></table></div>\n");
    page.left_out(report.pods.len(), max_rows, "pods");
    page.markup("</section>\n");
}

/// Writes the times that were not, or not completely, observed.
pub(super) fn write_gaps(page: &mut Page, report: &Report, max_rows: usize) {
    if report.gaps.is_empty() {
        return;
    }
    page.markup(
        r#"<section aria-labelledby="gaps-title">
<h2 id="gaps-title">Gaps</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="gaps-caption"><table>
<caption id="gaps-caption">Times of which nothing, or not everything, is known</caption>
<thead><tr><th scope="col">Time (UTC)</th><th scope="col">Cause</th></tr></thead>
<tbody>
"#,
    );
    page.each(report.gaps.iter().take(MAX_GAPS.min(max_rows)), |page, gap| {
        page.markup("<tr><td class=\"time\">").text(span(gap.from, gap.to)).markup("</td><td>");
        page.sentence(&gap.cause).markup("</td></tr>\n");
    })
    .markup("</tbody></table></div>\n");
    page.left_out(report.gaps.len(), MAX_GAPS.min(max_rows), "gaps");
    page.markup("</section>\n");
}

/// Writes the facts about the node, and the settings of probeshim.
pub(super) fn write_node(page: &mut Page, report: &Report, max_rows: usize) {
    let mut settings = 0;
    page.markup(
        "<section aria-labelledby=\"node\">\n<h2 id=\"node\">Node and settings</h2>\n<dl class=\"facts\">",
    );
    match &report.node {
        Some(node) => {
            settings = node.settings.len();
            page.each(facts(node), |page, (name, value)| fact(page, name, &value)).each(
                node.settings.iter().take(MAX_SETTINGS.min(max_rows)),
                |page, (name, value)| {
                    fact(page, &format!("--{name}"), value);
                },
            )
        }
        None => page.markup("<dt>node</dt><dd>not recorded</dd>"),
    };
    fact(page, "source", &report.source);
    page.markup("</dl>\n");
    page.left_out(settings, MAX_SETTINGS.min(max_rows), "settings");
    page.markup("</section>\n");
}

fn fact(page: &mut Page, name: &str, value: &str) {
    page.markup("<dt>")
        .text(shortened(name, MAX_NAME_WIDTH))
        .markup("</dt><dd>")
        .message(value)
        .markup("</dd>");
}

fn facts(node: &NodeFacts) -> Vec<(&'static str, String)> {
    let facts = [
        ("host", Some(node.host.clone())),
        ("kernel", Some(node.kernel.clone())),
        ("processors", node.processors.map(|count| count.to_string())),
        ("memory", node.memory_bytes.map(format::size)),
        ("runtime", node.runtime.clone()),
        ("probeshim", Some(node.version.clone())),
        ("started", Some(node.started.clone())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
