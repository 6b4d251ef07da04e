//! What is done about probes that have failed, and what keeps it within bounds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use tokio::time::Instant;

use crate::events::{Event, reason};
use crate::inventory::{Container, Sandbox};
use crate::probe::Selector;
use crate::terminal::format;

/// What is done about probes. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EnforcementMode {
    /// Nothing is done
    #[default]
    Off,
    /// Probes are made as the kubelet makes them, and it is said what would be killed; nothing is
    DryRun,
    /// What has failed its liveness or startup probe is stopped; somebody else starts it again
    Kill,
    /// Containers are kept alive as a kubelet would: what ends or is killed is started again, under back-off
    Restart,
}

/// How many containers may be killed within which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillLimit {
    /// How many.
    pub count: usize,
    /// Within which time.
    pub within: Duration,
}

impl KillLimit {
    /// Returns the event of a kill that is skipped because the limit is reached.
    pub(super) fn event(self) -> Event {
        let Self { count, within } = self;
        let within = format::duration(within);
        let message =
            format!("--max-kills is reached: {count} kills within {within}; further kills are skipped");
        Event::warning(reason::KILL_RATE_LIMITED, message)
    }
}

/// What is done, and its bounds.
#[derive(Clone, Debug, Default)]
pub struct EnforcementSettings {
    /// What is done at first.
    pub mode: EnforcementMode,
    /// How many kills there may be; `None` for any number.
    pub most: Option<KillLimit>,
    /// Who is never killed.
    pub protected: Vec<Selector>,
}

/// What is done about probes that have failed.
#[derive(Debug)]
pub(super) struct Enforcement {
    most: Option<KillLimit>,
    protected: Vec<ProtectedSelector>,
    now: Mutex<EnforcementState>,
}

/// Somebody who is never killed.
#[derive(Debug)]
struct ProtectedSelector {
    matches: Selector,
    /// Somebody has matched.
    is_met: AtomicBool,
}

/// What changes while we run.
#[derive(Debug)]
struct EnforcementState {
    mode: EnforcementMode,
    /// When kills were decided upon, within the time that counts.
    kills: VecDeque<Instant>,
    /// It has been said that there were too many, and nobody has been killed since.
    is_held: bool,
}

/// What is to be done about a container whose probe has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPermit {
    /// It is said what would be done.
    DryRun,
    /// It is killed.
    Allow,
    /// There have been too many kills; `is_first`: since there was room for one.
    RateLimited { is_first: bool },
}

/// How kills stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillStats {
    /// How many there may be, if that is bounded.
    pub most: Option<KillLimit>,
    /// How many there have been within that time.
    pub recent: usize,
    /// Whether more of them are held.
    pub rate_limited: bool,
}

impl EnforcementMode {
    /// Whether what has failed is killed.
    #[must_use]
    pub fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::Restart)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::DryRun => "dry-run",
            Self::Kill => "kill",
            Self::Restart => "restart",
        }
    }
}

impl Enforcement {
    pub(super) fn new(settings: EnforcementSettings) -> Self {
        let EnforcementSettings { mode, most, protected } = settings;
        let protected = protected
            .into_iter()
            .map(|matches| ProtectedSelector { matches, is_met: AtomicBool::new(false) });
        let now = EnforcementState { mode, kills: VecDeque::new(), is_held: false };
        Self { most, protected: protected.collect(), now: Mutex::new(now) }
    }

    pub(super) fn mode(&self) -> EnforcementMode {
        self.lock().mode
    }

    /// Does something else from now on. Returns what was done before.
    pub(super) fn set_mode(&self, mode: EnforcementMode) -> EnforcementMode {
        std::mem::replace(&mut self.lock().mode, mode)
    }

    /// Whether a container is never killed.
    pub(super) fn is_protected(&self, sandbox: &Sandbox, container: &Container) -> bool {
        self.protected.iter().any(|selector| selector.has(sandbox, container))
    }

    /// A container is on the node, whether it is probed or not.
    pub(super) fn mark_matched(&self, sandbox: &Sandbox, container: &Container) {
        for selector in self.protected.iter().filter(|selector| selector.has(sandbox, container)) {
            selector.is_met.store(true, Ordering::Relaxed);
        }
    }

    /// Who is to be spared, and has not been seen.
    pub(super) fn unmatched(&self) -> Vec<String> {
        let is_unmet = |selector: &&ProtectedSelector| !selector.is_met.load(Ordering::Relaxed);
        self.protected.iter().filter(is_unmet).map(|selector| selector.matches.to_string()).collect()
    }

    /// What is to be done about somebody who is not spared. A kill is counted.
    pub(super) fn permit_kill(&self, now: Instant) -> KillPermit {
        let mut state = self.lock();
        if !state.mode.kills() {
            return KillPermit::DryRun;
        }
        if let Some(KillLimit { count, within }) = self.most {
            state.forget(now, within);
            if state.kills.len() >= count {
                let is_first = !std::mem::replace(&mut state.is_held, true);
                return KillPermit::RateLimited { is_first };
            }
            state.kills.push_back(now);
        }
        state.is_held = false;
        KillPermit::Allow
    }

    /// How kills stand.
    pub(super) fn kills(&self, now: Instant) -> KillStats {
        let mut state = self.lock();
        if let Some(most) = self.most {
            state.forget(now, most.within);
        }
        let is_full = self.most.is_some_and(|most| state.kills.len() >= most.count);
        KillStats { most: self.most, recent: state.kills.len(), rate_limited: state.is_held && is_full }
    }

    fn lock(&self) -> MutexGuard<'_, EnforcementState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProtectedSelector {
    fn has(&self, sandbox: &Sandbox, container: &Container) -> bool {
        let name = container.container_ref.name.as_deref().unwrap_or_default();
        self.matches.matches(sandbox, name, Some(&container.image))
    }
}

impl EnforcementState {
    fn forget(&mut self, now: Instant, within: Duration) {
        while self.kills.front().is_some_and(|kill| now.saturating_duration_since(*kill) >= within) {
            self.kills.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_held_while_there_were_too_many() {
        let (within, begin) = (Duration::from_secs(60), Instant::now());
        let most = Some(KillLimit { count: 2, within });
        let enforcement =
            Enforcement::new(EnforcementSettings { mode: EnforcementMode::Kill, most, ..Default::default() });
        for (seconds, expected) in [
            (0, KillPermit::Allow),
            (30, KillPermit::Allow),
            (31, KillPermit::RateLimited { is_first: true }),
            (59, KillPermit::RateLimited { is_first: false }),
            (60, KillPermit::Allow),
            (61, KillPermit::RateLimited { is_first: true }),
            (90, KillPermit::Allow),
        ] {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(enforcement.permit_kill(now), expected, "{seconds}");
            assert_eq!(enforcement.kills(now).rate_limited, expected != KillPermit::Allow, "{seconds}");
        }
        assert_eq!(enforcement.set_mode(EnforcementMode::DryRun), EnforcementMode::Kill);
        assert_eq!(enforcement.permit_kill(begin + within * 9), KillPermit::DryRun);
        assert_eq!(enforcement.kills(begin + within * 9).recent, 0);
    }
}
