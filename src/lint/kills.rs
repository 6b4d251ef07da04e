//! Lints about containers that were killed because of a probe.

use std::time::Duration;

use super::facts::{PeriodFacts, ProbeFacts};
use super::failed_attempts::{FailedAttempts, without_capital};
use super::finding::{LintFinding, LintSubject, Severity};
use super::lifetimes::{Lifetimes, ProbeKill, how_often};
use super::names::KILLS;
use super::same_cause::limit_of;
use crate::history::timeline::Prober;
use crate::manifest::Probe;
use crate::terminal::format::duration;

/// Period of a probe that does not set one.
const DEFAULT_PERIOD: Duration = Duration::from_secs(10);

/// Factor by which the time for the start exceeds the longest time that a container had.
const STARTUP_FACTOR: u32 = 2;

/// Maximum time for the start of an application. A probe that fails for longer does not fail
/// because of the start.
const MAX_START: Duration = Duration::from_secs(3600);

/// Returns the findings about kills: one for each probe.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    facts.lifetimes.iter().flat_map(|container| killed(facts, container)).collect()
}

/// Returns the findings about the kills of a container.
fn killed(facts: &PeriodFacts<'_>, container: &Lifetimes) -> Vec<LintFinding> {
    // The type of a probe may be known only later.
    let cause = |kill: &ProbeKill| match probe(facts, container, kill) {
        // Each of several probes with one command has kills of its own.
        Some(probe) => {
            let is_joint = probe.series.probe.contains(" or ");
            let series = (probe.attempts.subject.clone(), probe.series.handler.clone());
            (Some(series), kill.probe.clone().filter(|_| is_joint))
        }
        None => (None, kill.probe.clone().or_else(|| kill.command.clone())),
    };
    let mut groups: Vec<(_, Vec<&ProbeKill>)> = Vec::new();
    for kill in &container.kills {
        let cause = cause(kill);
        match groups.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, kills)) => kills.push(kill),
            None => groups.push((cause, vec![kill])),
        }
    }
    let finding = |(_, kills): (_, Vec<&ProbeKill>)| {
        let first = *kills.iter().find(|kill| kill.probe.is_some()).or(kills.first())?;
        let made: Vec<&ProbeKill> = kills.iter().copied().filter(|kill| kill.is_made).collect();
        // Kills that another mode would have made are of interest if none was made.
        let kills = if made.is_empty() { kills } else { made };
        let probe = probe(facts, container, first);
        Some(KillGroup { facts, container, probe, first, kills }.finding())
    };
    groups.into_iter().filter_map(finding).collect()
}

/// Returns the probe that killed a container, as far as its attempts were observed.
fn probe<'a>(
    facts: &'a PeriodFacts<'a>,
    container: &Lifetimes,
    kill: &ProbeKill,
) -> Option<&'a ProbeFacts<'a>> {
    let is_it = |probe: &&ProbeFacts<'_>| {
        let series = probe.series;
        let is_named =
            |name: &str| series.probe == name || series.probe.split(" or ").any(|probe| probe == name);
        let is_command = || kill.command.as_ref().is_some_and(|command| *command == series.handler);
        probe.attempts.subject.clone().into_container() == container.subject
            && kill.probe.as_deref().map_or_else(is_command, is_named)
    };
    let rank = |probe: &&ProbeFacts<'_>| {
        // The command of a probe may have changed in the period.
        let is_command = kill.command.as_ref() == Some(&probe.series.handler);
        (is_command, probe.series.prober == Prober::Kubelet, probe.attempts.total.failed())
    };
    facts.probes.iter().filter(is_it).max_by_key(rank)
}

/// Kills of a container because of one probe.
struct KillGroup<'a> {
    facts: &'a PeriodFacts<'a>,
    container: &'a Lifetimes,
    probe: Option<&'a ProbeFacts<'a>>,
    first: &'a ProbeKill,
    kills: Vec<&'a ProbeKill>,
}

