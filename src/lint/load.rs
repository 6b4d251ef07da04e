//! Lints about the load of the node and of containers: probe storms, slow disks, memory, CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{MIN_AFFECTED, PeriodFacts, count, evidence, ids, is_share, number, part};
use super::finding::{LintFinding, LintSubject, Severity};
use crate::execsync::{Assessment, CallRecord, Cause, ExecVerdict, PressureStall, causes};
use crate::terminal::format::duration;

/// Minimum number of ExecSyncs in flight on the node in a probe storm, and their minimum number per
/// processor.
const STORM_IN_FLIGHT: usize = 10;
const STORM_PER_PROCESSOR: usize = 2;

/// Minimum share of slow calls with a problem.
const NOTABLE_SHARE: f64 = 0.5;

/// Minimum share of the time for which processes of the node wait for a processor. Busy nodes often
/// reach lower shares, without harm.
const BUSY: f64 = 0.5;

/// Number of probes with the most attempts that are named.
const NAMED_PROBES: usize = 3;

/// Index of a resource in the measurements of stalls.
const CPU: usize = 0;

/// A resource for which processes of a container wait.
struct Resource {
    lint: &'static str,
    index: usize,
    name: &'static str,
    remedy: &'static str,
}

const RESOURCES: [Resource; 2] = [
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
    let mut found: Vec<LintFinding> = probe_storm(facts).into_iter().chain(busy_node(facts)).collect();
    for resource in &RESOURCES {
        for container in &facts.containers {
            let calls: Vec<&CallRecord> =
                container.calls.iter().copied().filter(|call| is_slow(call)).collect();
            let in_container = |call: &CallRecord| {
                let evidence = evidence(call)?;
                Some((evidence.container_pressure?, evidence.window))
            };
            found.extend(stalled(resource, &container.subject, &calls, "the container", in_container));
        }
        let calls: Vec<&CallRecord> = facts.calls().filter(|call| is_slow(call)).collect();
        found.extend(stalled(resource, &LintSubject::NODE, &calls, "the node", in_node));
    }
    found
}

/// Returns whether a call had so many others in flight with it that the node had too little CPU for
/// them. Calls that wait for something else, such as a runtime that hangs, use no CPU.
pub(super) fn is_in_storm(record: &CallRecord) -> bool {
    let Some(evidence) = evidence(record) else { return false };
    let processors = evidence.load.map_or(1, |(_, processors)| processors);
    let has_cpu = evidence.node_pressure.is_some_and(|node| !node.notable(evidence.psi_window)[CPU]);
    let (_, node) = evidence.in_flight;
    node >= STORM_IN_FLIGHT.max(STORM_PER_PROCESSOR * processors) && !has_cpu
}

/// More ExecSyncs ran at the same time than the node has CPU for.
fn probe_storm(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let calls: Vec<&CallRecord> = facts.calls().filter(|call| is_slow(call) && is_in_storm(call)).collect();
    if count(&calls) < MIN_AFFECTED {
        return None;
    }
    let in_flight: Vec<usize> = calls.iter().filter_map(|call| Some(evidence(call)?.in_flight.1)).collect();
    let in_flight = match (in_flight.iter().min()?, in_flight.iter().max()?) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    let processors = calls.iter().find_map(|call| Some(evidence(call)?.load?.1));
    let on = processors.map(|processors| format!(", with {processors} processors")).unwrap_or_default();
    let failed = calls.iter().filter(|call| is_timed_out(call)).count();
    let phases: Duration = calls.iter().filter_map(|call| queue_and_start(call)).sum();
    let time: Duration = calls.iter().map(|call| call.call.duration).sum();
    Some(LintFinding {
        lint: "probe-storm",
        severity: if failed >= MIN_AFFECTED as usize { Severity::Error } else { Severity::Warning },
        subject: LintSubject::NODE,
        sentence: format!(
            "{} had {in_flight} ExecSyncs in flight on the node{on}: it has too little CPU to start them in time.",
            number(count(&calls), "slow or failed call")
        ),
        evidence: [
            Some(busiest(facts)),
            Some(format!(
                "The phases queue, prepare and start took {} of {} in these calls; {failed} timed out.",
                duration(phases),
                duration(time)
            )),
            most_frequent(facts),
        ]
        .into_iter()
        .flatten()
        .collect(),
        remedy:
            "Raise periodSeconds, replace exec probes by httpGet, tcpSocket or grpc probes, or limit their \
                 number with --max-exec-syncs."
                .to_owned(),
        affected: count(&calls),
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
        format!("Most attempts, of {} in all: {}.", number(count(&probes), "probe"), named.join(", "))
    })
}

