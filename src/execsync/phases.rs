//! Phases of an ExecSync.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::exec_instance::{EventTime, ExecInstance};
use super::matching::ExecOutcome;
use crate::relay::{DirectMark, DirectTimes};

/// The phases of an ExecSync, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phases {
    /// All phases are known.
    Complete(PhaseDurations),
    /// Events cannot show which exec instance of the container belongs to the call, or whether the
    /// only candidate does.
    Ambiguous {
        /// The phases queue and other.
        parts: PhaseDurations,
        /// The exec ids of the first eight candidates.
        candidates: Vec<Box<str>>,
        /// Number of candidates.
        count: usize,
    },
    /// Events are missing.
    Missing {
        /// The known phases.
        parts: PhaseDurations,
        /// The events that are missing.
        what: MissingEvents,
    },
    /// The runtime has no events about exec instances.
    Unsupported(PhaseDurations),
}

/// Events that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingEvents {
    /// The call was not sent to the runtime: probeshim answered it, or held it until it ended.
    NotSent,
    /// No event about this call was received.
    Everything,
    /// The runtime's events were interrupted during the call.
    Interrupted,
    /// probeshim does not subscribe to the runtime's events.
    NotWatched,
    /// The start of the command was not received.
    Started,
    /// The exit of the command was not received.
    Exited,
}

/// Durations of the phases, which follow each other and add up to the duration of the call. `None`
/// is an unknown phase, whose time is in `other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseDurations {
    /// Time for which probeshim held the complete request.
    pub queue: Duration,
    /// Time for which the runtime prepared the exec: container description and pipes.
    pub prepare: Option<Duration>,
    /// Time for which the OCI runtime started the command.
    pub start: Option<Duration>,
    /// Time for which the command ran.
    pub run: Option<Duration>,
    /// Time for which the runtime waited for the end of the output, after the command had exited.
    pub drain: Option<Duration>,
    /// Time that is in no known phase.
    pub other: Duration,
}

/// Times of a call, relative to its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    /// The start of the call.
    pub(super) started_at: Instant,
    /// Time at which the request was complete.
    pub(super) received: Duration,
    /// Time at which the request had been sent.
    pub(super) sent: Duration,
    /// Time at which the call ended.
    pub(super) end: Duration,
}

impl Timeline {
    /// Returns the phases that are known without events.
    pub(super) fn parts(&self) -> PhaseDurations {
        PhaseDurations { queue: self.sent.saturating_sub(self.received), ..PhaseDurations::default() }
            .filled(self.end)
    }

    /// Returns the phases of a call that was not sent to the runtime. `start` is the time of its
    /// start by the wall clock. `direct` is set if probeshim executed it.
    pub(super) fn phases_without_runtime(&self, start: SystemTime, direct: Option<&DirectMark>) -> Phases {
        match direct {
            Some(DirectMark::Executed(Some(times))) => Phases::Complete(self.direct_phases(start, times)),
            Some(DirectMark::Executed(None)) => {
                Phases::Missing { parts: self.parts(), what: MissingEvents::Exited }
            }
            Some(DirectMark::Forwarded(_)) | None => {
                Phases::Missing { parts: self.parts(), what: MissingEvents::NotSent }
            }
        }
    }

    fn direct_phases(&self, start: SystemTime, times: &DirectTimes) -> PhaseDurations {
        let DirectTimes { requested, created, executed, exited } = *times;
        let after = |time: SystemTime| time.duration_since(start).unwrap_or_default();
        // The times are readings of another clock.
        let mut last = self.received.min(self.end);
        let [queue, prepare, start, run, drain] =
            [after(requested), after(created), after(executed), after(exited), self.end].map(|time| {
                let from = last;
                last = time.clamp(last, self.end.max(last));
                last.saturating_sub(from)
            });
        let [prepare, start, run, drain] = [prepare, start, run, drain].map(Some);
        PhaseDurations { queue, prepare, start, run, drain, other: Duration::ZERO }.filled(self.end)
    }

    /// Returns the phases of a call with this exec instance and outcome.
    pub(super) fn phases(&self, instance: &ExecInstance, outcome: ExecOutcome) -> Phases {
        // A response may arrive before the rest of its request is sent.
        let end = self.end.max(self.sent);
        let after = |moment: Option<EventTime>| moment.map(|moment| moment.after(self.started_at));
        // Each time lies between the previous one and the end. The start is measured slightly late,
        // and the exit with another clock.
        let [added, started, exited] = [instance.added, instance.started, instance.exited].map(after);
        let added = added.map(|added| added.clamp(self.sent, end));
        let from = added.unwrap_or(self.sent);
        let exited = exited.map(|exited| exited.clamp(from, end));
        let started = started.map(|started| started.clamp(from, exited.unwrap_or(end)));
        let between = |from: Option<Duration>, to: Option<Duration>| {
            from.zip(to).map(|(from, to)| to.saturating_sub(from))
        };
        let mut parts = self.parts();
        parts.prepare = between(Some(self.sent), added);
        parts.start = between(added, started);
        parts.run = between(started, exited);
        parts.drain = between(exited, Some(end)).filter(|_| started.is_some());
        let what = match (added, started, exited) {
            (Some(_), Some(_), Some(_)) => None,
            // The command could not be started, and the time was spent on its start.
            (Some(_), None, _) if outcome == ExecOutcome::Refused => {
                parts.start = between(added, Some(end));
                None
            }
            (_, None, _) => Some(MissingEvents::Started),
            (_, Some(_), None) => Some(MissingEvents::Exited),
            (None, ..) => Some(MissingEvents::Everything),
        };
        let parts = parts.filled(self.end);
        match what {
            None => Phases::Complete(parts),
            Some(what) => Phases::Missing { parts, what },
        }
    }
}

impl PhaseDurations {
    /// Returns the durations with the rest of `total` in `other`.
    fn filled(self, total: Duration) -> Self {
        let known = [Some(self.queue), self.prepare, self.start, self.run, self.drain];
        let known: Duration = known.into_iter().flatten().sum();
        Self { other: total.saturating_sub(known), ..self }
    }

    /// Returns the phases with their names, in order; `None` is an unknown phase.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Option<Duration>); 6] {
        [
            ("queue", Some(self.queue)),
            ("prepare", self.prepare),
            ("start", self.start),
            ("run", self.run),
            ("drain", self.drain),
            ("other", Some(self.other)),
        ]
    }

    /// Returns the longest known phase.
    #[must_use]
    pub fn slowest(&self) -> Option<(&'static str, Duration)> {
        let known = self.named().into_iter().filter_map(|(name, time)| Some((name, time?)));
        known.max_by_key(|(_, time)| *time)
    }
}

impl MissingEvents {
    const ALL: [Self; 6] =
        [Self::NotSent, Self::Everything, Self::Interrupted, Self::NotWatched, Self::Started, Self::Exited];

    /// Returns the variant with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.name() == name)
    }

    /// Returns the name of the variant.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::Everything => "everything",
            Self::Interrupted => "interrupted",
            Self::NotWatched => "not-watched",
            Self::Started => "started",
            Self::Exited => "exited",
        }
    }
}

impl Phases {
    /// Returns the known phases.
    #[must_use]
    pub fn parts(&self) -> &PhaseDurations {
        match self {
            Self::Complete(parts)
            | Self::Ambiguous { parts, .. }
            | Self::Missing { parts, .. }
            | Self::Unsupported(parts) => parts,
        }
    }

    /// Returns a word for the completeness of the phases.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Ambiguous { .. } => "ambiguous",
            Self::Missing { .. } => "missing",
            Self::Unsupported(_) => "unsupported",
        }
    }
}
