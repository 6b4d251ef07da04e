//! Enforcement: the mode, the kill limit and the protected containers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use tokio::time::Instant;

use crate::events::{Event, reason};
use crate::inventory::{Container, Sandbox};
use crate::policy::Pauses;
use crate::probe::Selector;
use crate::terminal::format;

/// Enforcement mode: the action when a liveness or startup probe fails. `--help` prints the
/// comments of the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum EnforcementMode {
    /// Run no probes
    #[default]
    Off,
    /// Run probes as the kubelet does, and report containers that it would kill
    DryRun,
    /// Stop containers whose liveness or startup probe failed; a kubelet restarts them
    Kill,
    /// Restart containers that exited or were killed, with back-off, as a kubelet does
    Restart,
}

/// Highest number of kills within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillLimit {
    /// Maximum number of kills.
    pub count: usize,
    /// Period within which the kills are counted.
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

/// Settings of the enforcement.
#[derive(Clone, Debug, Default)]
pub struct EnforcementSettings {
    /// Initial enforcement mode.
    pub mode: EnforcementMode,
    /// Kill limit; `None` for no limit.
    pub most: Option<KillLimit>,
    /// Selectors of the containers that are never killed.
    pub protected: Vec<Selector>,
    /// Pauses, which hold kills.
    pub pauses: Pauses,
}

/// Decides whether a container whose probe has failed may be killed.
#[derive(Debug)]
pub(super) struct Enforcement {
    most: Option<KillLimit>,
    protected: Vec<ProtectedSelector>,
    pauses: Pauses,
    now: Mutex<EnforcementState>,
}

/// A `--never-kill` selector.
#[derive(Debug)]
struct ProtectedSelector {
    matches: Selector,
    /// Whether the selector has matched a container of the node.
    is_met: AtomicBool,
}

/// Mutable state of [`Enforcement`].
#[derive(Debug)]
struct EnforcementState {
    mode: EnforcementMode,
    /// Times of the permitted kills that are within the period of the kill limit.
    kills: VecDeque<Instant>,
    /// Whether the kill limit has blocked a kill since the last permitted one.
    is_held: bool,
}

/// Decision about the kill of a container whose probe has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPermit {
    /// The would-be kill is reported.
    DryRun,
    /// The container is killed.
    Allow,
    /// The kill limit is reached. `is_first` is set for the first blocked kill since the last
    /// permitted one.
    RateLimited { is_first: bool },
}

/// State of the kill limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillStats {
    /// Kill limit, if there is one.
    pub most: Option<KillLimit>,
    /// Number of kills within the period of the limit; 0 without a limit.
    pub recent: usize,
    /// Whether the limit is reached and has blocked a kill.
    pub rate_limited: bool,
}

impl EnforcementMode {
    /// Returns whether failed containers are killed in this mode.
    #[must_use]
    pub fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::Restart)
    }

    /// Returns the name of the mode, which is its value in flags.
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
        let EnforcementSettings { mode, most, protected, pauses } = settings;
        let protected = protected
            .into_iter()
            .map(|matches| ProtectedSelector { matches, is_met: AtomicBool::new(false) });
        let now = EnforcementState { mode, kills: VecDeque::new(), is_held: false };
        Self { most, protected: protected.collect(), pauses, now: Mutex::new(now) }
    }

    pub(super) fn mode(&self) -> EnforcementMode {
        self.lock().mode
    }

    /// Switches the mode. Returns the previous mode.
    pub(super) fn set_mode(&self, mode: EnforcementMode) -> EnforcementMode {
        std::mem::replace(&mut self.lock().mode, mode)
    }

    /// Returns whether a container matches a `--never-kill` selector.
    pub(super) fn is_protected(&self, sandbox: &Sandbox, container: &Container) -> bool {
        self.protected.iter().any(|selector| selector.has(sandbox, container))
    }

    /// Returns the name of the pause because of which a container is not killed.
    pub(super) fn pause_of(&self, sandbox: &Sandbox, container: &Container) -> Option<Arc<str>> {
        self.pauses.holding_kills(sandbox, container)
    }

    /// Marks the selectors that match a container of the node, whether the container is probed or
    /// not.
    pub(super) fn mark_matched(&self, sandbox: &Sandbox, container: &Container) {
        for selector in self.protected.iter().filter(|selector| selector.has(sandbox, container)) {
            selector.is_met.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the selectors that have matched no container.
    pub(super) fn unmatched(&self) -> Vec<String> {
        let is_unmet = |selector: &&ProtectedSelector| !selector.is_met.load(Ordering::Relaxed);
        self.protected.iter().filter(is_unmet).map(|selector| selector.matches.to_string()).collect()
    }

    /// Decides about the kill of a container that is not protected. A permitted kill counts towards
    /// the limit.
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

    /// Returns the state of the kill limit.
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
    fn kills_beyond_the_kill_limit_are_not_permitted() {
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
