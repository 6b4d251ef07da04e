//! The policies in the status: fault rules, pauses, limits and coalescing.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;

use crate::admin::api::{ActiveFault, DirectContainer, ExecPolicies, Pause, Status};
use crate::terminal::format;

/// Maximum number of fault rules, and of pauses, that are named.
const MAX_NAMED: usize = 5;

/// A row of the status: its name, its value and the style of the value.
type Row = (&'static str, String, Style);

/// Returns the rows of the policies that are active.
pub(super) fn rows(status: &Status, now: Timestamp) -> impl Iterator<Item = Row> {
    let Status { faults, pauses, exec_policies, .. } = status;
    let direct = direct_row(&exec_policies.direct_containers);
    [fault_row(faults, now), pause_row(pauses, now), exec_row(exec_policies), direct].into_iter().flatten()
}

/// Returns the row of active fault rules; `None` if there are none.
fn fault_row(faults: &[ActiveFault], now: Timestamp) -> Option<Row> {
    let ends = |fault: &ActiveFault| match &fault.expires {
        Some(expires) => format!("{} ends in {}", fault.name, format::time_until(expires, now)),
        None => format!("{} ends with probeshim", fault.name),
    };
    let names: Vec<String> = faults.iter().take(MAX_NAMED).map(ends).collect();
    let more = faults.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!("{} active: {}{more}; see `probeshim fault list`", faults.len(), names.join(", "));
    (!names.is_empty()).then_some(("faults", text, AnsiColor::Magenta.on_default()))
}

/// Returns the row of active pauses; `None` if there are none.
fn pause_row(pauses: &[Pause], now: Timestamp) -> Option<Row> {
    let ends = |pause: &Pause| {
        format!("{} of {} ends in {}", pause.name, pause.selector, format::time_until(&pause.expires, now))
    };
    let named: Vec<String> = pauses.iter().take(MAX_NAMED).map(ends).collect();
    let more = pauses.len() - named.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let text = format!("{} active: {}{more}; see `probeshim pause`", pauses.len(), named.join("; "));
    (!named.is_empty()).then_some(("pauses", text, AnsiColor::Magenta.on_default()))
}

/// Returns the row of the limits of ExecSyncs and of coalescing; `None` if there are none.
fn exec_row(policies: &ExecPolicies) -> Option<Row> {
    let ExecPolicies {
        max_exec_syncs,
        max_exec_syncs_per_container,
        exec_sync_overflow,
        queued,
        coalesce_probes,
        sharing,
        exec,
        exec_match,
        direct_containers: _,
    } = policies;
    let limit = |count: Option<u32>, place| count.map(|count| format!("at most {count} {place}"));
    let limits =
        [limit(*max_exec_syncs, "on the node"), limit(*max_exec_syncs_per_container, "in a container")];
    let overflow = exec_sync_overflow.as_deref().map(|overflow| match overflow {
        "wait" => format!("others wait, {queued} now"),
        _ => "others fail".to_owned(),
    });
    let coalesced = coalesce_probes.then(|| format!("identical probes share one, {sharing} wait for it now"));
    let direct = (exec != "runtime" && !exec.is_empty()).then(|| match exec_match {
        Some(selector) => format!("executed {exec} in {selector}"),
        None => format!("executed {exec}"),
    });
    let parts = limits.into_iter().flatten().chain(overflow).chain(coalesced).chain(direct);
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| ("ExecSyncs", parts.join("; "), Style::new()))
}

/// Returns the row of the containers of which commands were to be executed without the runtime;
/// `None` if there are none.
fn direct_row(containers: &[DirectContainer]) -> Option<Row> {
    let part = |state: &str, text: &str| {
        let in_state = || containers.iter().filter(|container| container.state == state);
        let count = Some(in_state().count()).filter(|count| *count > 0)?;
        let reason = in_state().find_map(|container| container.reason.as_deref());
        Some(format!("{count} {text}{}", reason.map_or(String::new(), |reason| format!(" ({reason})"))))
    };
    let attempts: u32 = containers.iter().map(|container| container.attempts).sum();
    let parts = [
        part("verified", "verified"),
        part("recorded", "recorded"),
        part("unverified", &format!("unverified after {attempts} attempts")),
        part("forwarded", "left to the runtime"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| ("containers", parts.join("; "), Style::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(row: Option<Row>) -> Option<String> {
        row.map(|(_, text, _)| text)
    }

    #[test]
    fn the_status_names_pauses_with_the_time_until_their_ends() {
        let pause = |number: u32| Pause {
            name: format!("pause-{number}"),
            selector: "namespace=shop".to_owned(),
            readiness: false,
            expires: "2026-11-24T13:10:00Z".to_owned(),
            answered: 3,
        };
        let shown = |count: u32| {
            let pauses: Vec<Pause> = (1..=count).map(pause).collect();
            text(pause_row(&pauses, "2026-11-24T13:00:00Z".parse().unwrap()))
        };
        assert_eq!(shown(0), None);
        let one = "1 active: pause-1 of namespace=shop ends in 10m00s; see `probeshim pause`";
        assert_eq!(shown(1).as_deref(), Some(one));
        let seven = shown(7).unwrap();
        assert!(seven.starts_with("7 active: pause-1 of ") && !seven.contains("pause-6"), "{seven}");
        assert!(seven.ends_with("; and 2 more; see `probeshim pause`"), "{seven}");
    }

    #[test]
    fn the_status_has_the_verification_of_containers_for_direct_exec() {
        assert_eq!(text(direct_row(&[])), None);
        let container = |state: &str, attempts, reason: Option<&str>| DirectContainer {
            id: "c".to_owned(),
            state: state.to_owned(),
            attempts,
            reason: reason.map(str::to_owned),
        };
        let containers = [
            container("verified", 0, None),
            container("unverified", 2, None),
            container("unverified", 3, Some("the runtime started no process in time")),
            container("forwarded", 0, Some("process.selinuxLabel is not supported")),
        ];
        let expected = "1 verified; 2 unverified after 5 attempts (the runtime started no process in time); \
                        1 left to the runtime (process.selinuxLabel is not supported)";
        assert_eq!(text(direct_row(&containers)).as_deref(), Some(expected));
    }

    #[test]
    fn the_status_has_the_limits_of_exec_syncs_and_coalescing() {
        assert_eq!(text(exec_row(&ExecPolicies::default())), None);
        let limits = |overflow: &str| ExecPolicies {
            max_exec_syncs: Some(20),
            max_exec_syncs_per_container: Some(2),
            exec_sync_overflow: Some(overflow.to_owned()),
            queued: 4,
            coalesce_probes: overflow == "wait",
            sharing: 3,
            ..ExecPolicies::default()
        };
        let waits = "at most 20 on the node; at most 2 in a container; others wait, 4 now; identical probes share one, \
             3 wait for it now";
        assert_eq!(text(exec_row(&limits("wait"))).as_deref(), Some(waits));
        let fails = "at most 20 on the node; at most 2 in a container; others fail";
        assert_eq!(text(exec_row(&limits("fail"))).as_deref(), Some(fails));
    }
}
