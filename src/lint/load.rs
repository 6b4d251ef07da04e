//! Lints about the load of the node and of containers: probe storms, slow disks, memory, CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{Attempts, MIN_AFFECTED, PeriodFacts, count, evidence, has_verdict, ids, is_share, part};
use super::finding::{LintFinding, LintSubject, Severity};
use crate::execsync::{CallRecord, Cause, ExecVerdict, PressureStall, cause_name, cause_names};
use crate::terminal::format::{counted, duration};

/// Minimum share of slow calls with a problem.
const NOTABLE_SHARE: f64 = 0.5;

/// Minimum share of the time of the calls that are kept for which processes wait for a resource.
const NOTABLE_TIME: f64 = 0.3;

/// Number of probes with the most attempts that are named.
const NAMED_PROBES: usize = 3;

/// Causes for which stalls are counted.
const CAUSES: [Cause; 3] = [Cause::Start, Cause::Run, Cause::UnknownPhase];

/// A resource for which processes wait.
struct Resource {
    lint: &'static str,
    /// Index in the measurements of stalls.
    index: usize,
    name: &'static str,
    remedy: &'static str,
}

const RESOURCES: [Resource; 3] = [
    Resource {
        lint: "busy-node",
        index: 0,
        name: "a processor",
        remedy: "Find out what uses the CPU of the node; httpGet, tcpSocket and grpc probes need less of it than \
                 exec probes.",
    },
    Resource {
        lint: "slow-disk",
        index: 1,
        name: "I/O",
        remedy: "Find out what uses the disk, with `iostat -x` and the io.stat files of the cgroups; raise the I/O \
                 limit if there is one, or let the handler read less from the disk.",
    },
    Resource {
        lint: "memory-pressure",
        index: 2,
        name: "memory",
        remedy: "Raise the memory limit of the container, or reduce the memory that its processes use.",
    },
];

/// Returns the findings about load.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let stalled = facts
        .containers
        .iter()
        .flat_map(|container| RESOURCES.iter().filter_map(|resource| stalled(resource, container)));
    probe_storm(facts).into_iter().chain(stalled).collect()
}

/// More ExecSyncs ran at the same time than the node has CPU for.
fn probe_storm(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let affected = facts.with_cause(cause_name::PROBE_STORM);
    let calls = facts.calls_with_cause(cause_name::PROBE_STORM);
    let in_flight: Vec<usize> = calls.iter().filter_map(|call| Some(evidence(call)?.in_flight.1)).collect();
    let most = in_flight.iter().max().map(|most| format!(" up to {most}")).unwrap_or_default();
    let on = facts.processors().map(|processors| format!(", with {processors} processors"));
    let timed_out =
        u32::try_from(calls.iter().filter(|call| has_verdict(call, ExecVerdict::TimedOut)).count())
            .unwrap_or(u32::MAX);
    let phases: Duration = calls.iter().filter_map(|call| queue_and_start(call)).sum();
    let time: Duration = calls.iter().map(|call| call.call.duration).sum();
    let sample = (!calls.is_empty()).then(|| {
        format!(
            "In the calls that are kept ({}), the phases queue, prepare and start took {} of {}, and {timed_out} timed out.",
            count(&calls),
            duration(phases),
            duration(time)
        )
    });
    let is_measured = calls.iter().any(|call| {
        let evidence = call.analysis.as_deref().and_then(|analysis| analysis.evidence.as_deref());
        evidence.is_some_and(|evidence| evidence.node_pressure.is_some())
    });
    let consequence = if is_measured {
        "it has too little CPU to start them in time"
    } else {
        "whether it has enough CPU for them was not measured"
    };
    (affected >= MIN_AFFECTED).then(|| LintFinding {
        lint: "probe-storm",
        severity: if timed_out >= MIN_AFFECTED { Severity::Error } else { Severity::Warning },
        subject: LintSubject::NODE,
        sentence: format!(
            "{} had{most} ExecSyncs in flight on the node{}: {consequence}.",
            counted(affected, "slow or failed attempt"),
            on.unwrap_or_default()
        ),
        evidence: [Some(busiest(facts)), sample, most_frequent(facts)].into_iter().flatten().collect(),
        remedy:
            "Raise periodSeconds, replace exec probes by httpGet, tcpSocket or grpc probes, or limit their \
                 number with --max-exec-syncs."
                .to_owned(),
        affected,
        calls: ids(&calls),
    })
}

