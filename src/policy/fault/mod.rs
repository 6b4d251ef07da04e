//! Fault rules: the calls that are selected, the occasions, and the actions.

mod action;
mod document;
mod one_line;
mod when;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call_match::CallMatch;

use one_line::OneLine;

pub use action::{Action, StreamAction};
pub use when::{Place, When};

pub(crate) use document::rules;

/// A rule that injects faults into calls.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Name of the rule, which no other active rule has.
    pub name: Arc<str>,
    /// The calls that are selected.
    pub matches: CallMatch,
    /// The occasions on which selected calls are affected.
    pub when: When,
    /// The actions, in the order in which the occasions use them.
    pub steps: Vec<FaultStep>,
    /// Time after which the rule ends; `None` if it lives as long as the process.
    pub lifetime: Option<Duration>,
}

/// Actions for a number of occasions.
#[derive(Clone, Debug)]
pub struct FaultStep {
    /// Number of occasions; `None` for all further ones.
    pub times: Option<u64>,
    /// The actions, in order; empty if the calls are not affected.
    pub actions: Vec<Action>,
}

/// Reason why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {reason}")]
pub struct RuleError {
    /// The part of the rule, with its value.
    pub field: String,
    /// A predicate about it.
    pub reason: String,
}

impl RuleError {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl FaultRule {
    /// Parses the one-line form `METHOD KEY=VALUE…: TERM -> TERM…`, such as `ExecSync
    /// pod=default/web-*: 2*off -> 1*hang -> delay(500ms)`. `name` is used if the text has none.
    /// `all` permits a rule that selects every call of every client, as `all=true` does.
    pub fn parse(name: &str, text: &str, lifetime: Option<Duration>, all: bool) -> Result<Self, RuleError> {
        let OneLine { name: own_name, all: own_all, matches, when, steps } = one_line::parse(text)?;
        let name = own_name.as_deref().unwrap_or(name).into();
        Self { name, matches, when, steps, lifetime }.validated(all || own_all)
    }

    /// Returns the rule unless its parts contradict each other.
    pub(super) fn validated(self, all: bool) -> Result<Self, RuleError> {
        check_name(&self.name)?;
        if self.matches.is_everything() && !all {
            let reason = "would select every call of every client: select a method, a pod or a client, or permit it \
                          with all=true (`fault add --all`)";
            return Err(RuleError::new("the rule", reason));
        }
        let actions: Vec<&Action> = self.steps.iter().flat_map(|step| &step.actions).collect();
        if actions.is_empty() {
            return Err(RuleError::new("the rule", "must have an action other than off"));
        }
        for action in &actions {
            action.check(&self.matches, self.when.place)?;
        }
        if actions.iter().any(|action| matches!(action, Action::Refuse))
            && !(actions.len() == 1 && self.steps.len() == 1 && self.matches.selects_clients_only())
        {
            let reason = "refuses connections, on which no call has arrived: it must be the only action, and the rule may \
                          select by client only";
            return Err(RuleError::new("refuse", reason));
        }
        Ok(self)
    }

    /// Returns the actions for the occasion with this number, from 0; empty if the call is not
    /// affected.
    pub(super) fn actions_at(&self, mut occasion: u64) -> &[Action] {
        for step in &self.steps {
            match step.times {
                Some(times) if occasion >= times => occasion -= times,
                _ => return &step.actions,
            }
        }
        &[]
    }

    /// Returns the name of an action that changes requests, responses or the messages of a stream;
    /// `None` if the rule only delays, ends or refuses calls.
    #[must_use]
    pub fn message_change(&self) -> Option<&'static str> {
        let mut actions = self.steps.iter().flat_map(|step| &step.actions);
        actions.find(|action| action.changes_messages()).map(Action::name)
    }

    /// Returns whether the rule refuses connections, and affects no calls.
    #[must_use]
    pub fn refuses_connections(&self) -> bool {
        self.steps.iter().any(|step| step.actions.iter().any(|action| matches!(action, Action::Refuse)))
    }
}

impl fmt::Display for FaultRule {
    /// Writes the rule in the one-line form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}:", self.matches, self.when)?;
        for (index, step) in self.steps.iter().enumerate() {
            f.write_str(if index == 0 { " " } else { " -> " })?;
            if let Some(times) = step.times {
                write!(f, "{times}*")?;
            }
            if step.actions.is_empty() {
                f.write_str("off")?;
            }
            for (index, action) in step.actions.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { "+" })?;
                write!(f, "{action}")?;
            }
        }
        Ok(())
    }
}

/// Checks the name of a rule, which is part of commands, records and metrics.
pub(super) fn check_name(name: &str) -> Result<(), RuleError> {
    let is_valid = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let reason = "must be a name of 1 to 63 letters, digits, -, _ and .";
    if is_valid { Ok(()) } else { Err(RuleError::new(format!("name {name:?}"), reason)) }
}

#[cfg(test)]
mod tests;
