//! The policies in the status: fault rules, pauses, limits and coalescing.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;

use crate::admin::api;
use crate::terminal::format;

/// Maximum number of fault rules, and of pauses, that are named.
const MAX_NAMED: usize = 5;

/// A row of the status: its name, its value and the style of the value.
type Row = (&'static str, String, Style);

/// Returns the rows of the policies that are active.
pub(super) fn rows(status: &api::Status, now: Timestamp) -> impl Iterator<Item = Row> {
    [faults(status), pauses(status, now), exec_policies(status)].into_iter().flatten()
}

/// Returns the row of active fault rules; `None` if there are none.
fn faults(status: &api::Status) -> Option<Row> {
    let names: Vec<&str> = status.faults.iter().map(|fault| fault.name.as_str()).take(MAX_NAMED).collect();
    let more = status.faults.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text =
        format!("{} active: {}{more}; see `probeshim fault list`", status.faults.len(), names.join(", "));
    (!names.is_empty()).then_some(("faults", text, AnsiColor::Magenta.on_default()))
}

/// Returns the row of active pauses; `None` if there are none.
fn pauses(status: &api::Status, now: Timestamp) -> Option<Row> {
    let ends = |pause: &api::Pause| {
        format!("{} of {} ends in {}", pause.name, pause.selector, format::time_until(&pause.expires, now))
    };
    let shown: Vec<String> = status.pauses.iter().take(MAX_NAMED).map(ends).collect();
    let more = status.pauses.len() - shown.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let text = format!("{} active: {}{more}; see `probeshim pause`", status.pauses.len(), shown.join("; "));
    (!shown.is_empty()).then_some(("pauses", text, AnsiColor::Magenta.on_default()))
}

/// Returns the row of the limits of ExecSyncs and of coalescing; `None` if there are none.
fn exec_policies(status: &api::Status) -> Option<Row> {
    let api::ExecPolicies {
        max_exec_syncs,
        max_exec_syncs_per_container,
        exec_sync_overflow,
        waiting,
        coalesce_probes,
    } = &status.exec_policies;
    let limit = |count: Option<u32>, place| count.map(|count| format!("at most {count} {place}"));
    let limits =
        [limit(*max_exec_syncs, "on the node"), limit(*max_exec_syncs_per_container, "in a container")];
    let overflow = exec_sync_overflow.as_deref().map(|overflow| match overflow {
        "wait" => format!("others wait, {waiting} now"),
        _ => "others fail".to_owned(),
    });
    let coalesced = coalesce_probes.then(|| "equal probes share one".to_owned());
    let parts: Vec<String> = limits.into_iter().flatten().chain(overflow).chain(coalesced).collect();
    (!parts.is_empty()).then(|| ("ExecSyncs", parts.join("; "), Style::new()))
}
