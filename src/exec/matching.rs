//! Which execution was which call's, where several went on in one container at a time.

use std::time::Duration;

use super::life::{Beginning, Life};

/// Calls and lives of one container at one time that are told apart. Among more nothing would be certain anyway.
const MOST: usize = 32;

/// How far apart events and answers may be that belong together.
const SKEW: Duration = Duration::from_millis(5);

/// What is known of a call that one of the lives may be of.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    pub(super) beginning: Beginning,
    pub(super) sent: Duration,
    pub(super) command: &'a [String],
    /// How it ended, if it did.
    pub(super) end: Option<End>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// After the call's beginning.
    pub(super) after: Duration,
    /// The exit code that was answered.
    pub(super) exit_code: Option<i32>,
    /// Whether the answer says that the command had exited: either with its exit code, or after it was killed.
    pub(super) is_exited: bool,
    /// Whether nothing may have been executed for it at all: the runtime refused it.
    pub(super) may_be_without: bool,
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

/// Finds which life a call had, given all calls and lives of its container at its time. `is_final`: nothing more will be heard of.
pub(super) fn find(call: usize, calls: &[Claim<'_>], lives: &[&Life], is_final: bool) -> Match {
    let possible = |call: &Claim<'_>, life: &Life| call.may_have(life, is_final);
    let own: Vec<usize> = (0..lives.len()).filter(|life| possible(&calls[call], lives[*life])).collect();
    if calls.len() > MOST || lives.len() > MOST {
        return Match::of(own);
    }
    let is_told_apart = commands_tell(calls, lives);
    let edges = |call: &Claim<'_>| -> Vec<usize> {
        let by_command = |life: &Life| !is_told_apart || life.command.as_deref() == Some(call.command);
        (0..lives.len()).filter(|life| possible(call, lives[*life]) && by_command(lives[*life])).collect()
    };
    let all: Vec<Vec<usize>> = calls.iter().map(edges).collect();
    let must: Vec<bool> = calls.iter().map(|call| !call.end.is_some_and(|end| end.may_be_without)).collect();
    // A life is possible if all others still find one when it is taken.
    let fits = |life: &&usize| everyone_finds(&all, &must, Some((call, **life)));
    let left: Vec<usize> = all[call].iter().filter(fits).copied().collect();
    // Where nothing fits, something has not been heard of, and what was excluded by the others is not certain.
    Match::of(if left.is_empty() { own } else { left })
}

/// Whether the words that the processes had are those of the calls, each of them: only then can they tell anything. A shell that
/// becomes its command has the words of another call perhaps.
fn commands_tell(calls: &[Claim<'_>], lives: &[&Life]) -> bool {
    lives.len() > 1
        && lives.iter().all(|life| {
            life.command.as_deref().is_some_and(|words| calls.iter().any(|call| call.command == words))
        })
        && calls.iter().all(|call| lives.iter().any(|life| life.command.as_deref() == Some(call.command)))
}

/// Whether every call that must have had a life finds one of its own, when one call has a certain one.
fn everyone_finds(edges: &[Vec<usize>], must: &[bool], fixed: Option<(usize, usize)>) -> bool {
    let lives = edges.iter().flatten().max().map_or(0, |last| last + 1);
    let mut taken = vec![None; lives];
    if let Some((call, life)) = fixed {
        taken[life] = Some(call);
    }
    let fixed_call = fixed.map(|(call, _)| call);
    let fixed_life = fixed.map(|(_, life)| life);
    (0..edges.len()).filter(|call| must[*call] && Some(*call) != fixed_call).all(|call| {
        let mut tried = vec![false; lives];
        if let Some(life) = fixed_life {
            tried[life] = true;
        }
        find_one(call, edges, &mut taken, &mut tried)
    })
}

/// Finds a life for a call, if need be by letting another call move to another life.
fn find_one(call: usize, edges: &[Vec<usize>], taken: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for &life in &edges[call] {
        if tried[life] {
            continue;
        }
        tried[life] = true;
        let is_free = match taken[life] {
            None => true,
            Some(other) => find_one(other, edges, taken, tried),
        };
        if is_free {
            taken[life] = Some(call);
            return true;
        }
    }
    false
}

impl Claim<'_> {
    /// Whether a life can have been that of this call.
    fn may_have(&self, life: &Life, is_final: bool) -> bool {
        let Some(first) = life.first() else { return false };
        let first = first.after(self.beginning);
        if !life.may_be_of_the_cri() || first + SKEW < self.sent || self.is_older(life) {
            return false;
        }
        let Some(end) = self.end else { return true };
        if first > end.after + SKEW {
            return false;
        }
        match (life.exited, life.status) {
            (Some(exited), Some(status)) => {
                let is_in_time = !end.is_exited || exited.after(self.beginning) <= end.after + SKEW;
                is_in_time && end.exit_code.is_none_or(|code| code.cast_unsigned() == status)
            }
            // Its exit may be on its way.
            _ => !end.is_exited || !is_final,
        }
    }

    /// Whether a life was heard of before the call was made.
    fn is_older(&self, life: &Life) -> bool {
        life.first().is_some_and(|first| first.heard + SKEW < self.beginning.since)
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
}

#[cfg(test)]
mod tests;
