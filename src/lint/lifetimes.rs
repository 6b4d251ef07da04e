//! Starts, kills and exits of the containers of a period, from its events.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::finding::LintSubject;
use crate::events::reason;
use crate::history::json::Event;
use crate::kill::ObservedKill;
use crate::terminal::format::{counted, duration};

/// Maximum time between two reports of the same start.
const SAME_START: Duration = Duration::from_secs(3);

/// Reason of the runtime for an exit because of the memory limit.
const OOM_KILLED: &str = "OOMKilled";

/// Reason of the runtime for the exit of a container that it could not start.
const START_ERROR: &str = "(StartError)";

/// Maximum number of occurrences of one event.
const MAX_REPEATED: usize = 10_000;

/// Starts, kills and exits of a container of a pod, over all restarts.
#[derive(Clone, Debug)]
pub(super) struct Lifetimes {
    /// The container.
    pub(super) subject: LintSubject,
    /// Kills because of probes, in order.
    pub(super) kills: Vec<ProbeKill>,
    /// Stops by a kubelet for another reason, while the pod continued.
    pub(super) other_stops: Vec<SystemTime>,
    /// Exits without a stop, in order.
    pub(super) exits: Vec<OwnExit>,
    /// Stops for which the preStop hook had used up the grace period.
    pub(super) unfinished_hooks: Vec<String>,
    /// Stops because of a postStart hook that failed.
    pub(super) failed_hooks: Vec<SystemTime>,
    /// Message of the last event about a postStart hook that failed.
    pub(super) hook_error: Option<String>,
    /// Losses of readiness because of the readiness probe.
    pub(super) not_ready: Vec<SystemTime>,
    /// Starts, in order.
    pub(super) starts: Vec<SystemTime>,
    /// Starts that failed, in order.
    pub(super) failed_starts: Vec<SystemTime>,
    /// Message of the runtime about the last start that failed, if it is known.
    pub(super) start_error: Option<String>,
}

/// A kill because of a probe.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProbeKill {
    /// Time of the stop.
    pub(super) time: SystemTime,
    /// Type of the probe, if it is known.
    pub(super) probe: Option<String>,
    /// Command of a probe whose type is unknown.
    pub(super) command: Option<String>,
    /// Time from the start of the container to the kill, if the start is known.
    pub(super) lifetime: Option<Duration>,
    /// Whether the probe had succeeded in this container, if that is known.
    pub(super) has_succeeded: Option<bool>,
    /// Whether the container was stopped. Another enforcement mode would have stopped it.
    pub(super) is_made: bool,
}

/// An exit of a container that no client had stopped.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnExit {
    /// Time of the exit.
    pub(super) time: SystemTime,
    /// Exit code, if it is known.
    pub(super) code: Option<i32>,
    /// Whether the kernel killed the container for lack of memory.
    pub(super) is_out_of_memory: bool,
    /// Time from the start of the container to the exit, if the start is known.
    pub(super) lifetime: Option<Duration>,
    /// Time from the exit to the next start, if there was one.
    pub(super) back_off: Option<Duration>,
}

/// The running container, while events are read.
#[derive(Default)]
struct Running {
    started: Option<SystemTime>,
    is_stopped: bool,
    is_out_of_memory: bool,
    /// Whether the start failed.
    has_failed: bool,
    /// Unique id of the pod, if it is known.
    pod_uid: Option<String>,
}

/// Returns the starts, kills and exits of each container. `events` are in order of time.
pub(super) fn lifetimes(events: &[Event]) -> Vec<Lifetimes> {
    let mut containers: Vec<(Lifetimes, Running)> = Vec::new();
    for event in events.iter().filter(|event| event.container.is_some()) {
        let subject = LintSubject::for_event(event);
        let known = containers.iter().position(|(known, _)| known.subject == subject);
        let index = known.unwrap_or_else(|| {
            containers.push((Lifetimes::new(subject), Running::default()));
            containers.len() - 1
        });
        if let Ok(time) = event.time.parse::<Timestamp>() {
            let (lifetimes, running) = &mut containers[index];
            lifetimes.add(event, time.into(), running);
        }
    }
    containers.into_iter().map(|(lifetimes, _)| lifetimes).collect()
}

impl Lifetimes {
    fn new(subject: LintSubject) -> Self {
        Self {
            subject,
            kills: Vec::new(),
            other_stops: Vec::new(),
            exits: Vec::new(),
            unfinished_hooks: Vec::new(),
            failed_hooks: Vec::new(),
            hook_error: None,
            not_ready: Vec::new(),
            starts: Vec::new(),
            failed_starts: Vec::new(),
            start_error: None,
        }
    }

