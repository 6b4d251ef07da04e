//! Stops of containers by clients, and their reasons.
//!
//! A kubelet does not say why it stops a container. The reason follows from the attempts of exec
//! probes before the stop, and from what happens to the pod afterwards.

mod container_stops;
mod probe_run;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use self::container_stops::{ContainerStops, PodAfterStop};
use self::probe_run::ReadinessChange;
use crate::cri::labels::{GRACE_PERIOD, PRE_STOP_HANDLER};
use crate::events::{Event, reason};
use crate::execsync::CallRecord;
use crate::inventory::{Change, Container, Inventory, Source};
use crate::kill::message;
use crate::manifest::ExecPurpose;
use crate::tap::{Call, ExecRequest};
use crate::terminal::format::counted;

/// Maximum number of containers. No node has as many.
const MAX_CONTAINERS: usize = 20_000;

/// An event about a container, by its id.
pub(super) type ContainerEvent = (Arc<str>, Event);

/// The containers of the node, with the results of their exec probes and the stops by clients.
#[derive(Debug, Default)]
pub(super) struct StopObserver {
    containers: HashMap<Arc<str>, ContainerStops>,
    /// Time since which containers are observed.
    since: Option<SystemTime>,
    /// Containers whose stop has no event yet.
    pending: HashSet<Arc<str>>,
    /// Sandboxes that a client stops.
    ending: HashSet<Arc<str>>,
}

impl StopObserver {
    /// Creates an observer of the containers that are started from this time on. The starts of
    /// others, and their earlier attempts, are not known.
    pub(super) fn since(time: SystemTime) -> Self {
        Self { since: Some(time), ..Self::default() }
    }

    /// Handles a change of the inventory.
    pub(super) fn on_change(&mut self, change: &Change, now: SystemTime, monotonic: Instant) {
        match change {
            Change::ContainerStarted(container) => {
                let started = started_at(container).or((container.source != Source::List).then_some(now));
                // A container that ran before may be seen first in a call or an event.
                let is_observed = started.zip(self.since).is_some_and(|(started, since)| started >= since);
                if let Some(stops) = self.stops_mut(&container.id) {
                    (stops.started, stops.is_start_observed) = (started, is_observed);
                }
            }
            Change::ContainerExited(container) => {
                if let Some(stops) = self.containers.get_mut(&container.id) {
                    stops.exited.get_or_insert(monotonic);
                }
            }
            Change::ContainerRemoved(container) => {
                self.containers.remove(&container.id);
                self.pending.remove(&container.id);
            }
            Change::SandboxRemoved(sandbox) => {
                self.ending.remove(&sandbox.id);
            }
            _ => {}
        }
    }

    /// Handles the request of a kubelet to execute a command. A command without a timeout belongs
    /// to a hook.
    pub(super) fn on_exec_requested(&mut self, request: &ExecRequest, start: SystemTime) {
        let id = request.container.as_ref().and_then(|container| container.id.as_deref());
        if let Some(id) = id.filter(|_| request.exec.timeout().is_none())
            && let Some(stops) = self.stops_mut(id)
        {
            stops.start_hook(request.id, start);
        }
    }

    /// Handles the end of a call of a kubelet. The result of an ExecSync follows with its record.
    pub(super) fn on_call_ended(&mut self, call: &Call) {
        let id = call.container.as_ref().and_then(|container| container.id.as_deref());
        if let Some(stops) = id.filter(|_| call.exec.is_some()).and_then(|id| self.stops_mut(id)) {
            stops.end_exec(call.id);
        }
    }

    /// Handles the record of a call, with the failure thresholds of its probes. Returns an event if
    /// the readiness of its container has changed.
    pub(super) fn on_record(
        &mut self,
        record: &CallRecord,
        thresholds: &[(ExecPurpose, u32)],
    ) -> Option<ContainerEvent> {
        let exec = record.call.exec.as_deref()?;
        let container = record.call.container.as_ref()?;
        let id = container.id.as_deref()?;
        if record.is_amended || !record.call.peer.as_ref()?.is_kubelet() {
            return None;
        }
        let change = self.stops_mut(id)?.add(record, exec, thresholds)?;
        let name = container.name.as_deref().unwrap_or(id);
        let event = match change {
            ReadinessChange::NotReady(failures) => {
                let times = failures.map(|failures| format!(" {} in a row", counted(failures, "time")));
                let times = times.unwrap_or_default();
                let because = format!("because its readiness probe failed{times}");
                let message = format!("Container {name} is no longer ready, {because}");
                Event::warning(reason::CONTAINER_NOT_READY, message)
            }
            ReadinessChange::Ready => {
                Event::normal(reason::CONTAINER_READY, format!("Container {name} is ready again"))
            }
        };
        let time = record.call.start.checked_add(record.call.duration).unwrap_or(record.call.start);
        Some((id.into(), Event { time, first_time: time, ..event }))
    }

