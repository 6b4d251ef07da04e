//! What goes on in one container: calls, and what is executed.

use std::cell::LazyCell;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{Concluding, InFlight, LateCall};
use super::{Events, PATIENCE, STRANGERS};
use crate::containerd::TaskEvent;
use crate::exec::life::{Life, Moment, SKEW};
use crate::exec::matching::{Claim, Match, Matching};
use crate::exec::phases::{Missing, Phases, Timeline};

/// Executions that an ambiguous call names.
const CANDIDATES: usize = 8;

/// How long the exit of a command is waited for that no call is known to have asked for, or that has outlived its call.
pub(super) const LATE: Duration = Duration::from_secs(600);

/// What goes on in one container.
#[derive(Debug, Default)]
pub(in crate::exec) struct Scene {
    pub(in crate::exec) calls: Vec<InFlight>,
    /// Those that no call is known to have had.
    pub(super) lives: Vec<Life>,
    /// Calls that were recorded before their commands had ended.
    pub(super) late: Vec<LateCall>,
    /// When the container exited, if it has: what was executed in it goes with it.
    pub(super) closed: Option<Instant>,
}

impl Scene {
    pub(super) fn unanswered(&self) -> usize {
        self.calls.iter().filter(|call| call.end.is_none()).count()
    }

    pub(super) fn call(&self, id: u64) -> Option<&InFlight> {
        self.calls.iter().find(|call| call.id == id)
    }

