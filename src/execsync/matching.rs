//! Which execution was which call's, where several went on in one container at a time.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::exec_instance::{ExecInstance, SKEW};

/// Calls that are told apart by each other. Among more nothing would be certain anyway, and it would take long to find that out.
const MAX_CANDIDATES: usize = 12;

/// A call, as far as it tells which execution was its.
#[derive(Clone, Debug)]
pub(super) struct CallCandidate<'a> {
    pub(super) sent: Instant,
    pub(super) command: &'a [String],
    /// Events may have been missed while it lasted.
    pub(super) events_lost: bool,
    /// How it ended, if it did.
    pub(super) end: Option<CandidateEnd>,
}

/// When and how a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateEnd {
    pub(super) at: Instant,
    pub(super) outcome: ExecOutcome,
}

/// What the end of a call tells of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecOutcome {
    /// It exited; with which code, unless the answer could not be read.
    Exited(Option<u32>),
    /// It was killed at the timeout.
    TimedOut,
    /// Another error was answered, perhaps before anything was executed.
    Refused,
    /// Nothing: the call was given up, or its connection broke.
    Unanswered,
}

/// Whether what has not been heard of may yet be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitEvents {
    /// An exit may be on its way.
    Pending,
    /// No exit that has not been heard of will be.
    Complete,
}

/// Which execution was a call's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// This execution, and no other.
    One(usize),
    /// One of these.
    OneOf(Vec<usize>),
    /// None of which anything is known.
    None,
}

/// All calls and executions of a container at one time, and which may belong together.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    calls: &'a [CallCandidate<'a>],
    instances: &'a [ExecInstance],
    /// For each call, the executions that it may have had.
    edges: Vec<Vec<usize>>,
}

impl<'a> Matching<'a> {
    pub(super) fn new(
        calls: &'a [CallCandidate<'a>],
        instances: &'a [ExecInstance],
        exits: ExitEvents,
    ) -> Self {
        let of = |call: &CallCandidate<'_>| {
            (0..instances.len()).filter(|instance| call.may_have(&instances[*instance], exits)).collect()
        };
        let mut matching = Self { calls, instances, edges: calls.iter().map(of).collect() };
        matching.filter_by_command();
        matching
    }

    /// Which execution a call had: one that it may have had while every other call that must have had one finds one of its own.
    pub(super) fn find(&self, call: usize) -> Match {
        let own = &self.edges[call];
        let near = self.conflict_set(call);
        if near.len() > MAX_CANDIDATES {
            return Match::from_uncertain(own.clone());
        }
        let fits = |instance: &&usize| self.others_still_match(&near, call, **instance);
        let left: Vec<usize> = own.iter().filter(fits).copied().collect();
        if left.is_empty() {
            // Something has not been heard of, and what the others exclude is not certain.
            let is_only_its = |instance: &usize| {
                near.iter().all(|other| *other == call || !self.edges[*other].contains(instance))
            };
            return match own[..] {
                [only] if is_only_its(&only) => Match::One(only),
                _ => Match::from_uncertain(own.clone()),
            };
        }
        if self.may_be_foreign(call, &left) { Match::OneOf(left) } else { Match::from_instances(left) }
    }

    /// Whether the one execution that a call may have had may as well be a stranger's. It is not, where the call told that its command had
    /// exited; where the call failed without starting anything, and it never started; or where the call was cut off with nothing else going
    /// on.
    fn may_be_foreign(&self, call: usize, left: &[usize]) -> bool {
        let (Some(end), [only]) = (self.calls[call].end, left) else { return false };
        let has_started = self.instances[*only].started.is_some();
        let is_alone = self.calls.len() == 1 && self.instances.len() == 1;
        match end.outcome {
            ExecOutcome::Exited(_) | ExecOutcome::TimedOut => false,
            ExecOutcome::Refused => has_started,
            ExecOutcome::Unanswered => !is_alone,
        }
    }

    /// Whether no other call can have had an execution that a call may have had.
    pub(super) fn is_uncontested(&self, call: usize) -> bool {
        self.conflict_set(call).len() == 1
    }

    /// Whether nothing that is yet to come can tell more of a call: all calls that compete for its executions have ended, and all these
    /// executions.
    pub(super) fn is_settled(&self, call: usize) -> bool {
        let own = &self.edges[call];
        let competes = |other: &usize| self.edges[*other].iter().any(|instance| own.contains(instance));
        own.iter().all(|instance| self.instances[*instance].exited.is_some())
            && (0..self.calls.len()).filter(competes).all(|other| self.calls[other].end.is_some())
    }

    /// The calls that compete with one for its executions, with those for theirs, and so on; itself included.
    fn conflict_set(&self, call: usize) -> BTreeSet<usize> {
        let (mut near, mut new) = (BTreeSet::from([call]), vec![call]);
        while let Some(one) = new.pop() {
            for other in 0..self.calls.len() {
                let competes = || self.edges[other].iter().any(|instance| self.edges[one].contains(instance));
                if !near.contains(&other) && competes() {
                    near.insert(other);
                    new.push(other);
                }
            }
        }
        near
    }

    /// Whether every other call that must have had an execution finds one of its own, when one call has a certain one.
    fn others_still_match(&self, near: &BTreeSet<usize>, call: usize, instance: usize) -> bool {
        let must = |other: &&usize| **other != call && self.calls[**other].requires_exec();
        let mut taken: Vec<Option<usize>> = vec![None; self.instances.len()];
        near.iter().filter(must).all(|other| {
            let mut tried = vec![false; self.instances.len()];
            tried[instance] = true;
            self.augment(*other, &mut taken, &mut tried)
        })
    }

    /// Finds an execution for a call, if need be by letting another call move to another execution.
    fn augment(&self, call: usize, taken: &mut [Option<usize>], tried: &mut [bool]) -> bool {
        for &instance in &self.edges[call] {
            if tried[instance] {
                continue;
            }
            tried[instance] = true;
            let is_free = match taken[instance] {
                None => true,
                Some(other) => self.augment(other, taken, tried),
            };
            if is_free {
                taken[instance] = Some(call);
                return true;
            }
        }
        false
    }

    /// Leaves of the executions those whose words are the call's. The words tell something only where those of each execution are those of
    /// a call, and each call has such an execution: a shell that becomes its command has the words of another call perhaps.
    fn filter_by_command(&mut self) {
        let is_conclusive = self.instances.len() > 1
            && self.instances.iter().all(|instance| {
                instance
                    .command
                    .as_deref()
                    .is_some_and(|args| self.calls.iter().any(|call| call.command == args))
            })
            && self.calls.iter().all(|call| {
                self.instances.iter().any(|instance| instance.command.as_deref() == Some(call.command))
            });
        if is_conclusive {
            for (call, edges) in self.calls.iter().zip(&mut self.edges) {
                edges.retain(|instance| self.instances[*instance].command.as_deref() == Some(call.command));
            }
        }
    }
}

