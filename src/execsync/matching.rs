//! Matches calls and exec instances if several run in one container at the same time.

use std::collections::BTreeSet;
use std::mem;

use tokio::time::Instant;

use super::exec_instance::{ExecInstance, SKEW};

/// Maximum number of competing calls that are distinguished. The result for more calls would be
/// ambiguous anyway, and would take long to compute.
const MAX_CANDIDATES: usize = 12;

/// Properties of a call that restrict its exec instance.
#[derive(Clone, Debug)]
pub(super) struct CallCandidate<'a> {
    pub(super) sent: Instant,
    pub(super) command: &'a [String],
    /// Whether the call was sent to the runtime. One that was not has no exec instance.
    pub(super) is_sent: bool,
    /// Whether events may have been missed during the call.
    pub(super) events_lost: bool,
    /// The end of the call, if it has ended.
    pub(super) end: Option<CandidateEnd>,
}

/// Time and outcome of the end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateEnd {
    pub(super) at: Instant,
    pub(super) outcome: ExecOutcome,
}

/// Information about the command in the end of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecOutcome {
    /// The command exited. The exit code is `None` if the response could not be decoded.
    Exited(Option<u32>),
    /// The command was killed at its timeout.
    TimedOut,
    /// The runtime returned another error, perhaps before it executed anything.
    Refused,
    /// Nothing is known: the client gave up the call, or a connection was lost.
    Unanswered,
}

/// Whether exit events may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitEvents {
    /// Exit events may still arrive.
    Pending,
    /// All exit events have arrived.
    Complete,
}

/// The exec instances that may belong to a call, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Exactly this exec instance belongs to the call.
    One(usize),
    /// These exec instances are candidates. Even a single candidate may belong to another caller.
    OneOf(Vec<usize>),
    /// No known exec instance belongs to the call.
    None,
}

/// The calls and exec instances of a container at one time, and the candidates of each call.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    calls: &'a [CallCandidate<'a>],
    instances: &'a [ExecInstance],
    /// Indices of each call's candidates.
    edges: Vec<Vec<usize>>,
    /// Indices of the calls to which each exec instance may belong.
    claims: Vec<Vec<usize>>,
}

impl<'a> Matching<'a> {
    pub(super) fn new(
        calls: &'a [CallCandidate<'a>],
        instances: &'a [ExecInstance],
        exits: ExitEvents,
    ) -> Self {
        let mut edges: Vec<_> = calls.iter().map(|call| call.candidates(instances, exits)).collect();
        filter_by_command(calls, instances, &mut edges);
        let mut claims = vec![Vec::new(); instances.len()];
        for (call, candidates) in edges.iter().enumerate() {
            for instance in candidates {
                claims[*instance].push(call);
            }
        }
        Self { calls, instances, edges, claims }
    }

    /// Returns the match of a call. An exec instance matches if each other call that must have an
    /// exec instance can be given another one.
    pub(super) fn find(&self, call: usize) -> Match {
        let own = &self.edges[call];
        let near = self.conflict_set(call);
        if near.len() > MAX_CANDIDATES {
            return Match::from_uncertain(own.clone());
        }
        let fits = |instance: &&usize| self.others_still_match(&near, call, **instance);
        let left: Vec<usize> = own.iter().filter(fits).copied().collect();
        if left.is_empty() {
            // If nothing matches, events are missing, and exclusions by other calls are uncertain.
            return match own[..] {
                [only] if self.claims[only] == [call] => Match::One(only),
                _ => Match::from_uncertain(own.clone()),
            };
        }
        if self.may_be_foreign(call, &left) { Match::OneOf(left) } else { Match::from_instances(left) }
    }

    /// Returns whether the only candidate of a call may be foreign, which means executed for a
    /// caller outside the relay. The candidate is not foreign if the end of the call shows that its
    /// command exited; if the call was refused and the candidate never started; or if the call
    /// ended without a response and nothing else ran in the container.
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

    /// Returns whether no other call shares a candidate with this call.
    pub(super) fn is_uncontested(&self, call: usize) -> bool {
        self.conflict_set(call).len() == 1
    }

    /// Returns whether no later event can change the match of a call: all its candidates have
    /// exited, and all calls that share a candidate with it have ended.
    pub(super) fn is_settled(&self, call: usize) -> bool {
        self.edges[call].iter().all(|instance| {
            self.instances[*instance].exited.is_some()
                && self.claims[*instance].iter().all(|other| self.calls[*other].end.is_some())
        })
    }

    /// Returns the call, all calls that share a candidate with it, all calls that share a candidate
    /// with those, and so on. Stops once there are more than [`MAX_CANDIDATES`].
    fn conflict_set(&self, call: usize) -> BTreeSet<usize> {
        let (mut near, mut new) = (BTreeSet::from([call]), vec![call]);
        let mut seen = vec![false; self.instances.len()];
        while let Some(one) = new.pop()
            && near.len() <= MAX_CANDIDATES
        {
            for &instance in &self.edges[one] {
                if !mem::replace(&mut seen[instance], true) {
                    new.extend(self.claims[instance].iter().copied().filter(|other| near.insert(*other)));
                }
            }
        }
        near
    }

    /// Returns whether each other call in `near` that must have an exec instance can be given one
    /// if `call` has `instance`.
    fn others_still_match(&self, near: &BTreeSet<usize>, call: usize, instance: usize) -> bool {
        let must = |other: &&usize| **other != call && self.calls[**other].requires_exec();
        let mut taken: Vec<Option<usize>> = vec![None; self.instances.len()];
        near.iter().filter(must).all(|other| {
            let mut tried = vec![false; self.instances.len()];
            tried[instance] = true;
            self.augment(*other, &mut taken, &mut tried)
        })
    }

    /// Gives a free exec instance to a call. Moves other calls to other exec instances if necessary
    /// (an augmenting path in a bipartite matching).
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
}

