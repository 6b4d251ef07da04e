//! State of a container of a pod that is probed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::inventory::{Container, Sandbox};
use crate::manifest::ProbeType;
use crate::object_ref::ContainerRef;
use crate::prober::probe_state::{ContainerRun, ObservedState};
use crate::prober::threshold::ProbeResult;
use crate::relay::CallInfo;

/// Newest container of its name in a pod.
#[derive(Debug)]
pub(in crate::prober) struct ProbedContainer {
    pub(in crate::prober) names: Arc<ContainerRef>,
    pub(in crate::prober) id: Arc<str>,
    /// ID of the container's sandbox, if it is known.
    pub(super) sandbox: Option<Arc<str>>,
    pub(super) age: Age,
    pub(in crate::prober) state: ObservedState,
    /// Whether the sync that started the container is in progress. The kubelet's workers read the
    /// status of the pod, which has a container from the sync on that follows its start
    /// (`prober/worker.go`: `doProbe`; `kubelet.go`: `SyncPod`).
    pub(super) awaits_sync: bool,
    /// ExecSync of a kubelet's postStart hook, while it is in flight. The sync of the kubelet is in
    /// progress at least as long.
    pub(super) post_start: Weak<CallInfo>,
    pub(in crate::prober) was_started: bool,
    /// Call that stops the container, while it is in flight.
    pub(super) stopper: Weak<CallInfo>,
    /// Probe results by probe type.
    pub(super) results: [Option<(ContainerRun, ProbeResult)>; 3],
    /// Would-be kills by probe type.
    pub(super) endings: [WouldKillStats; 3],
    /// The container and its sandbox in the inventory, which selectors match.
    pub(super) object: InventoryObject,
    /// Whether probeshim is killing the container, or has killed it.
    pub(super) kill_pending: bool,
    /// Hash of the container's specification that the kubelet keeps in an annotation.
    pub(super) hash: Option<String>,
    /// Stop of the container by the kubelet, if there was one.
    pub(super) their_stop: Option<KubeletStop>,
}

/// Would-be kills of a container for one probe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WouldKillStats {
    /// Number of would-be kills.
    pub(super) count: u32,
    /// Time of the last would-be kill.
    pub(super) last: Option<Instant>,
    /// Time of a predicted kill that has not been observed yet, and the time limit for the kubelet
    /// to make it.
    pub(super) expected: Option<(Instant, Duration)>,
}

/// A stop of a container by the kubelet.
#[derive(Clone, Debug)]
pub(in crate::prober) enum KubeletStop {
    /// The reason of the stop is not known yet.
    Unexplained {
        /// The probe that was one failure short of its threshold, if there was one, and whether it
        /// had failed at all.
        nearly: Option<(ProbeType, bool)>,
        /// Summary of all probes, with the last attempts of the prober and the kubelet.
        stood: String,
        /// Time of the stop.
        since: Instant,
    },
    /// The stop was a kill for a probe.
    Judged,
}

/// A container and its sandbox in the inventory.
#[derive(Clone, Debug)]
pub(in crate::prober) struct InventoryObject {
    pub(in crate::prober) sandbox: Arc<Sandbox>,
    pub(in crate::prober) container: Arc<Container>,
}

/// State of a container in the inventory.
#[derive(Clone, Debug)]
pub(in crate::prober) struct ContainerUpdate {
    pub(in crate::prober) names: Arc<ContainerRef>,
    pub(in crate::prober) id: Arc<str>,
    pub(in crate::prober) sandbox: Option<Arc<str>>,
    pub(in crate::prober) age: Age,
    pub(in crate::prober) state: ObservedState,
    pub(in crate::prober) object: InventoryObject,
    pub(in crate::prober) hash: Option<String>,
}

/// Data that shows which of two containers is newer.
#[derive(Clone, Copy, Debug)]
pub(in crate::prober) struct Age {
    /// Attempt of the container in its CRI metadata.
    pub(in crate::prober) attempt: u32,
    /// Creation time in nanoseconds since 1970; 0 if it is not known yet.
    pub(in crate::prober) created_at: i64,
    /// Time at which the container was first seen.
    pub(in crate::prober) seen: Instant,
}

impl ProbedContainer {
    pub(in crate::prober) fn name(&self) -> &str {
        self.names.name.as_deref().unwrap_or_default()
    }

    /// Returns whether the workers see the container.
    pub(super) fn is_published(&self) -> bool {
        !self.awaits_sync && self.post_start.strong_count() == 0
    }

    pub(in crate::prober) fn is_running(&self) -> bool {
        matches!(self.state, ObservedState::Running(_))
    }

    /// Returns the result of a probe.
    pub(in crate::prober) fn result(&self, probe_type: ProbeType) -> Option<ProbeResult> {
        self.results[probe_type as usize].as_ref().map(|(_, result)| *result)
    }

    /// Returns whether the kubelet has stopped the container for a probe.
    pub(super) fn stopped_by_kubelet(&self) -> bool {
        matches!(self.their_stop, Some(KubeletStop::Judged))
    }

    pub(super) fn is_being_stopped(&self) -> bool {
        self.stopper.strong_count() > 0
    }

    /// Returns the number of would-be kills for a probe.
    pub(in crate::prober) fn would_have_ended(&self, probe_type: ProbeType) -> u32 {
        self.endings[probe_type as usize].count
    }

    pub(super) fn update(&mut self, known: ContainerUpdate) {
        let ContainerUpdate { names, id: _, sandbox, age, state, object, hash } = known;
        (self.names, self.age, self.object, self.hash) = (names, age, object, hash);
        self.sandbox = sandbox;
        // The start time is set once and does not change while the container runs.
        if !matches!((self.state, state), (ObservedState::Running(_), ObservedState::Running(_))) {
            self.state = state;
        }
    }
}

impl Age {
    pub(super) fn is_newer_than(self, other: Self) -> bool {
        // The attempt is compared first, because the clock may have been set back.
        if self.attempt != other.attempt {
            self.attempt > other.attempt
        } else if self.created_at != 0 && other.created_at != 0 {
            self.created_at > other.created_at
        } else {
            self.seen > other.seen
        }
    }
}
