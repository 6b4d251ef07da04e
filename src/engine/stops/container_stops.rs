//! A container with the results of its exec probes, and its stop by a client.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::probe_run::{ProbeRun, ReadinessChange};
use crate::events::{Event, reason};
use crate::execsync::{CallRecord, ExecVerdict, ProbeMatch};
use crate::kill::{ObservedKill, message};
use crate::manifest::ExecPurpose;
use crate::tap::ExecCall;

/// Maximum number of exec probes, and of calls in flight, of a container.
const MAX_CALLS: usize = 64;

/// Maximum time to wait for the record of an attempt that has ended.
const RECORD_DELAY: Duration = Duration::from_secs(3);

/// Time after the exit of a stopped container in which a kubelet that ends the pod stops its
/// sandbox.
const SANDBOX_DELAY: Duration = Duration::from_secs(2);

/// Minimum duration of a hook that has used up the grace period.
const MIN_HOOK: Duration = Duration::from_secs(1);

/// Time after the start of a container in which a command without a timeout may be its postStart
/// hook.
const POST_START: Duration = Duration::from_secs(3);

/// Maximum time from the end of a failed postStart hook to the stop of the container.
const MAX_HOOK_DELAY: Duration = Duration::from_secs(10);

/// A container with the results of its exec probes, and its stop by a client.
#[derive(Debug, Default)]
pub(super) struct ContainerStops {
    /// Time of the start, if it was observed.
    pub(super) started: Option<SystemTime>,
    /// Whether this process ran when the container was started, and observed all attempts.
    pub(super) is_start_observed: bool,
    /// Time at which the exit was observed.
    pub(super) exited: Option<Instant>,
    probes: Vec<ProbeRun>,
    /// ExecSyncs that have ended, and that are not recorded yet.
    unrecorded: HashSet<u64>,
    /// Hooks in flight, with their starts.
    hooks: HashMap<u64, SystemTime>,
    /// Start of the last hook.
    last_hook: Option<SystemTime>,
    /// End of the postStart hook, with its exit code, if it failed.
    failed_post_start: Option<(SystemTime, Option<i32>)>,
    /// Maximum duration of the preStop hook; zero without one.
    max_hook: Duration,
    /// Time of the stop.
    stop: Option<(SystemTime, Instant)>,
}

/// State of a pod after the stop of one of its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodAfterStop {
    /// It is not known at this time whether the pod continues.
    Unclear,
    /// The pod has its other containers, or a new container of the name.
    Continues,
    /// The sandbox is stopped.
    Ends,
}

impl ContainerStops {
    /// Adds the start of a hook.
    pub(super) fn start_hook(&mut self, call: u64, start: SystemTime) {
        if self.hooks.len() < MAX_CALLS {
            self.hooks.insert(call, start);
        }
        self.last_hook = Some(start);
    }

    /// Adds the end of an ExecSync, whose record follows. The reason of a stop does not wait for an
    /// attempt that ended after it.
    pub(super) fn end_exec(&mut self, call: u64) {
        self.hooks.remove(&call);
        if self.stop.is_none() && self.unrecorded.len() < MAX_CALLS {
            self.unrecorded.insert(call);
        }
    }

    /// Adds the result of an ExecSync. An attempt that ended after the stop has the stop as its
    /// reason.
    pub(super) fn add(
        &mut self,
        record: &CallRecord,
        exec: &ExecCall,
        thresholds: &[(ExecPurpose, u32)],
    ) -> Option<ReadinessChange> {
        self.unrecorded.remove(&record.call.id);
        let end = record.call.start.checked_add(record.call.duration)?;
        if exec.timeout().is_none() {
            self.add_hook(record, exec, end);
        }
        if exec.timeout().is_none() || self.stop.is_some_and(|(at, _)| at < end) {
            return None;
        }
        let known = self.probes.iter().position(|probe| probe.is_for(exec));
        let index = match known {
            Some(index) => index,
            None if self.probes.len() >= MAX_CALLS => return None,
            None => {
                self.probes.push(ProbeRun::new(exec, self.is_start_observed));
                self.probes.len() - 1
            }
        };
        self.probes[index].add(record, thresholds)
    }

    /// Adds the result of a hook, of which only a postStart hook that fails stops the container.
    fn add_hook(&mut self, record: &CallRecord, exec: &ExecCall, end: SystemTime) {
        let is_post_start = match record.analysis.as_deref().map(|analysis| &analysis.identity) {
            Some(ProbeMatch::Matched { uses, .. }) => uses.contains(&ExecPurpose::PostStart),
            _ => false,
        };
        let has_failed = matches!(
            ExecVerdict::from_record(record),
            Some(ExecVerdict::Failure | ExecVerdict::TimedOut | ExecVerdict::Error)
        );
        if is_post_start {
            let code = exec.result.map(|result| result.exit_code);
            self.failed_post_start = has_failed.then_some((end, code));
        }
    }