/// Processes of the node waited for a processor.
fn busy_node(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let depends_on_cpu = |call: &&CallRecord| {
        let causes = causes(call);
        is_slow(call) && !is_in_storm(call) && causes.iter().any(|cause| is_of_node(*cause))
    };
    let calls: Vec<&CallRecord> = facts.calls().filter(depends_on_cpu).collect();
    let waits = |call: &&CallRecord| {
        let Some((node, window)) = evidence(call).and_then(|it| Some((it.node_pressure?, it.psi_window)))
        else {
            return false;
        };
        !window.is_zero() && node.cpu >= window.mul_f64(BUSY)
    };
    let waited: Vec<&CallRecord> = calls.iter().copied().filter(waits).collect();
    let load = waited.iter().filter_map(|call| evidence(call)?.load).next_back();
    let is_notable = count(&waited) >= MIN_AFFECTED && is_share(count(&waited), count(&calls), NOTABLE_SHARE);
    is_notable.then(|| LintFinding {
        lint: "busy-node",
        severity: Severity::Warning,
        subject: LintSubject::NODE,
        sentence: format!(
            "In {}, processes of the node waited for a processor for at least half of the time.",
            part(count(&waited), count(&calls), "slow calls")
        ),
        evidence: load
            .map(|(load, processors)| {
                format!(
                    "The load over a minute was {load}, with {processors} processors, in the last of them."
                )
            })
            .into_iter()
            .collect(),
        remedy:
            "Find out what uses the CPU of the node; httpGet, tcpSocket and grpc probes need less of it than \
                 exec probes."
                .to_owned(),
        affected: count(&waited),
        calls: ids(&waited),
    })
}

/// Processes of a container, or of the node, waited for a resource.
fn stalled(
    resource: &Resource,
    subject: &LintSubject,
    calls: &[&CallRecord],
    owner: &str,
    pressure: impl Fn(&CallRecord) -> Option<(PressureStall, Duration)>,
) -> Option<LintFinding> {
    let measured: Vec<(&CallRecord, PressureStall, Duration)> = calls
        .iter()
        .filter_map(|call| pressure(call).map(|(pressure, window)| (*call, pressure, window)))
        .collect();
    let is_stalled = |(_, pressure, window): &&(&CallRecord, PressureStall, Duration)| {
        pressure.notable(*window)[resource.index]
    };
    let found: Vec<_> = measured.iter().filter(is_stalled).collect();
    if count(&found) < MIN_AFFECTED || !is_share(count(&found), count(&measured), NOTABLE_SHARE) {
        return None;
    }
    let stalled = |pressure: &PressureStall| [pressure.cpu, pressure.io, pressure.memory][resource.index];
    let time: Duration = found.iter().map(|(_, pressure, _)| stalled(pressure)).sum();
    let window: Duration = found.iter().map(|(.., window)| *window).sum();
    let percent = 100.0 * time.as_secs_f64() / window.as_secs_f64().max(f64::MIN_POSITIVE);
    let calls: Vec<&CallRecord> = found.iter().map(|(call, ..)| *call).collect();
    Some(LintFinding {
        lint: resource.lint,
        severity: Severity::Warning,
        subject: subject.clone(),
        sentence: format!(
            "In {}, processes of {owner} waited for {} for {percent:.0} % of the time.",
            part(count(&found), count(&measured), "slow calls"),
            resource.name
        ),
        evidence: vec![
            format!("They were stalled for {} of {}.", duration(time), duration(window)),
            format!("Slow calls without a measurement of {owner} do not count."),
        ],
        remedy: resource.remedy.to_owned(),
        affected: count(&found),
        calls: ids(&calls),
    })
}

/// Returns the stalls of the node during a call that the runtime took long to start. The processes
/// of the runtime are not in the container.
fn in_node(record: &CallRecord) -> Option<(PressureStall, Duration)> {
    let evidence = evidence(record)?;
    let is_start = causes(record).contains(&Cause::Start);
    let is_measured = evidence.container_pressure.is_some();
    (is_start || !is_measured).then_some((evidence.node_pressure?, evidence.psi_window))
}

/// Returns whether a call was slow, timed out, or was given up by its client.
fn is_slow(record: &CallRecord) -> bool {
    let (Some(exec), Some(analysis)) = (record.call.exec.as_deref(), record.analysis.as_deref()) else {
        return false;
    };
    let verdict = ExecVerdict::of(&record.call, exec);
    matches!(analysis.assessment, Assessment::Slow(_))
        || matches!(verdict, ExecVerdict::TimedOut | ExecVerdict::Unknown)
}

fn is_timed_out(record: &CallRecord) -> bool {
    let exec = record.call.exec.as_deref();
    exec.is_some_and(|exec| ExecVerdict::of(&record.call, exec) == ExecVerdict::TimedOut)
}

