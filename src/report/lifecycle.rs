//! Starts, exits and kills of containers.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::Serialize;

use super::serialize::{name, rfc3339};
use crate::events::reason;
use crate::history::json;
use crate::history::timeline::ProbeSeries;
use crate::kill::ObservedKill;

/// Maximum time between two reports of the same start.
const SAME_START: Duration = Duration::from_secs(3);

/// A start, exit or kill of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleEvent {
    /// Time of the last occurrence.
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    /// Time of the first occurrence.
    #[serde(serialize_with = "rfc3339")]
    pub first_time: SystemTime,
    /// Number of occurrences.
    pub count: u64,
    /// The change.
    pub kind: LifecycleKind,
    /// Whether the container was started after an exit or a kill in the period.
    pub is_restart: bool,
    /// Reason of the event.
    pub reason: String,
    /// Namespace of the pod; empty, and null in JSON, if it is unknown.
    #[serde(serialize_with = "name")]
    pub namespace: String,
    /// Name of the pod; empty, and null in JSON, if it is unknown.
    #[serde(serialize_with = "name")]
    pub pod: String,
    /// Name of the container; empty, and null in JSON, if it is unknown.
    #[serde(serialize_with = "name")]
    pub container: String,
    /// Message of the event.
    pub message: String,
}

/// Change of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifecycleKind {
    /// The container was killed, because a probe failed.
    Killed,
    /// The container would have been killed in another enforcement mode.
    WouldBeKilled,
    /// The container was stopped for another reason, such as the end of its pod.
    Stopped,
    /// The kernel killed a process of the container for lack of memory.
    OutOfMemory,
    /// The container has exited.
    Exited,
    /// The container was started.
    Started,
}

impl LifecycleKind {
    /// Returns the change in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Killed => "killed for a probe",
            Self::WouldBeKilled => "would have been killed",
            Self::Stopped => "stopped",
            Self::OutOfMemory => "out of memory",
            Self::Exited => "exited",
            Self::Started => "started",
        }
    }

    /// Returns whether an event with this message reports a kill, or a kill that was not made,
    /// because of a type of probe.
    #[must_use]
    pub fn is_because_of(self, message: &str, probe: &str) -> bool {
        matches!(self, Self::Killed | Self::WouldBeKilled) && message.contains(&format!("{probe} probe"))
    }

    /// Returns the change that an event reports, if it reports one.
    #[must_use]
    pub fn of_event(event: &json::Event) -> Option<Self> {
        let is_for_probe = event.message.contains("failed liveness probe")
            || event.message.contains("failed startup probe")
            || event.message.contains("failed readiness probe")
            || event.message.contains("failed a probe");
        Some(match event.reason.as_str() {
            reason::KILLING if is_for_probe => Self::Killed,
            reason::KILL_UNPREDICTED | reason::KILL_PREDICTED => Self::Killed,
            reason::KILLING => Self::Stopped,
            reason::WOULD_KILL => Self::WouldBeKilled,
            reason::CONTAINER_OUT_OF_MEMORY => Self::OutOfMemory,
            reason::CONTAINER_EXITED => Self::Exited,
            reason::CONTAINER_STARTED | reason::STARTED => Self::Started,
            _ => return None,
        })
    }
}

impl LifecycleEvent {
    /// Returns whether the event is about a container.
    #[must_use]
    pub fn is_about(&self, namespace: &str, pod: &str, container: &str) -> bool {
        self.namespace == namespace && self.pod == pod && self.container == container
    }

    /// Returns whether a kill, or a kill that was not made, was because of this type of probe, or
    /// of one of several types that are joined with `or`.
    #[must_use]
    pub fn is_because_of(&self, probe: &str) -> bool {
        probe.split(" or ").any(|probe| self.kind.is_because_of(&self.message, probe))
    }
}

impl LifecycleEvent {
    /// Returns whether a kill was because of the probe of a series, which may have no known type.
    pub(super) fn is_because_of_series(&self, series: &ProbeSeries) -> bool {
        let kill = ObservedKill::of_message(&self.message);
        match kill.map(|kill| (kill.probe, kill.command)) {
            Some((None, command)) => command.as_ref() == Some(&series.handler),
            // The command of a probe may have changed.
            Some((Some(_), Some(command))) => command == series.handler && self.is_because_of(&series.probe),
            _ => self.is_because_of(&series.probe),
        }
    }
}

/// Containers that are being stopped or have been killed, and not started again. With them, an exit
/// does not read as a completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoppedContainers(HashMap<[String; 3], &'static str>);