    pub(super) fn call_mut(&mut self, id: u64) -> Option<&mut InFlight> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.lives.is_empty() && self.late.is_empty()
    }

    pub(super) fn take(&mut self, exec: &str, event: &TaskEvent, moment: Moment) {
        let known = self.lives.iter_mut().find(|life| *life.exec == *exec);
        if let Some(life) = known {
            life.take(event, moment);
        } else {
            let mut life = Life::new(exec);
            life.take(event, moment);
            self.lives.push(life);
        }
    }

    /// A call that can be recorded, with where its time went and the life of its command, if that is known.
    pub(super) fn next_conclusion(
        &mut self,
        events: Events,
        now: Instant,
    ) -> Option<(InFlight, Phases, Option<Life>)> {
        let is_ready = |end: &Concluding| !end.awaits_evidence || now >= end.until;
        if !self.calls.iter().any(|call| call.end.as_ref().is_some_and(is_ready)) {
            return None;
        }
        let (place, phases, life) = {
            let claims: Vec<Claim<'_>> = self.calls.iter().map(InFlight::claim).collect();
            let early = LazyCell::new(|| Matching::new(&claims, &self.lives, false));
            // What has not been heard of by the time at which a call is given up will not be.
            let late = LazyCell::new(|| Matching::new(&claims, &self.lives, true));
            let mut ready =
                self.calls.iter().enumerate().filter(|(_, call)| call.end.as_ref().is_some_and(is_ready));
            ready.find_map(|(place, call)| {
                let end = call.end.as_ref()?;
                let is_final = now >= end.until || call.is_blind;
                let (phases, life) = match events {
                    Events::Unasked => {
                        let parts = call.timeline(end).parts();
                        (Phases::Missing { parts, what: Missing::NotWatched }, None)
                    }
                    Events::Untold => (Phases::Unsupported(call.timeline(end).parts()), None),
                    Events::Heard | Events::Interrupted if is_final => {
                        self.last_conclusion(place, &late, || early.find(place))?
                    }
                    Events::Heard | Events::Interrupted => self.early_conclusion(place, &early)?,
                };
                Some((place, phases, life))
            })?
        };
        let life = life.map(|life| self.lives.remove(life));
        Some((self.calls.remove(place), phases, life))
    }

    /// Where the time of a call went, if nothing that is yet to come can tell more.
    fn early_conclusion(&self, place: usize, matching: &Matching<'_>) -> Option<(Phases, Option<usize>)> {
        let call = &self.calls[place];
        let end = call.end.as_ref()?;
        // While fewer executions have been heard of than there are calls, one that fits may be another's.
        let first = self.calls.iter().map(|call| call.since).min()?;
        let heard_of = self.lives.iter().filter(|life| {
            life.may_be_of_the_cri() && life.first().is_some_and(|moment| moment.at + SKEW >= first)
        });
        if heard_of.count() < self.calls.len() {
            return None;
        }
        match matching.find(place) {
            Match::Life(life) => {
                let phases = call.timeline(end).phases(&self.lives[life], end.is_refused());
                matches!(phases, Phases::Complete(_)).then_some((phases, Some(life)))
            }
            Match::OneOf(lives) if matching.is_settled(place) => {
                Some((self.ambiguous(call.timeline(end), &lives), None))
            }
            Match::OneOf(_) | Match::None => None,
        }
    }

    /// Where the time of a call went, as well as it is known. `late`: what may have been if every exit has been heard of; `early`: which it was, if one has not.
    fn last_conclusion(
        &self,
        place: usize,
        late: &Matching<'_>,
        early: impl FnOnce() -> Match,
    ) -> Option<(Phases, Option<usize>)> {
        let call = &self.calls[place];
        let end = call.end.as_ref()?;
        let timeline = call.timeline(end);
        let found = match late.find(place) {
            Match::None => early(),
            found => found,
        };
        Some(match found {
            Match::Life(life) => (timeline.phases(&self.lives[life], end.is_refused()), Some(life)),
            Match::OneOf(lives) => (self.ambiguous(timeline, &lives), None),
            Match::None => {
                let what = if call.is_blind { Missing::Interrupted } else { Missing::Everything };
                (Phases::Missing { parts: timeline.parts(), what }, None)
            }
        })
    }

    fn ambiguous(&self, timeline: Timeline, lives: &[usize]) -> Phases {
        let candidates = lives.iter().take(CANDIDATES).map(|life| self.lives[*life].exec.clone()).collect();
        Phases::Ambiguous { parts: timeline.parts(), candidates, count: lives.len() }
    }

    /// The processes that a call may have started.
    pub(super) fn pids_of(&self, phases: &Phases, life: Option<&Life>) -> Vec<u32> {
        match phases {
            Phases::Ambiguous { candidates, .. } => {
                let is_one = |life: &&Life| candidates.contains(&life.exec);
                self.lives.iter().filter(is_one).filter_map(|life| life.pid).collect()
            }
            _ => life.and_then(|life| life.pid).into_iter().collect(),
        }
    }

    /// The calls that have not been answered and whose commands are known to have exited: their process, if it is known which, and since when.
    pub(in crate::exec) fn exited_unanswered(&self) -> Vec<(&InFlight, Option<u32>, Instant)> {
        let claims: Vec<Claim<'_>> = self.calls.iter().map(InFlight::claim).collect();
        let matching = Matching::new(&claims, &self.lives, true);
        let exited = |life: &usize| self.lives[*life].exited.map(|exited| exited.heard);
        let unanswered = self.calls.iter().enumerate().filter(|(_, call)| call.end.is_none());
        let found = unanswered.filter_map(|(place, call)| match matching.find(place) {
            Match::Life(life) => Some((call, self.lives[life].pid, exited(&life)?)),
            // Whichever it was.
            Match::OneOf(lives) => {
                let all: Option<Vec<Instant>> = lives.iter().map(exited).collect();
                Some((call, None, all?.into_iter().max()?))
            }
            Match::None => None,
        });
        found.collect()
    }

    /// Forgets commands that have ended and that no call can have had which goes on, or which may yet be seen to have been made: events may be
    /// faster than what the relay tells. Forgets the oldest of too many.
    pub(super) fn forget_lives(&mut self, now: Instant) {
        let first = self.calls.iter().map(|call| call.since).min();
        self.lives.retain(|life| {
            let Some(last) = life.exited.or(life.first()) else { return false };
            let patience = if life.exited.is_some() { PATIENCE } else { LATE };
            first.is_some_and(|first| last.heard >= first) || now - last.heard < patience
        });
        while self.lives.len() > STRANGERS + self.calls.len() {
            // Rather what is over than what may be a call's that goes on.
            let place = self.lives.iter().position(|life| life.exited.is_some()).unwrap_or(0);
            self.lives.remove(place);
        }
    }

    /// Forgets what was executed in a container that exited a while ago.
    pub(super) fn close(&mut self, now: Instant) {
        if self.closed.is_some_and(|closed| now - closed > 2 * PATIENCE) {
            self.lives.clear();
            self.late.clear();
        }
    }
}
