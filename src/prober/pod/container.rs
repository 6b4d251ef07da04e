//! A container of a pod, as far as its probes know it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::manifest::ProbeType;
use crate::object_ref::ContainerRef;
use crate::prober::probe_state::{ContainerRun, ObservedState};
use crate::prober::threshold::ProbeResult;
use crate::relay::CallInfo;

/// A container of it: of those of its name the newest.
#[derive(Debug)]
pub(in crate::prober) struct ProbedContainer {
    pub(in crate::prober) names: Arc<ContainerRef>,
    pub(in crate::prober) id: Arc<str>,
    pub(super) age: Age,
    pub(in crate::prober) state: ObservedState,
    pub(in crate::prober) was_started: bool,
    /// Somebody has it stopped, for as long as the call is there.
    pub(super) stopper: Weak<CallInfo>,
    /// What each type of probe is held to say.
    pub(super) results: [Option<(ContainerRun, ProbeResult)>; 3],
    /// What each type of probe would have done to it.
    pub(super) endings: [WouldKillStats; 3],
    /// It is never killed.
    pub(super) is_protected: bool,
    /// It is being killed by us, or has been.
    pub(super) kill_pending: bool,
    /// What the kubelet takes it for, as it has noted at the container.
    pub(super) hash: Option<String>,
    /// The kubelet has it stopped.
    pub(super) their_stop: Option<KubeletStop>,
}

/// What a probe would have done to a container.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WouldKillStats {
    /// How often it would have ended it.
    pub(super) count: u32,
    /// When it would have done so last.
    pub(super) last: Option<Instant>,
    /// Since when it is to be seen what a kubelet does about it, and for how long.
    pub(super) expected: Option<(Instant, Duration)>,
}

/// A stop of the kubelet's.
#[derive(Clone, Debug)]
pub(in crate::prober) enum KubeletStop {
    /// It is not known yet what it was for.
    Unexplained {
        /// The probe that was one failure short of its threshold, if one was; and whether it had failed at all.
        nearly: Option<(ProbeType, bool)>,
        /// How all of them stood, ours and the kubelet's.
        stood: String,
        /// When it was stopped.
        since: Instant,
    },
    /// It was for a probe.
    Judged,
}

/// What is known of a container from the world.
#[derive(Clone, Debug)]
pub(in crate::prober) struct ContainerUpdate {
    pub(in crate::prober) names: Arc<ContainerRef>,
    pub(in crate::prober) id: Arc<str>,
    pub(in crate::prober) age: Age,
    pub(in crate::prober) state: ObservedState,
    pub(in crate::prober) is_protected: bool,
    pub(in crate::prober) hash: Option<String>,
}

/// What tells which of two containers is the newer one.
#[derive(Clone, Copy, Debug)]
pub(in crate::prober) struct Age {
    /// How often a container of its name had been created before.
    pub(in crate::prober) attempt: u32,
    /// In nanoseconds since 1970; 0 where it is not known yet.
    pub(in crate::prober) created_at: i64,
    /// When it was seen first.
    pub(in crate::prober) seen: Instant,
}

impl ProbedContainer {
    pub(in crate::prober) fn name(&self) -> &str {
        self.names.name.as_deref().unwrap_or_default()
    }

    pub(in crate::prober) fn is_running(&self) -> bool {
        matches!(self.state, ObservedState::Running(_))
    }

    /// What a probe is held to say of it, as it is now.
    pub(in crate::prober) fn result(&self, probe_type: ProbeType) -> Option<ProbeResult> {
        self.results[probe_type as usize].as_ref().map(|(_, result)| *result)
    }

    /// The kubelet has it stopped for a probe.
    pub(super) fn stopped_by_kubelet(&self) -> bool {
        matches!(self.their_stop, Some(KubeletStop::Judged))
    }

    pub(super) fn is_being_stopped(&self) -> bool {
        self.stopper.strong_count() > 0
    }

    /// How often a probe would have ended it.
    pub(in crate::prober) fn would_have_ended(&self, probe_type: ProbeType) -> u32 {
        self.endings[probe_type as usize].count
    }

    pub(super) fn update(&mut self, known: ContainerUpdate) {
        let ContainerUpdate { names, id: _, age, state, is_protected, hash } = known;
        (self.names, self.age, self.is_protected, self.hash) = (names, age, is_protected, hash);
        // When it was started is learned once.
        if !matches!((self.state, state), (ObservedState::Running(_), ObservedState::Running(_))) {
            self.state = state;
        }
    }
}

impl Age {
    pub(super) fn is_newer_than(self, other: Self) -> bool {
        // A clock may have been set back meanwhile.
        if self.attempt != other.attempt {
            self.attempt > other.attempt
        } else if self.created_at != 0 && other.created_at != 0 {
            self.created_at > other.created_at
        } else {
            self.seen > other.seen
        }
    }
}
