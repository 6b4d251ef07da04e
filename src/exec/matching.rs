//! Which execution was which call's, where several went on in one container at a time.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::life::{Life, SKEW};

/// Calls that are told apart by each other. Among more nothing would be certain anyway, and it would take long to find that out.
const MOST: usize = 12;

/// What is known of a call that one of the lives may be of.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    pub(super) sent: Instant,
    pub(super) command: &'a [String],
    /// How it ended, if it did.
    pub(super) end: Option<End>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at: Instant,
    /// The exit code that was answered.
    pub(super) exit_code: Option<i32>,
    /// Whether the answer says that the command had exited: either with its exit code, or after it was killed.
    pub(super) is_exited: bool,
    /// Whether the runtime answered at all; else it was given up, or its connection broke.
    pub(super) is_answered: bool,
}

/// Whose a call was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// This life, and no other.
    Life(usize),
    /// One of these.
    OneOf(Vec<usize>),
    /// None of which anything is known.
    None,
}

/// All calls and lives of a container at one time, and which may belong together.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    calls: &'a [Claim<'a>],
    lives: &'a [Life],
    /// For each call, the lives that it may have had.
    edges: Vec<Vec<usize>>,
}

impl<'a> Matching<'a> {
    /// `is_final`: no exit that has not been heard of will be.
    pub(super) fn new(calls: &'a [Claim<'a>], lives: &'a [Life], is_final: bool) -> Self {
        let of = |call: &Claim<'_>| {
            (0..lives.len()).filter(|life| call.may_have(&lives[*life], is_final)).collect()
        };
        let mut matching = Self { calls, lives, edges: calls.iter().map(of).collect() };
        matching.tell_by_commands();
        matching
    }

    /// Which life a call had: one that it may have had while every other call that must have had one finds one of its own.
    pub(super) fn find(&self, call: usize) -> Match {
        let own = &self.edges[call];
        let near = self.near(call);
        if near.len() > MOST {
            return Match::of_uncertain(own.clone());
        }
        let fits = |life: &&usize| self.others_find_theirs(&near, call, **life);
        let left: Vec<usize> = own.iter().filter(fits).copied().collect();
        if left.is_empty() {
            // Something has not been heard of, and what the others exclude is not certain.
            let is_only_its =
                |life: &usize| near.iter().all(|other| *other == call || !self.edges[*other].contains(life));
            return match own[..] {
                [only] if is_only_its(&only) => Match::Life(only),
                _ => Match::of_uncertain(own.clone()),
            };
        }
        if self.may_be_a_strangers(call, &left) { Match::OneOf(left) } else { Match::of(left) }
    }

    /// Whether the one life that a call may have had may as well be a stranger's. It is not, where the call's exit code is its; where the call failed
    /// without starting anything, and it never started; or where the call was cut off with nothing else going on.
    fn may_be_a_strangers(&self, call: usize, left: &[usize]) -> bool {
        let (Some(end), [only]) = (self.calls[call].end, left) else { return false };
        let has_started = self.lives[*only].started.is_some();
        let is_alone = self.calls.len() == 1 && self.lives.len() == 1;
        !end.is_exited && if end.is_answered { has_started } else { !is_alone }
    }

    /// Whether nothing that is yet to come can tell more of a call: all calls that compete for its lives have ended, and all these lives.
    pub(super) fn is_settled(&self, call: usize) -> bool {
        let own = &self.edges[call];
        let competes = |other: &usize| self.edges[*other].iter().any(|life| own.contains(life));
        own.iter().all(|life| self.lives[*life].exited.is_some())
            && (0..self.calls.len()).filter(competes).all(|other| self.calls[other].end.is_some())
    }

    /// The calls that compete with one for its lives, with those for theirs, and so on; itself included.
    fn near(&self, call: usize) -> BTreeSet<usize> {
        let (mut near, mut new) = (BTreeSet::from([call]), vec![call]);
        while let Some(one) = new.pop() {
            for other in 0..self.calls.len() {
                let competes = || self.edges[other].iter().any(|life| self.edges[one].contains(life));
                if !near.contains(&other) && competes() {
                    near.insert(other);
                    new.push(other);
                }
            }
        }
        near
    }

    /// Whether every other call that must have had a life finds one of its own, when one call has a certain one.
    fn others_find_theirs(&self, near: &BTreeSet<usize>, call: usize, life: usize) -> bool {
        let must = |other: &&usize| **other != call && self.calls[**other].must_have_one();
        let mut taken: Vec<Option<usize>> = vec![None; self.lives.len()];
        near.iter().filter(must).all(|other| {
            let mut tried = vec![false; self.lives.len()];
            tried[life] = true;
            self.find_one(*other, &mut taken, &mut tried)
        })
    }

    /// Finds a life for a call, if need be by letting another call move to another life.
    fn find_one(&self, call: usize, taken: &mut [Option<usize>], tried: &mut [bool]) -> bool {
        for &life in &self.edges[call] {
            if tried[life] {
                continue;
            }
            tried[life] = true;
            let is_free = match taken[life] {
                None => true,
                Some(other) => self.find_one(other, taken, tried),
            };
            if is_free {
                taken[life] = Some(call);
                return true;
            }
        }
        false
    }

    /// Leaves of the lives those whose words are the call's. The words tell something only where those of each life are those of a call, and each call has such
    /// a life: a shell that becomes its command has the words of another call perhaps.
    fn tell_by_commands(&mut self) {
        let is_told = self.lives.len() > 1
            && self.lives.iter().all(|life| {
                life.command
                    .as_deref()
                    .is_some_and(|words| self.calls.iter().any(|call| call.command == words))
            })
            && self
                .calls
                .iter()
                .all(|call| self.lives.iter().any(|life| life.command.as_deref() == Some(call.command)));
        if is_told {
            for (call, edges) in self.calls.iter().zip(&mut self.edges) {
                edges.retain(|life| self.lives[*life].command.as_deref() == Some(call.command));
            }
        }
    }
}

impl Claim<'_> {
    /// Whether a life can have been that of this call.
    fn may_have(&self, life: &Life, is_final: bool) -> bool {
        let Some(first) = life.first() else { return false };
        if !life.may_be_of_the_cri() || first.at + SKEW < self.sent {
            return false;
        }
        let Some(end) = self.end else { return true };
        if first.at > end.at + SKEW {
            return false;
        }
        match (life.exited, life.status) {
            (Some(exited), Some(status)) => {
                let is_in_time = !end.is_exited || exited.at <= end.at + SKEW;
                is_in_time && end.exit_code.is_none_or(|code| code.cast_unsigned() == status)
            }
            // Its exit may be on its way.
            _ => !end.is_exited || !is_final,
        }
    }

    /// Whether something was executed for it: what was refused or given up may have ended before that.
    fn must_have_one(&self) -> bool {
        self.end.is_some_and(|end| end.is_exited)
    }
}

impl Match {
    fn of(mut lives: Vec<usize>) -> Self {
        match lives.len() {
            0 => Self::None,
            1 => Self::Life(lives.remove(0)),
            _ => Self::OneOf(lives),
        }
    }

    /// One of these, if any: even a single one may be another's.
    fn of_uncertain(lives: Vec<usize>) -> Self {
        if lives.is_empty() { Self::None } else { Self::OneOf(lives) }
    }
}

#[cfg(test)]
mod tests;
