//! Passes stops of containers by clients, and results of their exec probes, to the stop observer,
//! and records the events that follow.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::NodeEngine;
use super::stops::ContainerEvent;
use crate::cri::v1::ContainerState;
use crate::cri::{Code, known_cause};
use crate::events::{Event, reason};
use crate::execsync::CallRecord;
use crate::inventory::{Change, Container};
use crate::kill::message;
use crate::manifest::ExecPurpose;
use crate::object_ref::PodRef;
use crate::prober::EnforcementMode;
use crate::relay::{CallInfo, CallOutcome};
use crate::tap::{DecodedCall, ExecRequest, StopRequest};

impl NodeEngine {
    /// Handles the request of a client to stop or remove a sandbox or container.
    pub(super) fn observe_stop_request(&mut self, request: &StopRequest) {
        let Some(info) = request.info.upgrade() else { return };
        if let Some(container) = &request.container {
            self.observe_stop(&info, container, true);
        }
        if let Some(sandbox) = &request.sandbox {
            self.stops.on_sandbox_stop(sandbox);
            let containers: Vec<String> = self
                .inventory
                .containers()
                .filter(|container| container.sandbox.as_deref() == Some(sandbox.as_str()))
                .map(|container| container.id.to_string())
                .collect();
            for container in containers {
                self.observe_stop(&info, &container, true);
            }
        }
    }

    /// Handles a kubelet's request for a command, which may be a hook.
    pub(super) fn observe_exec_request(&mut self, request: &ExecRequest) {
        if let Some(info) = request.info.upgrade().filter(|info| info.is_from_kubelet()) {
            self.stops.on_exec_requested(request, info.start);
        }
    }

    /// Handles the end of a kubelet's call. Its request may not have been observed.
    pub(super) fn observe_call_end(&mut self, call: &DecodedCall) {
        self.stops.on_call_ended(&call.call);
        let container = call.call.container.as_ref().and_then(|container| container.id.clone());
        if let Some(container) = container.filter(|_| call.call.method.label() == "StopContainer") {
            self.observe_stop(&call.info, &container, false);
        }
    }

    /// Records an event if the runtime could not start a container of a client. The built-in
    /// kubelet records its own.
    pub(super) fn observe_start(&mut self, call: &DecodedCall) {
        let is_own = call.info.peer.as_ref().is_some_and(|peer| peer.is_this_process());
        let has_failed = matches!(call.call.ending, CallOutcome::Completed(Some(code)) if code != Code::OK);
        if call.call.method.label() != "StartContainer" || is_own || !has_failed {
            return;
        }
        let id = call.call.container.as_ref().and_then(|container| container.id.as_deref());
        let Some(container) = id.and_then(|id| self.inventory.container(id)) else { return };
        let error = call.call.message.as_deref().unwrap_or_default();
        // The message names the program.
        let error = if self.analyzer.redacts() { known_cause(error).unwrap_or_default() } else { error };
        let error = if error.is_empty() { "the runtime returned an error" } else { error };
        let event = Event::warning(reason::CONTAINER_START_FAILED, error);
        self.record_event(self.inventory.with_container_refs(container, event));
    }

    /// Handles a change of the inventory.
    pub(super) fn observe_change(&mut self, change: &Change) {
        self.stops.on_change(change, SystemTime::now(), Instant::now());
    }

    /// Handles the record of a call.
    pub(super) fn observe_record(&mut self, record: &CallRecord, thresholds: &[(ExecPurpose, u32)]) {
        let event = self.stops.on_record(record, thresholds);
        self.record_container_events(event.into_iter().collect());
    }

    /// Records the events about stops whose reasons are known now.
    pub(super) fn record_stops(&mut self) {
        let events = self.stops.take_events(&self.inventory, Instant::now());
        self.record_container_events(events);
    }

    fn observe_stop(&mut self, info: &CallInfo, id: &str, is_request: bool) {
        let is_own = info.peer.as_ref().is_some_and(|peer| peer.is_this_process());
        let Some(container) = self.inventory.container(id).cloned().filter(|_| !is_own) else { return };
        if !is_request || container.state == ContainerState::ContainerRunning {
            let is_kubelet = info.is_from_kubelet();
            let events = self.stops.on_stop(&container, is_kubelet, info.start, info.since);
            self.record_container_events(events);
            self.record_stops();
        }
    }

    fn record_container_events(&self, events: Vec<ContainerEvent>) {
        for (id, event) in events {
            let Some(container) = self.inventory.container(&id) else { continue };
            let event = self.inventory.with_container_refs(container, event);
            self.record_event(self.without_second_kill(container, event));
        }
    }

    /// Returns the event of a stop without its reason if the prober compares the kubelet's kills
    /// with its own, and reports this one itself.
    fn without_second_kill(&self, container: &Container, event: Event) -> Event {
        let is_compared = |pod: &Arc<PodRef>| {
            self.prober.as_ref().is_some_and(|prober| {
                prober.mode() == EnforcementMode::DryRun && prober.pod_report(pod).is_some()
            })
        };
        if event.reason != reason::KILLING || !event.pod.as_ref().is_some_and(is_compared) {
            return event;
        }
        let name = container.container_ref.name.as_deref().unwrap_or(&container.id);
        Event { message: message::stopping(name), ..event }
    }
}