    /// Sets the time of the stop, and the maximum duration of the preStop hook before it. Returns
    /// whether it is the first stop.
    pub(super) fn stop(&mut self, at: SystemTime, monotonic: Instant, max_hook: Duration) -> bool {
        let is_first = self.stop.is_none();
        self.max_hook = max_hook;
        self.stop.get_or_insert((at, monotonic));
        is_first
    }

    /// Returns whether the container is not being stopped, or exited some time ago.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        match self.exited {
            Some(exited) => now.saturating_duration_since(exited) >= SANDBOX_DELAY,
            None => self.stop.is_none(),
        }
    }

    /// Returns an event if a preStop hook is in flight although the container is stopped: the hook
    /// has used up the grace period.
    pub(super) fn unfinished_hook(&self) -> Option<Event> {
        let (at, _) = self.stop?;
        let took = |start: &SystemTime| at.duration_since(*start).ok();
        let is_pre_stop = |start: &&SystemTime| {
            let since_start = self.started.and_then(|started| start.duration_since(started).ok());
            since_start.is_none_or(|since_start| since_start >= POST_START)
        };
        let longest = self.hooks.values().filter(is_pre_stop).filter_map(took).max()?;
        (longest >= MIN_HOOK).then(|| {
            let message =
                format!("PreStop hook not completed in grace period, after {:.1}s", longest.as_secs_f64());
            at_time(Event::warning(reason::FAILED_PRE_STOP_HOOK, message), at)
        })
    }

    /// Returns the event about the stop of the container with this name; `None` while its reason is
    /// not certain.
    pub(super) fn event(&self, name: &str, pod: PodAfterStop, now: Instant) -> Option<Event> {
        let (at, since) = self.stop?;
        let may_follow = !self.unrecorded.is_empty() && now.saturating_duration_since(since) < RECORD_DELAY;
        if may_follow && pod != PodAfterStop::Ends {
            return None;
        }
        let (begin, hook) = self.begin_of_stop(at);
        let certain = self.probes.iter().filter(|probe| probe.is_reason(begin, hook));
        let killing = |text: String| Some(at_time(Event::normal(reason::KILLING, text), at));
        if let Some(probe) = certain.max_by_key(|probe| probe.last_failure()) {
            return killing(self.kill(name, probe, at).to_string());
        }
        match pod {
            PodAfterStop::Unclear => None,
            PodAfterStop::Ends => killing(message::stopping(name)),
            PodAfterStop::Continues => {
                let possible: Vec<&ProbeRun> =
                    self.probes.iter().filter(|probe| probe.may_be_reason(begin, hook)).collect();
                let hook = self
                    .failed_post_start
                    .filter(|(end, _)| at.duration_since(*end).is_ok_and(|since| since <= MAX_HOOK_DELAY));
                if let Some((_, code)) = hook {
                    return Some(at_time(after_failed_hook(name, code), at));
                }
                killing(match possible[..] {
                    [] => ObservedKill::without_failure(name),
                    [only] => self.kill(name, only, at).to_string(),
                    [first, ..] => {
                        let kill = self.kill(name, first, at);
                        ObservedKill { probe: None, command: None, ..kill }.to_string()
                    }
                })
            }
        }
    }

    fn kill(&self, name: &str, probe: &ProbeRun, at: SystemTime) -> ObservedKill {
        ObservedKill {
            container: name.to_owned(),
            probe: probe.types(),
            failures: probe.failures_in_a_row(),
            lifetime: self.started.and_then(|started| at.duration_since(started).ok()),
            has_succeeded: probe.has_succeeded != Some(false),
            command: Some(probe.command()),
        }
    }

    /// Returns the time at which the kubelet began to stop the container, and the time that a hook
    /// before the request may have taken. Only the start of a hook with a command is observed.
    fn begin_of_stop(&self, at: SystemTime) -> (SystemTime, Duration) {
        let last_failure = self.probes.iter().map(ProbeRun::last_failure).max();
        match self.last_hook.filter(|hook| last_failure.is_some_and(|failure| failure <= *hook)) {
            Some(hook) => (hook, Duration::ZERO),
            None => (at, self.max_hook),
        }
    }
}

/// Returns the event about a stop by a kubelet because of a postStart hook.
fn after_failed_hook(container: &str, code: Option<i32>) -> Event {
    let how = code.map_or_else(|| "failed".to_owned(), |code| format!("exited with {code}"));
    let message =
        format!("The postStart hook of the container {container} {how}, and the kubelet stopped it");
    Event::warning(reason::FAILED_POST_START_HOOK, message)
}

fn at_time(event: Event, time: SystemTime) -> Event {
    Event { time, first_time: time, ..event }
}