    /// Handles the request of a client to stop a container that runs. Returns an event if a hook
    /// has used up the grace period, and the event of the stop if another client than a kubelet
    /// stops the container.
    pub(super) fn on_stop(
        &mut self,
        container: &Container,
        is_kubelet: bool,
        at: SystemTime,
        monotonic: Instant,
    ) -> Vec<ContainerEvent> {
        let name = container.container_ref.name.as_deref().unwrap_or(&container.id).to_owned();
        let Some(stops) = self.stops_mut(&container.id) else { return Vec::new() };
        if !stops.stop(at, monotonic, max_hook(container)) {
            return Vec::new();
        }
        let mut events = Vec::new();
        if is_kubelet {
            events.extend(stops.unfinished_hook());
            self.pending.insert(container.id.clone());
        } else {
            let event = Event::normal(reason::KILLING, message::stopping(&name));
            events.push(Event { time: at, first_time: at, ..event });
        }
        events.into_iter().map(|event| (container.id.clone(), event)).collect()
    }

    /// Handles the request of a client to stop a sandbox.
    pub(super) fn on_sandbox_stop(&mut self, id: &str) {
        if self.ending.len() < MAX_CONTAINERS {
            self.ending.insert(id.into());
        }
    }

    /// Returns the events about stops whose reasons are known now.
    pub(super) fn take_events(&mut self, inventory: &Inventory, now: Instant) -> Vec<ContainerEvent> {
        let mut events = Vec::new();
        for id in self.pending.clone() {
            let (Some(stops), Some(container)) = (self.containers.get(&id), inventory.container(&id)) else {
                self.pending.remove(&id);
                continue;
            };
            let name = container.container_ref.name.as_deref().unwrap_or(&id);
            if let Some(event) = stops.event(name, self.after_stop(inventory, container, now), now) {
                events.push((id.clone(), event));
                self.pending.remove(&id);
            }
        }
        events
    }

    /// Returns what happens to the pod of a container that a kubelet stops.
    fn after_stop(&self, inventory: &Inventory, container: &Container, now: Instant) -> PodAfterStop {
        let Some(sandbox) = inventory.live_sandbox_of(container).filter(|sandbox| sandbox.is_ready) else {
            return PodAfterStop::Ends;
        };
        if self.ending.contains(&sandbox.id) {
            return PodAfterStop::Ends;
        }
        let siblings = inventory.containers().filter(|other| other.sandbox.as_ref() == Some(&sandbox.id));
        let mut is_quiet = true;
        for other in siblings {
            let (known, new) = (&container.container_ref, &other.container_ref);
            if known.name == new.name && new.attempt > known.attempt {
                return PodAfterStop::Continues;
            }
            let stops = self.containers.get(&other.id);
            is_quiet &= stops.is_none_or(|stops| stops.is_quiet(now));
        }
        let has_exited = self.containers.get(&container.id).is_some_and(|stops| stops.exited.is_some());
        if has_exited && is_quiet { PodAfterStop::Continues } else { PodAfterStop::Unclear }
    }

    fn stops_mut(&mut self, id: &str) -> Option<&mut ContainerStops> {
        if !self.containers.contains_key(id) {
            if self.containers.len() >= MAX_CONTAINERS {
                return None;
            }
            self.containers.insert(id.into(), ContainerStops::default());
        }
        self.containers.get_mut(id)
    }
}

/// Returns the maximum duration of the preStop hook of a container: its grace period.
fn max_hook(container: &Container) -> Duration {
    let note = |key| container.annotations.get(key);
    let grace_period = note(GRACE_PERIOD).filter(|_| note(PRE_STOP_HANDLER).is_some());
    Duration::from_secs(grace_period.and_then(|seconds| seconds.parse().ok()).unwrap_or_default())
}

/// Returns the time at which a container was started, if it is known.
fn started_at(container: &Container) -> Option<SystemTime> {
    let nanoseconds = u64::try_from(container.started_at).ok().filter(|at| *at > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanoseconds))
}