    fn add(&mut self, event: &Event, time: SystemTime, running: &mut Running) {
        let message = event.message.as_str();
        if let Some(uid) = event.pod_uid.as_ref().filter(|uid| running.pod_uid.as_ref() != Some(*uid)) {
            let is_start = matches!(
                event.reason.as_str(),
                reason::STARTED | reason::CONTAINER_CREATED | reason::CONTAINER_STARTED
            );
            match running.pod_uid {
                // An event about the pod before, which ends.
                Some(_) if !is_start => return,
                Some(_) => self.forget_restarts(running),
                None => {}
            }
            running.pod_uid = Some(uid.clone());
        }
        match event.reason.as_str() {
            reason::STARTED | reason::CONTAINER_STARTED => self.start(time, running),
            reason::KILLING | reason::KILL_PREDICTED | reason::KILL_UNPREDICTED => {
                running.is_stopped = true;
                if let Some(kill) = ProbeKill::new(message, time, running, true) {
                    self.kills.push(kill);
                } else if event.reason == reason::KILL_UNPREDICTED
                    || ObservedKill::is_without_failure(message)
                {
                    self.other_stops.push(time);
                }
            }
            reason::WOULD_KILL => {
                let kill = |time| ProbeKill::new(message, time, running, false);
                self.kills.extend(occurrences(event, time).filter_map(kill));
            }
            reason::CONTAINER_OUT_OF_MEMORY => running.is_out_of_memory = true,
            reason::CONTAINER_CREATED => (running.started, running.has_failed) = (None, false),
            reason::CONTAINER_START_FAILED => {
                self.start_error = Some(message.to_owned());
                self.fail_start(time, running);
                // The exit may be observed before the answer of the runtime.
                let is_this = |exit: &OwnExit| {
                    exit.code.is_none()
                        && exit.lifetime.is_none()
                        && time.duration_since(exit.time).is_ok_and(|since| since < SAME_START)
                };
                if self.exits.last().is_some_and(is_this) {
                    self.exits.pop();
                }
            }
            reason::CONTAINER_EXITED if message.ends_with(START_ERROR) => self.fail_start(time, running),
            reason::CONTAINER_EXITED => self.exit(message, time, running),
            reason::FAILED_PRE_STOP_HOOK if message.contains("not completed in grace period") => {
                self.unfinished_hooks.push(message.to_owned());
            }
            reason::FAILED_POST_START_HOOK => {
                running.is_stopped = true;
                self.failed_hooks.extend(occurrences(event, time));
                self.hook_error = Some(message.to_owned());
            }
            reason::CONTAINER_NOT_READY => self.not_ready.extend(occurrences(event, time)),
            _ => {}
        }
    }

    /// Removes what another pod of the name had before: its restarts say nothing about this one.
    fn forget_restarts(&mut self, running: &mut Running) {
        self.exits.clear();
        self.starts.clear();
        self.failed_starts.clear();
        self.start_error = None;
        *running = Running::default();
    }

    fn start(&mut self, time: SystemTime, running: &mut Running) {
        let before = running.started.and_then(|started| time.duration_since(started).ok());
        if !running.is_stopped
            && before.is_some_and(|before| before < SAME_START)
            && running.has_no_exit(self)
        {
            return;
        }
        if let Some(last) = self.exits.last_mut().filter(|exit| exit.back_off.is_none()) {
            last.back_off = time.duration_since(last.time).ok();
        }
        self.starts.push(time);
        let pod_uid = running.pod_uid.take();
        *running = Running { started: Some(time), pod_uid, ..Running::default() };
    }

    /// Adds a start that failed. Both the runtime's answer and the exit report it.
    fn fail_start(&mut self, time: SystemTime, running: &mut Running) {
        let since = |last: &SystemTime| time.duration_since(*last).unwrap_or_default();
        let is_same = self.failed_starts.last().is_some_and(|last| since(last) < SAME_START);
        if !(running.has_failed && is_same) {
            self.failed_starts.push(time);
        }
        let pod_uid = running.pod_uid.take();
        *running = Running { has_failed: true, pod_uid, ..Running::default() };
    }

