//! The slowest of the calls that are kept, with their phases and explanation.

use super::page::Page;
use super::phases;
use super::time::exact_time;
use crate::history::json;
use crate::report::call::SlowCall;
use crate::report::model::Report;
use crate::terminal::format;

/// Writes the slowest of the calls that are kept.
pub(super) fn write(page: &mut Page, report: &Report, max_rows: usize) {
    page.markup("<section aria-labelledby=\"calls\">\n<h2 id=\"calls\">Slowest kept calls</h2>\n");
    page.markup(
        "<p>probeshim keeps some of the slow and failed ExecSyncs: of each probe and minute the first failed and the \
         slowest one, and at most 16 each time it writes results. This is the slowest kept one of each probe; others \
         may have been slower.</p>\n",
    );
    if report.slowest_calls.is_empty() {
        page.markup("<p class=\"fine\">No slow or failed ExecSync was kept in this period.</p>\n");
    }
    let calls = &report.slowest_calls;
    page.each(calls.iter().take(max_rows), one);
    page.left_out(calls.len(), max_rows, "calls");
    page.markup("</section>\n");
}

fn one(page: &mut Page, SlowCall { call, sentences, similar }: &SlowCall) {
    page.markup("<article class=\"call\" id=\"call-").text(call.id).markup("\"><h3>");
    page.text(format_args!("{} · call {} · ", format::milliseconds(call.duration_ms), call.id));
    page.name(&subject(call)).markup("</h3>\n");
    page.markup("<p class=\"about minor\"><span>").text(time(&call.start)).markup("</span> <span>");
    page.text(outcome(call)).markup("</span>");
    if *similar > 0 {
        page.markup(" <span>").text(format_args!("{similar} more like this")).markup("</span>");
    }
    page.markup("</p>\n");
    if let Some(phases) = call.exec.as_ref().and_then(|exec| exec.phases.as_ref()) {
        phases::write(page, "Phases", &phases.named());
    }
    page.each(sentences, |page, sentence| {
        page.markup("<p>").sentence(sentence).markup("</p>\n");
    });
    page.markup("<p class=\"query\"><code>probeshim explain ")
        .text(call.id)
        .markup("</code></p>\n</article>\n");
}

fn subject(call: &json::Call) -> String {
    let pod = call.pod.as_ref().map(|pod| match (&pod.namespace, &pod.name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => pod.id.clone().unwrap_or_default(),
    });
    let container = call.container.as_ref().and_then(|it| it.name.clone().or_else(|| it.id.clone()));
    let probe = call.exec.as_ref().and_then(|exec| exec.probe.as_ref()).map(|probe| probe.r#type.clone());
    [probe, pod, container].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn outcome(call: &json::Call) -> String {
    match call.exec.as_ref().and_then(|exec| exec.exit_code) {
        Some(code) => format!("exit code {code}"),
        None => call.code.clone(),
    }
}

fn time(start: &str) -> String {
    start.parse::<jiff::Timestamp>().map_or_else(|_| start.to_owned(), |time| exact_time(time.into()))
}