impl KillGroup<'_> {
    fn finding(&self) -> LintFinding {
        let failed = self.probe.and_then(|probe| FailedAttempts::new(self.facts, probe));
        let at_start = self.is_at_start(failed.as_ref());
        let is_made = self.first.is_made || self.kills.iter().any(|kill| kill.is_made);
        let subject = match self.probe {
            Some(probe) => probe.attempts.subject.clone(),
            None => LintSubject { probe: self.first.probe.clone(), ..self.container.subject.clone() },
        };
        let attempts = failed.as_ref().map(|failed| format!("; {}", failed.text)).unwrap_or_default();
        let sentence = format!("{}{attempts}.", self.how_often(is_made, at_start));
        LintFinding {
            lint: KILLS,
            severity: if is_made { Severity::Error } else { Severity::Warning },
            subject,
            sentence,
            evidence: [self.lifetimes(), self.settings()].into_iter().flatten().collect(),
            remedy: if at_start {
                self.startup_remedy(failed.as_ref())
            } else {
                self.remedy(failed.as_ref())
            },
            affected: u32::try_from(self.kills.len()).unwrap_or(u32::MAX),
            calls: failed.map(|failed| failed.calls).unwrap_or_default(),
        }
    }

    fn how_often(&self, is_made: bool, at_start: bool) -> String {
        let count = u32::try_from(self.kills.len()).unwrap_or(u32::MAX);
        let killed = if is_made { "killed" } else { "would have killed" };
        let times = how_often(self.kills.iter().map(|kill| kill.time));
        let before = match (at_start, count) {
            (false, _) => "",
            (true, 1) => ", before the probe had ever succeeded",
            (true, _) => ", each time before the probe had succeeded",
        };
        let probe = self.first.probe.as_ref().map(|probe| format!("{probe} ")).unwrap_or_default();
        format!("The {probe}probe {killed} the container {times}{before}")
    }

    /// Returns whether each kill came before the first success of the probe, and nothing says that
    /// the application was up: its readiness probe, or a program that is missing.
    fn is_at_start(&self, failed: Option<&FailedAttempts>) -> bool {
        let never = |kill: &&ProbeKill| {
            let is_start = kill.lifetime.is_none_or(|lifetime| lifetime <= MAX_START);
            let never = match kill.has_succeeded {
                Some(has_succeeded) => !has_succeeded,
                // The start and the attempts after it may be before the period.
                None => kill.lifetime.is_some() && self.successes() == Some(0),
            };
            is_start && never
        };
        let was_up = self.facts.probes.iter().any(|other| {
            let is_other = self.probe.is_none_or(|probe| !std::ptr::eq(probe, other));
            is_other
                && other.attempts.subject.clone().into_container() == self.container.subject
                && other.is_probe()
                && other.attempts.total.successes > 0
        });
        // A server that answers is up.
        let is_answered = failed
            .and_then(|failed| failed.output.as_deref())
            .is_some_and(|output| output.contains("statuscode: 4"));
        let cannot_start = self.probe.is_some_and(|probe| super::programs::cannot_start(probe));
        let is_limited = self.probe.is_some_and(|probe| limit_of(probe).is_some());
        self.kills.iter().all(never) && !(was_up || is_answered || cannot_start || is_limited)
    }

    fn lifetimes(&self) -> Option<String> {
        let known = || self.kills.iter().filter_map(|kill| kill.lifetime);
        let (shortest, longest) = (known().min()?, known().max()?);
        let (shortest, longest) = (duration(shortest), duration(longest));
        let time = if shortest == longest { longest } else { format!("{shortest} to {longest}") };
        Some(format!("The container was killed {time} after its start."))
    }

    fn settings(&self) -> Option<String> {
        let series = self.probe?.series;
        // The threshold and the period of a series are those of the first of its probes.
        let is_first =
            self.first.probe.as_deref().is_none_or(|probe| series.probe.split(" or ").next() == Some(probe));
        let seconds =
            |name: &str, time: Option<Duration>| time.map(|time| format!("{name} {}", time.as_secs()));
        let settings = [
            series
                .failure_threshold
                .filter(|_| is_first)
                .map(|threshold| format!("failureThreshold {threshold}")),
            seconds("periodSeconds", series.period.filter(|_| is_first)),
            seconds("timeoutSeconds", series.timeout),
        ];
        let settings: Vec<String> = settings.into_iter().flatten().collect();
        (!settings.is_empty())
            .then(|| format!("The probe is {}, with {}.", series.handler, settings.join(", ")))
    }

    /// Returns the remedy for a container that had too little time to start, with numbers: at least
    /// twice the time that it had.
    fn startup_remedy(&self, failed: Option<&FailedAttempts>) -> String {
        let series = self.probe.map(|probe| probe.series);
        let period =
            series.and_then(|series| series.period).unwrap_or(DEFAULT_PERIOD).max(Duration::from_secs(1));
        let had = self.kills.iter().filter_map(|kill| kill.lifetime).max();
        let threshold =
            series.and_then(|series| series.failure_threshold).unwrap_or(Probe::DEFAULT_FAILURE_THRESHOLD);
        let had = had.unwrap_or(period.saturating_mul(threshold));
        let needed = had.saturating_mul(STARTUP_FACTOR);
        let threshold = needed.as_secs_f64() / period.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let threshold = threshold.ceil() as u64;
        let period = period.as_secs();
        let budget = threshold.saturating_mul(period);
        let time = format!("{budget} s, at least twice the {} that it had", duration(had));
        let otherwise = without_capital(&self.cause_remedy(failed));
        let is_startup = self.first.probe.as_deref() == Some("startup");
        // A handler that never ends in time shows nothing about the application.
        if failed.is_some_and(|failed| failed.is_timeout) {
            let start = if is_startup {
                format!("raise the failureThreshold of the startupProbe to {threshold}")
            } else {
                format!("add a startupProbe with the same handler and failureThreshold {threshold}")
            };
            return format!(
                "See with `probeshim explain` where the time of a call went; {otherwise}; if only the start of the \
                 application takes longer, {start} and periodSeconds {period} ({time})."
            );
        }
        let otherwise = format!("if it was up already, {otherwise}");
        if is_startup {
            return format!(
                "If the application needs longer to start, raise the failureThreshold of the startupProbe to \
                 {threshold} with periodSeconds {period} ({time}); {otherwise}."
            );
        }
        format!(
            "If the application needs longer to start, add a startupProbe with the same handler, periodSeconds {period} \
             and failureThreshold {threshold} ({time}); {otherwise}."
        )
    }

    fn remedy(&self, failed: Option<&FailedAttempts>) -> String {
        // The threshold of a series is that of the first of its probes.
        let series = self.probe.map(|probe| probe.series).filter(|series| !series.probe.contains(" or "));
        let threshold = series.and_then(|series| series.failure_threshold);
        let slow = failed.is_some_and(|failed| failed.is_timeout);
        let cause = self.cause_remedy(failed);
        let look = if slow { "See with `probeshim explain` where the time of a call went; " } else { "" };
        let cause = if slow { without_capital(&cause) } else { cause };
        let has_failed_again =
            |kill: &&ProbeKill| kill.has_succeeded == Some(false) || self.successes() == Some(0);
        let repeated = if self.kills.len() > 1 && !slow && self.kills.iter().skip(1).all(has_failed_again) {
            "; the probe failed again after each restart, so a restart does not help"
        } else {
            ""
        };
        let single = match threshold {
            Some(1) => "; with failureThreshold 1 (now), a single failed attempt kills: 3 is the default",
            _ => "",
        };
        format!("{look}{cause}{repeated}{single}.")
    }

    /// Returns the remedy against the failures of the probe.
    fn cause_remedy(&self, failed: Option<&FailedAttempts>) -> String {
        let known = failed.zip(self.probe).map(|(failed, probe)| failed.remedy(probe.series));
        known.unwrap_or_else(|| "Find out why the probe fails".to_owned())
    }

    /// Returns the number of successes of the probe, if it was observed.
    fn successes(&self) -> Option<u32> {
        self.probe.map(|probe| probe.attempts.total.successes)
    }
}

#[cfg(test)]
mod tests;
