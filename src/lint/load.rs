//! Lints about the load of the node and of containers: probe storms, slow disks, memory, CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{
    Attempts, MIN_AFFECTED, PeriodFacts, count, evidence, has_verdict, ids, is_share, part, sum,
};
use super::finding::{LintFinding, LintSubject, Severity};
use super::names::{BUSY_NODE, MEMORY_PRESSURE, PROBE_STORM, SLOW_DISK};
use crate::execsync::{CallRecord, Cause, ExecVerdict, PressureStall, cause_name, cause_names};
use crate::terminal::format::{counted, duration};

/// Minimum share of slow calls with a problem.
const NOTABLE_SHARE: f64 = 0.5;

/// Minimum share of the time of the calls that are kept for which processes wait for a resource.
const NOTABLE_TIME: f64 = 0.3;

/// Number of probes with the most attempts that are named.
const NAMED_PROBES: usize = 3;

/// Maximum number of containers that a finding about several of them names.
const NAMED_CONTAINERS: usize = 20;

/// Causes for which stalls are counted.
const CAUSES: [Cause; 3] = [Cause::Start, Cause::Run, Cause::UnknownPhase];

/// A resource for which processes wait.
struct Resource {
    lint: &'static str,
    /// Index in the measurements of stalls.
    index: usize,
    name: &'static str,
    remedy: &'static str,
    /// Whether the containers of a node share the resource, so that one cause can affect several.
    is_shared: bool,
}

/// Slow calls of a container, or of several, during which processes waited for a resource.
struct Stalled<'a> {
    /// Containers, with the number of their calls in which processes waited.
    containers: Vec<(LintSubject, u32)>,
    /// Number of slow calls, and of those in which processes waited.
    slow: u32,
    affected: u32,
    /// Time for which processes waited, and for which they were measured, in the calls that are
    /// kept.
    waited: Duration,
    window: Duration,
    /// The calls that are kept, and the number of those whose processes are those of the container.
    calls: Vec<&'a CallRecord>,
    of_container: u32,
}

const RESOURCES: [Resource; 3] = [
    Resource {
        lint: BUSY_NODE,
        index: 0,
        name: "a processor",
        remedy: "Find out what uses the CPU of the node; httpGet, tcpSocket and grpc probes need less of it than \
                 exec probes.",
        is_shared: true,
    },
    Resource {
        lint: SLOW_DISK,
        index: 1,
        name: "I/O",
        remedy: "Find out what uses the disk, with `iostat -x` and the io.stat files of the cgroups; raise the I/O \
                 limit if there is one, or let the handler read less from the disk.",
        is_shared: true,
    },
    Resource {
        lint: MEMORY_PRESSURE,
        index: 2,
        name: "memory",
        remedy: "Raise the memory limit of the container, or reduce the memory that its processes use.",
        is_shared: false,
    },
];

