//! An active rule: its lifetime, counters and hits.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fault::{Action, FaultRule};

/// Maximum number of containers that a rule counts separately. Calls of further containers are
/// counted together.
const MAX_COUNTERS: usize = 10_000;

/// Number of ids that are kept of the calls that a rule has hit: the last ones.
const MAX_CALLS: usize = 100;

/// A rule from its activation to its end.
#[derive(Debug)]
pub(super) struct ActiveRule {
    pub(super) rule: FaultRule,
    /// Text of the rule.
    pub(super) text: String,
    pub(super) source: RuleSource,
    pub(super) since: Instant,
    /// Time of the end by the monotonic and the wall clock; `None` if the rule has no end.
    pub(super) expires: Option<(Instant, SystemTime)>,
    /// Cancelled when the rule ends.
    pub(super) ended: CancellationToken,
    pub(super) seed: u64,
    counts: Mutex<HitCounts>,
}

/// Source of an active rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSource {
    /// The configuration file.
    Config,
    /// `--fault`.
    Flag,
    /// `fault add`.
    Command,
}

/// Counters of a rule.
#[derive(Debug, Default)]
struct HitCounts {
    /// Calls and occasions, by the hash of the container's names, which clients may choose freely.
    by_container: HashMap<u64, Counter>,
    hits: u64,
    /// Calls whose command was too long for the rule's pattern.
    long_commands: u64,
    /// Ids of the calls that were hit last.
    calls: VecDeque<u64>,
}

/// Counter of the calls of one container.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    calls: u64,
    occasions: u64,
}

impl RuleSource {
    /// Returns the name of the source.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Flag => "flag",
            Self::Command => "command",
        }
    }
}

impl ActiveRule {
    pub(super) fn new(rule: FaultRule, source: RuleSource, seed: u64) -> Self {
        let since = Instant::now();
        let expires = rule.lifetime.map(|lifetime| (since + lifetime, SystemTime::now() + lifetime));
        let text = rule.to_string();
        let seed = rule.when.seed.unwrap_or(seed);
        let (ended, counts) = (CancellationToken::new(), Mutex::default());
        Self { rule, text, source, since, expires, ended, seed, counts }
    }

    /// Returns whether the rule affects calls at this time.
    pub(super) fn is_active(&self, now: Instant) -> bool {
        !self.ended.is_cancelled() && self.expires.is_none_or(|(expires, _)| now < expires)
    }

    /// Counts a selected call, or a connection, of a container. Returns the actions that apply to
    /// it, each with a number from 0 to 1 for its jitter.
    pub(super) fn occur(&self, key: &str, call: Option<u64>, now: Instant) -> Vec<(&Action, f64)> {
        if !self.is_active(now) || !self.rule.when.is_open(now.duration_since(self.since)) {
            return Vec::new();
        }
        let mut counts = self.counts();
        let mut hash = hash_of(key);
        if counts.by_container.len() >= MAX_COUNTERS && !counts.by_container.contains_key(&hash) {
            hash = 0;
        }
        let counter = counts.by_container.entry(hash).or_default();
        let actions = counter.occur(&self.rule, self.seed, key);
        if !actions.is_empty() {
            counts.hits += 1;
            counts.calls.extend(call);
            if counts.calls.len() > MAX_CALLS {
                counts.calls.pop_front();
            }
        }
        actions
    }

    /// Returns the number of calls that were hit, and the ids of the last ones.
    pub(super) fn hits(&self) -> (u64, Vec<u64>) {
        let counts = self.counts();
        (counts.hits, counts.calls.iter().copied().collect())
    }

    /// Counts a call whose command is too long for the rule's pattern.
    pub(super) fn count_long_command(&self) {
        self.counts().long_commands += 1;
    }

    /// Returns the number of calls whose command was too long for the rule's pattern.
    pub(super) fn long_commands(&self) -> u64 {
        self.counts().long_commands
    }

    fn counts(&self) -> MutexGuard<'_, HitCounts> {
        // Counters stay valid whatever panicked.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counter {
    /// Counts a call. Returns the actions that apply to it.
    pub(super) fn occur<'a>(&mut self, rule: &'a FaultRule, seed: u64, key: &str) -> Vec<(&'a Action, f64)> {
        let number = self.calls;
        self.calls += 1;
        if !rule.when.affects(number, random(seed, key, number, 0)) {
            return Vec::new();
        }
        let actions = rule.actions_at(self.occasions);
        self.occasions += 1;
        let numbered = (1_u64..).zip(actions);
        numbered.map(|(salt, action)| (action, random(seed, key, number, salt))).collect()
    }
}

/// Returns a number from 0 to 1 that depends on its arguments only, so that a run with the same
/// seed repeats.
fn random(seed: u64, key: &str, number: u64, salt: u64) -> f64 {
    fastrand::Rng::with_seed(hash_of((seed, key, number, salt))).f64()
}

/// Returns a hash that is the same in each run.
fn hash_of(value: impl Hash) -> u64 {
    // `DefaultHasher::new` has fixed keys. Its algorithm is the same in all builds of a release.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(text: &str, keys: &[&str], seed: u64) -> Vec<u64> {
        let active =
            ActiveRule::new(FaultRule::parse("test", text, None, false).unwrap(), RuleSource::Flag, seed);
        for (call, key) in (0..).zip(keys) {
            active.occur(key, Some(call), Instant::now());
        }
        active.hits().1
    }

    #[test]
    fn calls_are_counted_for_each_container() {
        let keys = ["a", "b", "a", "b", "b", "a"];
        assert_eq!(hits("ExecSync: 1*off -> 1*hang -> off", &keys, 0), [2, 3]);
        assert_eq!(hits("ExecSync every=2: hang", &keys, 0), [2, 3]);
        assert_eq!(hits("ExecSync first=1: hang", &keys, 0), [0, 1]);
    }

    #[test]
    fn a_seeded_choice_repeats_for_each_container_in_any_order() {
        let text = "ExecSync percentage=50 seed=7: hang";
        let alone = hits(text, &["a"; 40], 1);
        assert!((10..30).contains(&alone.len()), "{alone:?}");
        for seed in 0..100 {
            assert_eq!(hits(text, &["a"; 40], seed), alone);
        }
        let keys: Vec<&str> = (0..80).map(|call| if call % 2 == 0 { "b" } else { "a" }).collect();
        let mixed: Vec<u64> =
            hits(text, &keys, 1).into_iter().filter(|call| call % 2 == 1).map(|call| call / 2).collect();
        assert_eq!(mixed, alone);
        let other = hits("ExecSync percentage=50 seed=8: hang", &["a"; 40], 1);
        assert_ne!(other, alone);
    }

    #[test]
    fn a_rule_remembers_the_last_calls_that_it_hit() {
        let active = ActiveRule::new(
            FaultRule::parse("test", "ExecSync: hang", None, false).unwrap(),
            RuleSource::Flag,
            0,
        );
        for call in 0..250 {
            active.occur("a", Some(call), Instant::now());
        }
        let (count, calls) = active.hits();
        assert_eq!((count, calls.len(), calls[0], calls[99]), (250, 100, 150, 249));
    }
}
