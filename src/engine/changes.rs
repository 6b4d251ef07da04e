//! Changes of the inventory, which observations cause, and their consequences.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::warn;

use super::NodeEngine;
use crate::events::{Event, reason};
use crate::inventory::{Change, InspectRequest, Sandbox, Source};
use crate::tap::{Observation, Observations};
use crate::terminal::sanitize;

/// Maximum number of requests for addresses after a list. A runtime may have no addresses.
const MAX_REPEATED_REQUESTS: usize = 16;

/// Kinds of objects that have been listed once. Objects in the first list existed before, and cause
/// no events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InitialLists {
    sandboxes: bool,
    containers: bool,
}

impl NodeEngine {
    /// Applies observations to the inventory. `is_mutating` is set if they come from a call that
    /// changed the runtime.
    pub(super) fn apply(&mut self, source: Source, observations: Observations, is_mutating: bool) {
        if observations.items.is_empty() {
            return;
        }
        let before = self.initial_lists;
        self.initial_lists.sandboxes |=
            observations.items.iter().any(|observation| matches!(observation, Observation::SandboxList(_)));
        self.initial_lists.containers |=
            observations.items.iter().any(|observation| matches!(observation, Observation::ContainerList(_)));
        let changes =
            self.inventory.fold(source, observations.observed_since, Instant::now(), observations.items);
        if !changes.is_empty() {
            self.on_changes(&changes, is_mutating, before);
        }
        if source == Source::List {
            self.request_missing_addresses();
        }
        if self.initial_lists.is_complete() {
            if let Some(recorder) = self.recorder.as_mut().filter(|_| !before.is_complete()) {
                recorder.on_first_list(&self.inventory);
            }
            if let Some(prober) = &self.prober {
                prober.mark_listed();
            }
        }
    }

    /// Publishes changes of the inventory, and passes them to the recorder, the analyzer and the
    /// prober.
    fn on_changes(&mut self, changes: &[Change], is_mutating: bool, before: InitialLists) {
        self.outputs.inventory.send_replace(self.inventory.clone());
        if let Some(recorder) = &mut self.recorder {
            recorder.record_named(&self.inventory);
        }
        self.analyzer.on_changes(&self.inventory, changes, Instant::now());
        if let Some(prober) = &self.prober {
            prober.changed(&self.inventory, changes);
        }
        // The container that follows on a stopped one shows that the pod continues. The stop is
        // recorded first, so that no reader sees a restart without its reason.
        if changes
            .iter()
            .any(|change| matches!(change, Change::ContainerCreated(_) | Change::ContainerStarted(_)))
        {
            self.record_stops();
        }
        for change in changes {
            self.observe_change(change);
            if (is_mutating || before.covers(change))
                && !self.recorded_by_kubelet(change)
                && let Some(event) = change.event(&self.inventory)
            {
                self.record_event(event);
            }
            match (change, &self.recorder) {
                (Change::ContainerExited(container), Some(recorder))
                    if is_mutating || before.covers(change) =>
                {
                    recorder.on_exited(&self.inventory, container);
                }
                (
                    Change::ContainerStarted(container) | Change::ContainerUpdated(container),
                    Some(recorder),
                ) => {
                    recorder.on_started(&self.inventory, container);
                }
                (Change::SandboxRemoved(sandbox), Some(recorder)) => {
                    recorder.on_sandbox_removed(&self.inventory, sandbox);
                }
                _ => {}
            }
            if let Change::SandboxStarted(sandbox) = change {
                self.outputs.refresh.trigger();
                self.request_addresses(sandbox);
                self.report_invalid_annotations(sandbox);
            }
        }
    }

    /// Requests the addresses of a sandbox. They are in the response of `PodSandboxStatus`, which
    /// no client need call. The list of sandboxes, which lacks them, may show the sandbox before
    /// the client that starts it gets its response.
    fn request_addresses(&self, sandbox: &Sandbox) {
        if sandbox.lacks_addresses() {
            // Without a watcher of the runtime, no request is made.
            let _ = self.outputs.inspect_requests.try_send(InspectRequest::Sandbox(sandbox.id.clone()));
        }
    }

    /// Requests again the addresses that are unknown, of the newest sandboxes first. A request is
    /// lost if the runtime fails to respond or is disconnected.
    fn request_missing_addresses(&self) {
        let is_missing = |sandbox: &&Arc<Sandbox>| sandbox.is_ready && sandbox.lacks_addresses();
        let mut missing: Vec<_> = self.inventory.sandboxes().filter(is_missing).collect();
        missing.sort_unstable_by_key(|sandbox| Reverse(sandbox.seen));
        for sandbox in missing.into_iter().take(MAX_REPEATED_REQUESTS) {
            self.request_addresses(sandbox);
        }
    }

    /// Returns whether the built-in kubelet itself records the event of a change.
    fn recorded_by_kubelet(&self, change: &Change) -> bool {
        let (Change::ContainerCreated(container) | Change::ContainerStarted(container)) = change else {
            return false;
        };
        let pod = self.inventory.sandbox_of(container).map(|sandbox| &sandbox.pod);
        self.kubelet.get().is_some_and(|kubelet| pod.is_some_and(|pod| kubelet.manages(pod)))
    }

    /// Reports the invalid annotations of a pod.
    fn report_invalid_annotations(&self, sandbox: &Sandbox) {
        for problem in self.analyzer.annotation_problems(sandbox) {
            let (namespace, pod) = (sandbox.pod.namespace.as_deref(), sandbox.pod.name.as_deref());
            warn!(namespace, pod, "{}", sanitize(&problem));
            self.record_event(
                Event::warning(reason::INVALID_ANNOTATION, problem).for_pod(sandbox.pod.clone()),
            );
        }
    }
}

impl InitialLists {
    pub(super) fn is_complete(self) -> bool {
        self.sandboxes && self.containers
    }

    /// Returns whether the kind of the changed object had been listed.
    fn covers(self, change: &Change) -> bool {
        match change {
            Change::SandboxStarted(_) | Change::SandboxStopped(_) | Change::SandboxRemoved(_) => {
                self.sandboxes
            }
            Change::ContainerCreated(_)
            | Change::ContainerStarted(_)
            | Change::ContainerExited(_)
            | Change::ContainerRemoved(_) => self.containers,
            Change::SandboxUpdated(_) | Change::ContainerUpdated(_) => false,
        }
    }
}