/// Returns the findings about load.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    probe_storm(facts).into_iter().chain(RESOURCES.iter().flat_map(|it| waits(facts, it))).collect()
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
    let phases = sum(calls.iter().filter_map(|call| queue_and_start(call)));
    let time = sum(calls.iter().map(|call| call.call.duration));
    let sample = (!calls.is_empty()).then(|| {
        format!(
            "In {}, the phases queue, prepare and start took {} of {}, and {timed_out} timed out.",
            counted(count(&calls), "recorded call"),
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
        lint: PROBE_STORM,
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
        let attempts = rows.entry(row.minute).or_default();
        *attempts = attempts.saturating_add(row.attempts());
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

/// Processes waited for a resource while calls were slow. Several containers that wait for a
/// resource of the node are one finding.
fn waits(facts: &PeriodFacts<'_>, resource: &Resource) -> Vec<LintFinding> {
    let found: Vec<Stalled<'_>> =
        facts.containers.iter().filter_map(|container| stalled(resource, container)).collect();
    if found.len() > 1 && facts.grouped && resource.is_shared {
        return vec![Stalled::together(found).finding(resource)];
    }
    found.iter().map(|stalled| stalled.finding(resource)).collect()
}

/// Returns the slow calls of a container, if processes waited for a resource in many of them.
fn stalled<'a>(resource: &Resource, container: &Attempts<'a>) -> Option<Stalled<'a>> {
    let slow = CAUSES.iter().map(|cause| container.with_cause(cause.name())).fold(0, u32::saturating_add);
    let affected = container.total.stalls[resource.index];
    if affected < MIN_AFFECTED || !is_share(affected, slow, NOTABLE_SHARE) {
        return None;
    }
    let found: Vec<_> = container.calls.iter().filter_map(|call| stall(resource, call)).collect();
    let stalled = Stalled {
        containers: vec![(container.subject.clone(), affected)],
        slow,
        affected,
        waited: sum(found.iter().map(|it| it.1)),
        window: sum(found.iter().map(|it| it.2)),
        calls: found.iter().map(|it| it.0).collect(),
        of_container: count(&found.iter().filter(|it| it.3).collect::<Vec<_>>()),
    };
    (stalled.share() >= NOTABLE_TIME).then_some(stalled)
}

impl Stalled<'_> {
    /// Returns the slow calls of all these containers.
    fn together(found: Vec<Self>) -> Self {
        let add = |mut all: Self, more: Self| {
            all.containers.extend(more.containers);
            all.slow = all.slow.saturating_add(more.slow);
            all.affected = all.affected.saturating_add(more.affected);
            all.waited = all.waited.saturating_add(more.waited);
            all.window = all.window.saturating_add(more.window);
            all.calls.extend(more.calls);
            all.of_container = all.of_container.saturating_add(more.of_container);
            all
        };
        let none = Self {
            containers: Vec::new(),
            slow: 0,
            affected: 0,
            waited: Duration::ZERO,
            window: Duration::ZERO,
            calls: Vec::new(),
            of_container: 0,
        };
        let mut all = found.into_iter().fold(none, add);
        all.containers.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        all.calls.sort_by_key(|record| (record.call.start, record.call.id));
        all
    }

    /// Returns the share of the measured time for which processes waited.
    fn share(&self) -> f64 {
        self.waited.as_secs_f64() / self.window.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn finding(&self, resource: &Resource) -> LintFinding {
        let calls = count(&self.calls);
        let (subject, of) = match &self.containers[..] {
            [(container, _)] => (container.clone(), String::new()),
            several => (LintSubject::NODE, format!(" of {}", counted(count(several), "container"))),
        };
        let evidence = [
            Some(format!(
                "It was {} of {} ({:.0} %) in {}.",
                duration(self.waited),
                duration(self.window),
                100.0 * self.share(),
                counted(calls, "recorded call"),
            )),
            Some(format!(
                "The processes were those of the container in {}, and those of the node in {}.",
                counted(self.of_container, "call"),
                counted(calls.saturating_sub(self.of_container), "call")
            )),
            self.named(),
        ];
        LintFinding {
            lint: resource.lint,
            severity: Severity::Warning,
            subject,
            sentence: format!(
                "In {}{of}, processes waited for {} for at least a tenth of the time.",
                part(self.affected, self.slow, "slow attempts"),
                resource.name
            ),
            evidence: evidence.into_iter().flatten().collect(),
            remedy: resource.remedy.to_owned(),
            affected: self.affected,
            calls: ids(&self.calls),
        }
    }

    /// Returns a sentence with the containers, if there are several.
    fn named(&self) -> Option<String> {
        let name = |(container, affected): &(LintSubject, u32)| format!("{} ({affected})", container.text());
        let named: Vec<String> = self.containers.iter().take(NAMED_CONTAINERS).map(name).collect();
        let more = match self.containers.len().saturating_sub(NAMED_CONTAINERS) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        (self.containers.len() > 1)
            .then(|| format!("Containers with the number of these attempts: {}{more}.", named.join(", ")))
    }
}

/// Returns a call whose processes were stalled, with the time for which they were, the time for
/// which they were measured, and whether they were those of the container.
fn stall<'a>(
    resource: &Resource,
    record: &'a CallRecord,
) -> Option<(&'a CallRecord, Duration, Duration, bool)> {
    let names = cause_names(record);
    let is_slow = CAUSES.iter().any(|cause| names.contains(&cause.name()));
    let evidence = evidence(record).filter(|_| is_slow && !record.is_usual_duration())?;
    let is_start = names.contains(&Cause::Start.name());
    let (pressure, window) = evidence.stalls(is_start);
    let PressureStall { cpu, io, memory } = pressure;
    let is_container = evidence.container_pressure.is_some() && !is_start;
    let stalled = [cpu, io, memory][resource.index];
    pressure.notable(window)[resource.index].then_some((record, stalled, window, is_container))
}

fn queue_and_start(record: &CallRecord) -> Option<Duration> {
    let parts = record.analysis.as_deref()?.phases.parts();
    Some(sum([Some(parts.queue), parts.prepare, parts.start].into_iter().flatten()))
}

#[cfg(test)]
mod tests;