impl StoppedContainers {
    /// Records an event of a container, which is given by namespace, pod and name. Returns the
    /// message of the event; that of an exit says whether the container was killed or stopped. The
    /// kubelet's reason "Completed" stands for the exit code 0, also after a kill.
    pub(crate) fn message<'a>(
        &mut self,
        container: [&str; 3],
        reason: &str,
        message: &'a str,
    ) -> Cow<'a, str> {
        let key = container.map(str::to_owned);
        match reason {
            reason::KILLING if message.starts_with("Stopping container") => {
                self.0.insert(key, "stopped");
            }
            reason::KILLING | reason::KILL_PREDICTED | reason::KILL_UNPREDICTED => {
                self.0.insert(key, "killed");
            }
            reason::CONTAINER_STARTED | reason::STARTED => drop(self.0.remove(&key)),
            reason::CONTAINER_EXITED => {
                if let Some(verb) = self.0.remove(&key) {
                    let exit = message.trim_end_matches(" (Completed)");
                    return Cow::Owned(format!("{exit} after it was {verb}"));
                }
            }
            _ => {}
        }
        Cow::Borrowed(message)
    }
}

/// Removes starts that the built-in kubelet reported and that the inventory reported too.
fn remove_repeated_starts(events: &mut Vec<LifecycleEvent>) {
    let is_start = |event: &&LifecycleEvent| event.reason == reason::CONTAINER_STARTED;
    let observed: Vec<LifecycleEvent> = events.iter().filter(is_start).cloned().collect();
    events.retain(|event| {
        let is_same = |other: &LifecycleEvent| {
            let between =
                event.time.duration_since(other.time).or_else(|error| Ok::<_, ()>(error.duration()));
            other.is_about(&event.namespace, &event.pod, &event.container)
                && between.is_ok_and(|between| between < SAME_START)
        };
        event.reason != reason::STARTED || !observed.iter().any(is_same)
    });
}