/// Returns a sentence about the rows with the most attempts.
fn busiest(facts: &PeriodFacts<'_>) -> String {
    let mut rows: BTreeMap<u64, u32> = BTreeMap::new();
    for row in facts.period.probes.iter().flat_map(|probe| &probe.minutes) {
        *rows.entry(row.minute).or_default() += row.attempts();
    }
    let most = rows.into_values().max().unwrap_or_default();
    let minutes = facts.period.resolution.max(1);
    let time = if minutes == 1 { "minute".to_owned() } else { format!("{minutes} minutes") };
    let seconds = 60.0 * f64::from(u32::try_from(minutes).unwrap_or(u32::MAX));
    format!("The busiest {time} had {most} attempts, {:.1} per second.", f64::from(most) / seconds)
}

/// Returns a sentence with the probes that have the most attempts.
fn most_frequent(facts: &PeriodFacts<'_>) -> Option<String> {
    let mut probes: Vec<(u32, String)> = facts
        .probes
        .iter()
        .map(|probe| (probe.attempts.total.attempts(), probe.attempts.subject.text()))
        .collect();
    probes.sort_by(|one, other| other.cmp(one));
    let named: Vec<String> =
        probes.iter().take(NAMED_PROBES).map(|(attempts, name)| format!("{name} ({attempts})")).collect();
    (!named.is_empty()).then(|| {
        format!("Most attempts, of {} in all: {}.", counted(count(&probes), "probe"), named.join(", "))
    })
}

/// Processes waited for a resource while a call was slow.
fn stalled(resource: &Resource, container: &Attempts<'_>) -> Option<LintFinding> {
    let slow = CAUSES.iter().map(|cause| container.with_cause(cause.name())).sum();
    let affected = container.total.stalls[resource.index];
    if affected < MIN_AFFECTED || !is_share(affected, slow, NOTABLE_SHARE) {
        return None;
    }
    let found: Vec<_> = container.calls.iter().filter_map(|call| stall(resource, call)).collect();
    let (stalled, window): (Duration, Duration) =
        found.iter().fold(Default::default(), |(stalled, window), it| (stalled + it.1, window + it.2));
    let share = stalled.as_secs_f64() / window.as_secs_f64().max(f64::MIN_POSITIVE);
    let of_container = count(&found.iter().filter(|it| it.3).collect::<Vec<_>>());
    let calls: Vec<&CallRecord> = found.iter().map(|it| it.0).collect();
    (share >= NOTABLE_TIME).then(|| LintFinding {
        lint: resource.lint,
        severity: Severity::Warning,
        subject: container.subject.clone(),
        sentence: format!(
            "In {}, processes waited for {} for at least a tenth of the time.",
            part(affected, slow, "slow attempts"),
            resource.name
        ),
        evidence: vec![
            format!(
                "It was {} of {} ({:.0} %) in the calls that are kept: {}.",
                duration(stalled),
                duration(window),
                100.0 * share,
                count(&found)
            ),
            format!(
                "The processes were those of the container in {}, and those of the node in {}.",
                counted(of_container, "call"),
                counted(count(&found) - of_container, "call")
            ),
        ],
        remedy: resource.remedy.to_owned(),
        affected,
        calls: ids(&calls),
    })
}

/// Returns a call whose processes were stalled, with the time for which they were, the time for
/// which they were measured, and whether they were those of the container.
fn stall<'a>(
    resource: &Resource,
    record: &'a CallRecord,
) -> Option<(&'a CallRecord, Duration, Duration, bool)> {
    let names = cause_names(record);
    let is_slow = CAUSES.iter().any(|cause| names.contains(&cause.name()));
    let evidence = evidence(record).filter(|_| is_slow)?;
    let is_start = names.contains(&Cause::Start.name());
    let (pressure, window) = evidence.stalls(is_start);
    let PressureStall { cpu, io, memory } = pressure;
    let is_container = evidence.container_pressure.is_some() && !is_start;
    let stalled = [cpu, io, memory][resource.index];
    pressure.notable(window)[resource.index].then_some((record, stalled, window, is_container))
}

fn queue_and_start(record: &CallRecord) -> Option<Duration> {
    let parts = record.analysis.as_deref()?.phases.parts();
    Some(parts.queue + parts.prepare.unwrap_or_default() + parts.start.unwrap_or_default())
}

#[cfg(test)]
mod tests;
