//! JSON of fault rules.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::json::{Call, time};
use crate::policy::{FaultRule, FaultStatus};

/// Body of a request that activates fault rules or plans them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultsBody {
    /// The rules: all or none are activated.
    pub rules: Vec<FaultBody>,
}

/// A fault rule of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FaultBody {
    /// Name of the rule; null for a new one.
    pub name: Option<String>,
    /// The rule in the one-line form.
    pub rule: String,
    /// Lifetime of the rule in milliseconds. It is mandatory where the rule is activated.
    pub for_ms: Option<u64>,
    /// Whether the rule may select every call of every client.
    #[serde(default)]
    pub all: bool,
}

/// Body of a request that ends fault rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearBody {
    /// Names of the rules; empty for all.
    pub names: Vec<String>,
}

/// An active fault rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveFault {
    /// Name of the rule.
    pub name: String,
    /// The rule in the one-line form.
    pub rule: String,
    /// Source of the rule: `config`, `flag` or `command`.
    pub source: String,
    /// Time at which the rule ends; null if it lives as long as probeshim.
    pub expires: Option<String>,
    /// Seed of its choices.
    pub seed: u64,
    /// Number of calls that it has hit.
    pub hits: u64,
    /// Ids of the calls that it has hit last, at most 100, the oldest first.
    pub calls: Vec<u64>,
    /// Number of calls with a command of more than 4 KiB, which `command` of the rule does not
    /// match.
    #[serde(default)]
    pub long_commands: u64,
}

/// The recorded calls that fault rules would have hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultPlan {
    /// Number of recorded calls that were compared with the rules.
    pub considered: usize,
    /// Number of calls for which it is unknown, because the pod or container is no longer on the
    /// node.
    pub unknown: u64,
    /// The calls that would have been hit, by rule, in the order of their ids.
    pub hits: Vec<PlannedHit>,
}

/// A recorded call that a fault rule would have hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedHit {
    /// Name of the rule.
    pub rule: String,
    /// The actions in the one-line form.
    pub actions: Vec<String>,
    /// The call.
    pub call: Call,
}

impl From<&FaultRule> for FaultBody {
    fn from(rule: &FaultRule) -> Self {
        let milliseconds = |lifetime: Duration| u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: Some(rule.name.to_string()),
            rule: rule.to_string(),
            for_ms: rule.lifetime.map(milliseconds),
            // The rule was validated with the permission that it has.
            all: rule.matches.is_everything(),
        }
    }
}

impl From<FaultStatus> for ActiveFault {
    fn from(active: FaultStatus) -> Self {
        let FaultStatus { name, rule, source, expires, seed, hits, calls, long_commands } = active;
        let (source, expires) = (source.name().to_owned(), expires.map(time));
        Self { name, rule, source, expires, seed, hits, calls, long_commands }
    }
}