    fn exit(&mut self, message: &str, time: SystemTime, running: &mut Running) {
        let text = message.strip_prefix("Exited with code ");
        let code = text.and_then(|text| text.split(' ').next()?.parse().ok());
        // The runtime does not know how the container ended: it was restarted, or the node.
        if running.is_stopped || running.has_failed || message.ends_with("(Unknown)") {
            return;
        }
        self.exits.push(OwnExit {
            time,
            code,
            is_out_of_memory: running.is_out_of_memory || message.contains(OOM_KILLED),
            lifetime: running.started.and_then(|started| time.duration_since(started).ok()),
            back_off: None,
        });
    }
}

impl Running {
    /// Returns whether the container has not exited since its start.
    fn has_no_exit(&self, lifetimes: &Lifetimes) -> bool {
        lifetimes.exits.last().is_none_or(|exit| self.started.is_some_and(|started| exit.time < started))
    }
}

impl ProbeKill {
    fn new(message: &str, time: SystemTime, running: &Running, is_made: bool) -> Option<Self> {
        let since_start = running.started.and_then(|started| time.duration_since(started).ok());
        if let Some(ObservedKill { probe, command, lifetime, has_succeeded, .. }) =
            ObservedKill::of_message(message)
        {
            let (lifetime, has_succeeded) = (lifetime.or(since_start), Some(has_succeeded));
            return Some(Self { time, probe, command, lifetime, has_succeeded, is_made });
        }
        if ObservedKill::is_without_failure(message) {
            return None;
        }
        let is_it = |probe: &&str| message.contains(&format!("{probe} probe"));
        let probe = ["liveness", "startup"].into_iter().find(is_it)?.to_owned();
        let (probe, lifetime) = (Some(probe), since_start);
        Some(Self { time, probe, command: None, lifetime, has_succeeded: None, is_made })
    }
}

/// Returns the times of the occurrences of an event: only the first and the last time are known.
fn occurrences(event: &Event, last: SystemTime) -> impl Iterator<Item = SystemTime> + use<> {
    let first = event.first_time.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
    let first = first.map_or(last, SystemTime::from);
    let count = usize::try_from(event.count).unwrap_or(usize::MAX).clamp(1, MAX_REPEATED);
    std::iter::repeat_n(first, count - 1).chain([last])
}

/// Returns how often something happened at these times: `once`, or `3 times in 2m00s`.
pub(super) fn how_often(times: impl Iterator<Item = SystemTime> + Clone) -> String {
    match times.clone().count() {
        1 => "once".to_owned(),
        number => {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            format!("{} in {}", counted(number, "time"), duration(span(times)))
        }
    }
}

/// Returns the time from the first to the last of several times.
pub(super) fn span(times: impl Iterator<Item = SystemTime> + Clone) -> Duration {
    let (first, last) = (times.clone().min(), times.max());
    first.zip(last).and_then(|(first, last)| last.duration_since(first).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    fn only(facts: Fixture) -> Lifetimes {
        let mut found = lifetimes(&facts.build().events);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_kill_is_followed_by_an_exit_that_is_not_the_containers_own() {
        let facts = Fixture::new().event_at(1, reason::CONTAINER_STARTED, "Started");
        let facts =
            facts.event_at(31, reason::KILLING, "Container main failed liveness probe, will be restarted");
        let facts = facts.event_at(32, reason::CONTAINER_EXITED, "Exited with code 137 (Error)");
        let facts = facts.event_at(33, reason::CONTAINER_STARTED, "Started");
        let found = only(facts.event_at(40, reason::CONTAINER_EXITED, "Exited with code 1 (Error)"));
        let kill = &found.kills[0];
        assert_eq!((kill.lifetime, kill.has_succeeded), (Some(Duration::from_secs(30)), None));
        let exit = &found.exits[..];
        assert!(
            matches!(exit, [OwnExit { code: Some(1), lifetime: Some(_), back_off: None, .. }]),
            "{exit:?}"
        );
        assert_eq!((found.starts.len(), found.kills.len()), (2, 1));
    }

    #[test]
    fn a_start_that_two_parts_report_is_one() {
        let facts = Fixture::new().event_at(1, reason::STARTED, "Container started");
        let found = only(facts.event_at(2, reason::CONTAINER_STARTED, "Started"));
        assert_eq!(found.starts.len(), 1);
    }

    #[test]
    fn an_exit_of_which_the_runtime_knows_nothing_is_not_the_containers_own() {
        let facts = Fixture::new().event_at(1, reason::CONTAINER_STARTED, "Started");
        assert_eq!(
            only(facts.event_at(9, reason::CONTAINER_EXITED, "Exited with code 255 (Unknown)")).exits,
            []
        );
    }
}
