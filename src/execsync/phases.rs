//! Where the time of an ExecSync went.

use std::time::Duration;

use tokio::time::Instant;

use super::exec_instance::{EventTime, ExecInstance};
use super::matching::ExecOutcome;

/// Where the time went, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phases {
    /// All of it is known.
    Complete(PhaseDurations),
    /// One of these executions in the same container was it; which one, nothing tells.
    Ambiguous {
        /// Queue and other.
        parts: PhaseDurations,
        /// What containerd calls the first eight of them.
        candidates: Vec<Box<str>>,
        /// How many they are.
        count: usize,
    },
    /// Something that events would tell has not been heard of.
    Missing {
        /// What is known.
        parts: PhaseDurations,
        /// What is not.
        what: MissingEvents,
    },
    /// The runtime does not tell of what it executes.
    Unsupported(PhaseDurations),
}

/// What was not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingEvents {
    /// No event about this call came.
    Everything,
    /// The runtime's events were interrupted while the call lasted.
    Interrupted,
    /// Nobody asked the runtime for events.
    NotWatched,
    /// That the command was started.
    Started,
    /// That the command exited.
    Exited,
}

/// The phases, one after the other; together they are the call. `None` is not known, and is then in `other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseDurations {
    /// The request was complete, and held here.
    pub queue: Duration,
    /// The runtime prepared the execution: its description, its pipes.
    pub prepare: Option<Duration>,
    /// The OCI runtime started the command.
    pub start: Option<Duration>,
    /// The command ran.
    pub run: Option<Duration>,
    /// The command had exited, and its output was waited for.
    pub drain: Option<Duration>,
    /// What cannot be attributed.
    pub other: Duration,
}

/// When what happened in a call, after its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    /// The beginning.
    pub(super) started_at: Instant,
    /// The request was whole.
    pub(super) received: Duration,
    /// The request had been sent.
    pub(super) sent: Duration,
    /// The call had ended.
    pub(super) end: Duration,
}

impl Timeline {
    /// What is known without any event.
    pub(super) fn parts(&self) -> PhaseDurations {
        PhaseDurations { queue: self.sent.saturating_sub(self.received), ..PhaseDurations::default() }
            .filled(self.end)
    }

    /// What an execution tells of its call, which had this outcome.
    pub(super) fn phases(&self, instance: &ExecInstance, outcome: ExecOutcome) -> Phases {
        // An answer may overtake the rest of its request.
        let end = self.end.max(self.sent);
        let after = |moment: Option<EventTime>| moment.map(|moment| moment.after(self.started_at));
        // Each moment lies between the one before it and the end: exec-started is taken a little late, and exited_at with another clock.
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
            // It could not be started, and that is how the time was spent.
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
    /// The same, with what is not known of a call of this length in `other`.
    fn filled(self, total: Duration) -> Self {
        let known = [Some(self.queue), self.prepare, self.start, self.run, self.drain];
        let known: Duration = known.into_iter().flatten().sum();
        Self { other: total.saturating_sub(known), ..self }
    }

    /// Each phase by its name, in their order, as far as it is known.
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
}

impl MissingEvents {
    const ALL: [Self; 5] =
        [Self::Everything, Self::Interrupted, Self::NotWatched, Self::Started, Self::Exited];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Interrupted => "interrupted",
            Self::NotWatched => "not-watched",
            Self::Started => "started",
            Self::Exited => "exited",
        }
    }
}

impl Phases {
    /// What is known of the time.
    #[must_use]
    pub fn parts(&self) -> &PhaseDurations {
        match self {
            Self::Complete(parts)
            | Self::Ambiguous { parts, .. }
            | Self::Missing { parts, .. }
            | Self::Unsupported(parts) => parts,
        }
    }

    /// How much is known, in a word.
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