/// Removes candidates with another command line than their call. Command lines are conclusive only
/// if each exec instance has the command line of a call, and each call has such an exec instance: a
/// shell that was replaced by its command may have the command line of another call.
fn filter_by_command(calls: &[CallCandidate<'_>], instances: &[ExecInstance], edges: &mut [Vec<usize>]) {
    let is_conclusive = instances.len() > 1
        && instances.iter().all(|instance| {
            instance.command.as_deref().is_some_and(|args| calls.iter().any(|call| call.command == args))
        })
        && calls
            .iter()
            .all(|call| instances.iter().any(|instance| instance.command.as_deref() == Some(call.command)));
    if is_conclusive {
        for (call, edges) in calls.iter().zip(edges) {
            edges.retain(|instance| instances[*instance].command.as_deref() == Some(call.command));
        }
    }
}

impl CallCandidate<'_> {
    /// Returns the indices of the exec instances that may belong to this call.
    pub(super) fn candidates(&self, instances: &[ExecInstance], exits: ExitEvents) -> Vec<usize> {
        (0..instances.len()).filter(|instance| self.may_have(&instances[*instance], exits)).collect()
    }

    /// Returns whether an exec instance may belong to this call.
    fn may_have(&self, instance: &ExecInstance, exits: ExitEvents) -> bool {
        let Some(first) = instance.first_event() else { return false };
        // An exec instance whose start was missed belongs to a call that missed events.
        let is_whole = instance.added.or(instance.started).is_some();
        if !self.is_sent
            || !instance.has_cri_exec_id
            || first.at + SKEW < self.sent
            || !(is_whole || self.events_lost)
        {
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

    /// Returns whether the call must have an exec instance. A call that was refused or given up may
    /// have ended before the runtime executed anything.
    fn requires_exec(&self) -> bool {
        self.is_sent && self.end.is_some_and(|end| end.outcome.has_exited())
    }
}

impl CandidateEnd {
    /// Returns whether an exit at this time and with this status is consistent with the end of the
    /// call.
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

    /// Returns a match with these candidates, if any. Even a single candidate may belong to another
    /// call.
    fn from_uncertain(instances: Vec<usize>) -> Self {
        if instances.is_empty() { Self::None } else { Self::OneOf(instances) }
    }
}

#[cfg(test)]
mod tests;
