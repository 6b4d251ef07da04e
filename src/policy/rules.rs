//! The active rules. They select the calls that the relay intercepts.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info;

use super::active::{ActiveRule, RuleSource};
use super::active_names::{check_active, is_named};
use super::fault::{FaultRule, RuleError};
use super::index::RuleIndex;
use super::interceptor::SelectedFaults;
use super::lifetime;
use super::metrics::FaultMetrics;
use super::node_view::NodeView;
use crate::cri::MethodName;
use crate::events::{Event, reason};
use crate::gofmt::format_duration;
use crate::relay::{CallInfo, Peer};
use crate::terminal::format::counted;

/// Maximum number of active rules.
pub const MAX_RULES: usize = 20_000;

/// Number of rules up to which a call is compared with the clients of each before it is
/// intercepted.
const FEW_RULES: usize = 64;

/// The active rules. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FaultRules(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there are rules. Without them, the byte path takes no lock.
    has_rules: AtomicBool,
    index: RwLock<Arc<RuleIndex>>,
    /// Held while the rules change, so that the byte path waits only for the exchange of the index.
    changes: Mutex<()>,
    /// Signalled when the next expiry may have changed.
    changed: Notify,
    node: OnceLock<Arc<NodeView>>,
    /// Rules of the configuration file that were activated, so that an unchanged rule keeps its
    /// lifetime when the file is read again.
    configured: Mutex<HashSet<(Arc<str>, String)>>,
    metrics: FaultMetrics,
}

/// An active rule, as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultStatus {
    /// Name of the rule.
    pub name: String,
    /// The rule in the one-line form.
    pub rule: String,
    /// Source of the rule.
    pub source: RuleSource,
    /// Time at which the rule ends; `None` if it lives as long as the process.
    pub expires: Option<SystemTime>,
    /// Seed of its choices.
    pub seed: u64,
    /// Number of calls that it has hit.
    pub hits: u64,
    /// Ids of the calls that it has hit last, the oldest first.
    pub calls: Vec<u64>,
    /// Number of calls that it would have selected with a matching command, and whose command has
    /// more bytes than [`MAX_COMMAND`](super::MAX_COMMAND).
    pub long_commands: u64,
}

impl FaultRules {
    /// Connects the rules with the node. Until then, calls that name an object by its id match no
    /// rule that selects pods or containers.
    pub(super) fn connect(&self, node: &Arc<NodeView>) {
        // A second view would be of the same node.
        let _ = self.0.node.set(node.clone());
    }

    /// Activates rules, all or none. `requester` is named in their events.
    pub fn add(&self, rules: Vec<FaultRule>, source: RuleSource, requester: &str) -> Result<(), RuleError> {
        self.change(|active| {
            let mut names: HashSet<Arc<str>> = active.iter().map(|known| known.rule.name.clone()).collect();
            for rule in &rules {
                if !names.insert(rule.name.clone()) {
                    let reason = "is the name of an active rule: choose another, or clear that rule first";
                    return Err(RuleError::new(format!("name {:?}", rule.name), reason));
                }
            }
            check_number(active.len() + rules.len())?;
            for rule in rules {
                let rule = ActiveRule::new(rule, source, new_seed());
                self.record_activation(&rule, requester);
                active.push(Arc::new(rule));
            }
            Ok(())
        })
    }

    /// Replaces the rules of the configuration file, all or none. A rule that is unchanged stays as
    /// it is, and does not begin again after its end.
    pub fn set_configured(&self, rules: Vec<FaultRule>) -> Result<(), RuleError> {
        let mut configured = self.0.configured.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = |rule: &FaultRule| (rule.name.clone(), format!("{:?} {rule}", rule.lifetime));
        let wanted: HashSet<_> = rules.iter().map(identity).collect();
        let new: Vec<FaultRule> =
            rules.into_iter().filter(|rule| !configured.contains(&identity(rule))).collect();
        self.change(|active| {
            let is_removed = |known: &mut Arc<ActiveRule>| {
                known.source == RuleSource::Config && !wanted.contains(&identity(&known.rule))
            };
            let ended: Vec<_> = active.extract_if(.., is_removed).collect();
            let names: HashSet<Arc<str>> = active.iter().map(|known| known.rule.name.clone()).collect();
            if let Some(rule) = new.iter().find(|rule| names.contains(&rule.name)) {
                let reason = "is the name of an active rule that is not in the file";
                return Err(RuleError::new(format!("name {:?}", rule.name), reason));
            }
            check_number(active.len() + new.len())?;
            self.end_rules(&ended, "a change of the configuration file");
            for rule in new {
                let rule = ActiveRule::new(rule, RuleSource::Config, new_seed());
                self.record_activation(&rule, "the configuration file");
                active.push(Arc::new(rule));
            }
            Ok(())
        })?;
        *configured = wanted;
        Ok(())
    }

    /// Ends the rules with these names, or all if `names` is empty. Returns the ended ones; the
    /// error is a name without a rule, and ends none. `requester` is named in their events.
    pub fn clear(&self, names: &[String], requester: &str) -> Result<Vec<FaultStatus>, RuleError> {
        self.change(|active| {
            let known: Vec<&str> = active.iter().map(|known| &*known.rule.name).collect();
            check_active(names, &known, "rule")?;
            let ended: Vec<_> = active.extract_if(.., |known| is_named(names, &known.rule.name)).collect();
            self.end_rules(&ended, requester);
            Ok(ended.iter().map(|ended| FaultStatus::from(&**ended)).collect())
        })
    }

    /// Ends all rules. `cause` is named in their events.
    pub fn end(&self, cause: &str) {
        self.end_where(|_| true, cause);
    }