fn is_of_node(cause: Cause) -> bool {
    matches!(cause, Cause::Start | Cause::Run | Cause::UnknownPhase | Cause::Queue)
}

fn queue_and_start(record: &CallRecord) -> Option<Duration> {
    let parts = record.analysis.as_deref()?.phases.parts();
    Some(parts.queue + parts.prepare.unwrap_or_default() + parts.start.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CallDraft, Fixture, only};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    fn slow(change: impl Fn(&mut CallDraft)) -> Fixture {
        Fixture::new().attempts(20, 10).slow_with(4, 3000, change)
    }

    #[test]
    fn more_calls_in_flight_than_the_node_has_cpu_for_are_a_storm() {
        let in_flight = |node, cpu| {
            slow(move |call| {
                let evidence = call.evidence();
                evidence.in_flight = (1, node);
                evidence.node_pressure = Some(PressureStall { cpu, ..PressureStall::default() });
                let parts = call.parts();
                std::mem::swap(&mut parts.start, &mut parts.run);
            })
        };
        let frequent = Fixture::new().attempts(3000, 10);
        assert_eq!(found(frequent, "probe-storm"), None, "a probe that is frequent is no storm");
        assert_eq!(found(in_flight(9, SECOND), "probe-storm"), None);
        assert_eq!(found(in_flight(64, Duration::ZERO), "probe-storm"), None, "calls that wait are no storm");
        let found = found(in_flight(64, SECOND), "probe-storm").unwrap();
        assert_eq!(
            found.sentence,
            "4 slow or failed calls had 64 ExecSyncs in flight on the node, with 4 processors: it has too little CPU to \
             start them in time."
        );
        assert_eq!(
            found.evidence,
            [
                "The busiest minute had 24 attempts, 0.4 per second.",
                "The phases queue, prepare and start took 12.0s of 12.0s in these calls; 0 timed out.",
                "Most attempts, of 1 probe in all: shop/web-0 main liveness (kubelet) (24).",
            ]
        );
        assert_eq!((found.severity, found.subject), (Severity::Warning, LintSubject::NODE));
    }

    #[test]
    fn processes_that_wait_for_a_resource_in_slow_calls_are_found() {
        let stalled = |io, memory| {
            slow(move |call| {
                let stall = PressureStall { cpu: Duration::ZERO, io, memory };
                call.evidence().container_pressure = Some(stall);
            })
        };
        for (facts, lint, name) in [
            (stalled(SECOND, Duration::ZERO), "slow-disk", "I/O"),
            (stalled(Duration::ZERO, SECOND), "memory-pressure", "memory"),
        ] {
            let found = found(facts, lint).unwrap();
            let expected = format!(
                "In 4 of 4 slow calls (100 %), processes of the container waited for {name} for 33 % of the time."
            );
            assert_eq!((found.sentence, found.subject.text()), (expected, "shop/web-0 main".to_owned()));
        }
        for lint in ["slow-disk", "memory-pressure"] {
            assert_eq!(found(stalled(Duration::ZERO, Duration::ZERO), lint), None);
            let quick = Fixture::new().calls(9, 10, |call| {
                call.exit(1);
                let stall = PressureStall { cpu: SECOND, io: SECOND, memory: SECOND };
                call.evidence().container_pressure = Some(stall);
            });
            assert_eq!(found(quick, lint), None, "a call that fails quickly is not slow");
        }
    }

    #[test]
    fn the_disk_of_the_node_delays_the_start_of_commands() {
        let waits = |is_start| {
            slow(move |call| {
                let stall = PressureStall { io: SECOND, ..PressureStall::default() };
                call.evidence().node_pressure = Some(stall);
                call.evidence().container_pressure = Some(PressureStall::default());
                let parts = call.parts();
                if is_start {
                    std::mem::swap(&mut parts.start, &mut parts.run);
                }
            })
        };
        assert_eq!(found(waits(false), "slow-disk"), None, "the container did not wait");
        assert_eq!(found(waits(true), "slow-disk").unwrap().subject, LintSubject::NODE);
    }

    #[test]
    fn a_node_with_too_little_cpu_is_found_unless_it_is_a_storm() {
        let busy = |cpu: Duration, in_flight| {
            slow(move |call| {
                call.evidence().node_pressure = Some(PressureStall { cpu, ..PressureStall::default() });
                call.evidence().in_flight = (1, in_flight);
            })
        };
        assert_eq!(found(busy(SECOND, 1), "busy-node"), None);
        assert_eq!(found(busy(2 * SECOND, 64), "busy-node"), None);
        let found = found(busy(2 * SECOND, 1), "busy-node").unwrap();
        assert_eq!(
            found.sentence,
            "In 4 of 4 slow calls (100 %), processes of the node waited for a processor for at least half of the time."
        );
    }
}