impl CallCandidate<'_> {
    /// Whether an execution can have been that of this call.
    fn may_have(&self, instance: &ExecInstance, exits: ExitEvents) -> bool {
        let Some(first) = instance.first_event() else { return false };
        // One of which the beginning was missed is that of a call that missed it.
        let is_whole = instance.added.or(instance.started).is_some();
        if !instance.has_cri_exec_id() || first.at + SKEW < self.sent || !(is_whole || self.events_lost) {
            return false;
        }
        let Some(end) = self.end else { return true };
        if first.at > end.at + SKEW {
            return false;
        }
        match (instance.exited, instance.status) {
            (Some(exited), Some(status)) => end.fits(exited.at, status),
            _ => !end.outcome.has_exited() || exits == ExitEvents::Pending,
        }
    }

    /// Whether something was executed for it: what was refused or given up may have ended before that.
    fn requires_exec(&self) -> bool {
        self.end.is_some_and(|end| end.outcome.has_exited())
    }
}

impl CandidateEnd {
    /// Whether an exit at this time and with this status can be the one that it tells of.
    pub(super) fn fits(&self, exited: Instant, status: u32) -> bool {
        let is_in_time = !self.outcome.has_exited() || exited <= self.at + SKEW;
        is_in_time && self.outcome.exit_code().is_none_or(|code| code == status)
    }
}

impl ExecOutcome {
    /// Whether the command had exited when the call ended.
    pub(super) fn has_exited(self) -> bool {
        matches!(self, Self::Exited(_) | Self::TimedOut)
    }

    fn exit_code(self) -> Option<u32> {
        if let Self::Exited(code) = self { code } else { None }
    }
}

impl Match {
    fn from_instances(mut instances: Vec<usize>) -> Self {
        match instances.len() {
            0 => Self::None,
            1 => Self::One(instances.remove(0)),
            _ => Self::OneOf(instances),
        }
    }

    /// One of these, if any: even a single one may be another's.
    fn from_uncertain(instances: Vec<usize>) -> Self {
        if instances.is_empty() { Self::None } else { Self::OneOf(instances) }
    }
}

#[cfg(test)]
mod tests;