    /// Returns the active rules.
    #[must_use]
    pub fn list(&self) -> Vec<FaultStatus> {
        let now = Instant::now();
        let index = self.index();
        let active = index.rules().iter().filter(|active| active.is_active(now));
        active.map(|active| FaultStatus::from(&**active)).collect()
    }

    /// Ends rules at the end of their lifetimes, for ever.
    pub async fn expire(self) {
        let next = || {
            let index = self.index();
            index.rules().iter().filter_map(|active| active.expires.map(|(expires, _)| expires)).min()
        };
        let end = |now| self.end_where(|active| !active.is_active(now), "the end of its lifetime");
        lifetime::expire(&self.0.changed, next, end).await;
    }

    /// Registers the metrics of the rules.
    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    /// Returns the rules that may select a call; `None` if the call is forwarded without them.
    pub(super) fn select(&self, info: &CallInfo) -> Option<SelectedFaults> {
        if !self.0.has_rules.load(Ordering::Relaxed) {
            return None;
        }
        let MethodName::Known(method) = info.method else { return None };
        let index = self.index();
        let rules = index.for_method(method)?;
        let peer = info.peer.as_deref();
        let is_own = peer.is_some_and(Peer::is_this_process);
        if is_own && !rules.selects_own_calls {
            return None;
        }
        let few = Some(&rules.rules).filter(|rules| rules.len() <= FEW_RULES);
        if few.is_some_and(|rules| !rules.iter().any(|rule| rule.active.rule.matches.admits(peer))) {
            return None;
        }
        Some(SelectedFaults { metrics: self.0.metrics.clone(), index })
    }

    pub(super) fn node(&self) -> Option<Arc<NodeView>> {
        self.0.node.get().cloned()
    }

    /// Returns whether a rule refuses the connection of a client. Each rule counts the connection.
    pub(super) fn refuses(&self, peer: Option<&Peer>) -> bool {
        if !self.0.has_rules.load(Ordering::Relaxed) {
            return false;
        }
        let index = self.index();
        let now = Instant::now();
        let client = peer.and_then(|peer| peer.program.clone()).unwrap_or_default();
        // Each rule counts the connection, whether or not another refuses it.
        let refusing = index.refusing().iter().filter(|active| active.rule.matches.admits(peer));
        let refused = refusing.filter(|active| !active.occur(&client, None, now).is_empty()).count();
        self.0.metrics.add_refused(refused);
        refused > 0
    }

    fn record_activation(&self, rule: &ActiveRule, requester: &str) {
        let ActiveRule { rule: FaultRule { name, lifetime, .. }, text, .. } = rule;
        info!(name = &**name, rule = text, requester, "fault rule activated");
        let ends = lifetime.map_or_else(
            || "it lives as long as probeshim".to_owned(),
            |lifetime| format!("it ends after {}", format_duration(lifetime)),
        );
        let message = format!("Fault rule {name} was activated by {requester}, and {ends}: {text}");
        self.record(Event::warning(reason::FAULT_ACTIVATED, message));
    }

    /// Ends the rules that meet a condition.
    fn end_where(&self, condition: impl Fn(&ActiveRule) -> bool, cause: &str) {
        let Ok(()) = self.change(|active| {
            let ended: Vec<_> = active.extract_if(.., |known| condition(known)).collect();
            self.end_rules(&ended, cause);
            Ok::<_, Infallible>(())
        });
    }

    /// Ends rules: calls that they hold are forwarded.
    fn end_rules(&self, rules: &[Arc<ActiveRule>], cause: &str) {
        for rule in rules {
            rule.ended.cancel();
            let (name, hits) = (&rule.rule.name, rule.hits().0);
            info!(name = &**name, hits, cause, "fault rule ended");
            let calls = counted(hits, "call");
            let message = format!("Fault rule {name} was ended by {cause}. It has hit {calls}");
            self.record(Event::normal(reason::FAULT_ENDED, message));
        }
    }

    fn record(&self, event: Event) {
        if let Some(node) = self.0.node.get() {
            node.events.record(event);
        }
    }

    /// Changes the rules. An error changes nothing.
    fn change<T, E>(&self, change: impl FnOnce(&mut Vec<Arc<ActiveRule>>) -> Result<T, E>) -> Result<T, E> {
        let _changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = self.index().rules().to_vec();
        let result = change(&mut rules)?;
        let (count, index) = (rules.len(), Arc::new(RuleIndex::new(rules)));
        *self.0.index.write().unwrap_or_else(PoisonError::into_inner) = index;
        self.0.has_rules.store(count > 0, Ordering::Relaxed);
        self.0.metrics.set_active(count);
        self.0.changed.notify_one();
        Ok(result)
    }

    fn index(&self) -> Arc<RuleIndex> {
        self.0.index.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Refuses more rules than the maximum.
fn check_number(rules: usize) -> Result<(), RuleError> {
    let reason = format!("would be more than {MAX_RULES} active ones");
    if rules > MAX_RULES { Err(RuleError::new("the rules", reason)) } else { Ok(()) }
}

/// Returns a seed that JSON readers do not round.
fn new_seed() -> u64 {
    fastrand::u32(..).into()
}

impl From<&ActiveRule> for FaultStatus {
    fn from(active: &ActiveRule) -> Self {
        let (hits, calls) = active.hits();
        Self {
            name: active.rule.name.to_string(),
            rule: active.text.clone(),
            source: active.source,
            expires: active.expires.map(|(_, expires)| expires),
            seed: active.seed,
            hits,
            calls,
            long_commands: active.long_commands(),
        }
    }
}