/// Returns the starts, exits and kills among events, which are in order of time.
pub(super) fn lifecycle(events: &[json::Event]) -> Vec<LifecycleEvent> {
    let time = |text: &str| text.parse::<Timestamp>().map(SystemTime::from).ok();
    let mut ended: HashSet<[String; 3]> = HashSet::new();
    let mut found: Vec<LifecycleEvent> = events
        .iter()
        .filter_map(|event| {
            let kind = LifecycleKind::of_event(event)?;
            let last = time(&event.time)?;
            Some(LifecycleEvent {
                time: last,
                first_time: event.first_time.as_deref().and_then(time).unwrap_or(last),
                count: event.count.max(1),
                kind,
                is_restart: false,
                reason: event.reason.clone(),
                namespace: event.namespace.clone().unwrap_or_default(),
                pod: event.pod.clone().unwrap_or_default(),
                container: event.container.clone().unwrap_or_default(),
                message: event.message.clone(),
            })
        })
        .collect();
    found.sort_by_key(|event| event.time);
    remove_repeated_starts(&mut found);
    let mut stopped = StoppedContainers::default();
    for event in &mut found {
        let names = [event.namespace.as_str(), &event.pod, &event.container];
        let message = stopped.message(names, &event.reason, &event.message).into_owned();
        event.message = message;
        let container = [event.namespace.clone(), event.pod.clone(), event.container.clone()];
        match event.kind {
            LifecycleKind::Started => event.is_restart = ended.contains(&container),
            LifecycleKind::Exited | LifecycleKind::Killed => {
                ended.insert(container);
            }
            LifecycleKind::WouldBeKilled | LifecycleKind::Stopped | LifecycleKind::OutOfMemory => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::events::{Event, EventRecorder};
    use crate::history::recorder::{RecordedLines, Timeline, TimelineSources};
    use crate::history::timeline::{NodeFacts, TimelineReader};
    use crate::object_ref::{ContainerRef, PodRef};

    fn event(second: u32, reason: &str, message: &str) -> json::Event {
        json::Event {
            time: format!("2026-11-27T10:00:{second:02}Z"),
            r#type: "Normal".to_owned(),
            reason: reason.to_owned(),
            namespace: Some("shop".to_owned()),
            pod: Some("web".to_owned()),
            container: Some("main".to_owned()),
            message: message.to_owned(),
            count: 1,
            first_time: None,
            pod_uid: None,
        }
    }

    #[test]
    fn a_start_that_two_parts_report_is_one_restart() {
        let found = lifecycle(&[
            event(0, reason::STARTED, "Container started"),
            event(10, reason::CONTAINER_EXITED, "Exited with code 1"),
            event(20, reason::STARTED, "Container started"),
            event(21, reason::CONTAINER_STARTED, "Started"),
            event(40, reason::CONTAINER_EXITED, "Exited with code 1"),
            event(50, reason::STARTED, "Container started"),
        ]);
        let starts = found.iter().filter(|event| event.kind == LifecycleKind::Started);
        assert_eq!(starts.map(|event| event.is_restart).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn an_exit_after_a_kill_does_not_read_as_a_completion() {
        let found = lifecycle(&[
            event(0, reason::CONTAINER_EXITED, "Exited with code 0 (Completed)"),
            event(5, reason::CONTAINER_STARTED, "Started"),
            event(10, reason::KILLING, "Container main failed liveness probe, will be restarted"),
            event(11, reason::CONTAINER_EXITED, "Exited with code 0 (Completed)"),
            event(12, reason::CONTAINER_STARTED, "Started"),
            event(20, reason::KILLING, "Stopping container main"),
            event(21, reason::CONTAINER_EXITED, "Exited with code 143 (Error)"),
            event(22, reason::CONTAINER_STARTED, "Started"),
            event(30, reason::KILLING, "Container main failed liveness probe, will be restarted"),
            event(31, reason::CONTAINER_STARTED, "Started"),
            event(40, reason::CONTAINER_EXITED, "Exited with code 0 (Completed)"),
        ]);
        let exits = found.iter().filter(|event| event.kind == LifecycleKind::Exited);
        assert_eq!(
            exits.map(|event| event.message.as_str()).collect::<Vec<_>>(),
            [
                "Exited with code 0 (Completed)",
                "Exited with code 0 after it was killed",
                "Exited with code 143 (Error) after it was stopped",
                "Exited with code 0 (Completed)",
            ]
        );
    }

    #[test]
    fn a_kill_because_of_a_probe_is_distinguished_from_the_end_of_a_pod() {
        let kind = |reason, message| lifecycle(&[event(0, reason, message)])[0].kind;
        let failed = "Container main failed liveness probe, will be restarted";
        assert_eq!(kind(reason::KILLING, failed), LifecycleKind::Killed);
        let unknown = "Container main failed a probe, and the kubelet stopped it (1 failure in a row): check";
        assert_eq!(kind(reason::KILLING, unknown), LifecycleKind::Killed);
        assert_eq!(kind(reason::KILLING, "Stopping container main"), LifecycleKind::Stopped);
        assert_eq!(kind(reason::WOULD_KILL, failed), LifecycleKind::WouldBeKilled);
        let kill = &lifecycle(&[event(0, reason::KILLING, failed)])[0];
        assert!(kill.is_because_of("liveness") && kill.is_because_of("readiness or liveness"));
        assert!(!kill.is_because_of("startup") && !kill.is_because_of("readiness"));
    }

    #[test]
    fn each_restart_is_counted_although_equal_events_are_recorded_together() {
        let events = Arc::new(EventRecorder::default());
        let sources = TimelineSources { events: events.clone(), ..TimelineSources::default() };
        let (now, start) = (SystemTime::now(), Instant::now());
        let timeline = Timeline::new(sources, None, NodeFacts::default(), now, start);
        let pod = Arc::new(PodRef { name: Some("web".to_owned()), ..PodRef::default() });
        let container = Arc::new(ContainerRef { name: Some("main".to_owned()), ..ContainerRef::default() });
        let record = |seconds, reason, message: &str| {
            let time = now + Duration::from_secs(seconds);
            let event = Event { time, first_time: time, ..Event::normal(reason, message) };
            events.record(event.for_container(pod.clone(), container.clone()));
        };
        for cycle in 0..3 {
            record(120 * cycle, reason::STARTED, "Container started");
            record(120 * cycle + 60, reason::CONTAINER_EXITED, "Exited with code 1");
            let passed = Duration::from_secs(120 * cycle + 119);
            timeline.tick(now + passed, start + passed);
        }
        let passed = Duration::from_secs(400);
        let lines = timeline.recorded_lines(now + passed, start + passed);
        let RecordedLines::Memory(segments) = lines else { panic!("{lines:?}") };
        // The first start and exit are before the period.
        let since = now + Duration::from_secs(100);
        for (from, starts, restarts, exits) in [(now, 3, 2, 3), (since, 2, 1, 2)] {
            let mut reader = TimelineReader::new(from, now + passed);
            let lines = segments.iter().flat_map(|segment| segment.split(|byte| *byte == b'\n'));
            lines.for_each(|line| reader.add_line(line));
            let found = lifecycle(&reader.finish().events);
            let count = |is_it: fn(&LifecycleEvent) -> bool| {
                found.iter().filter(|event| is_it(event)).map(|event| event.count).sum::<u64>()
            };
            let counted = [
                count(|event| event.kind == LifecycleKind::Started),
                count(|event| event.is_restart),
                count(|event| event.kind == LifecycleKind::Exited),
            ];
            assert_eq!(counted, [starts, restarts, exits], "{found:?}");
        }
    }
}
