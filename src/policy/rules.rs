//! The active rules. They select the calls that the relay intercepts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::active::{ActiveRule, RuleSource};
use super::fault::{FaultRule, RuleError};
use super::interceptor::FaultInterceptor;
use super::target::Target;
use crate::cri::{Method, MethodName};
use crate::inventory::{Container, Inventory, Sandbox};
use crate::probe::SpecResolver;
use crate::relay::{CallInfo, CallPolicy, Interceptor, Peer};
use crate::tap::InternalCalls;

/// Maximum number of active rules.
pub const MAX_RULES: usize = 20_000;

/// Number of rules up to which a call is compared with the clients of each before it is
/// intercepted.
const FEW_RULES: usize = 64;

/// Maximum number of objects for which the rules that select them are cached.
const MAX_CACHED: usize = 10_000;

/// The active rules. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FaultRules(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there is no rule, so that the byte path takes no lock.
    has_rules: AtomicBool,
    index: RwLock<Arc<RuleIndex>>,
    /// Signalled when the next expiry may have changed.
    changed: Notify,
    node: OnceLock<NodeView>,
    /// Rules of the configuration file that were activated, so that an unchanged rule keeps its
    /// lifetime when the file is read again.
    configured: Mutex<Vec<(Arc<str>, String)>>,
}

/// What the rules know about the node.
#[derive(Debug)]
pub struct NodeView {
    /// Sandboxes and containers.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// Probes and hooks.
    pub specs: watch::Receiver<SpecResolver>,
    /// Handle by which the processing of earlier calls is awaited.
    pub calls: InternalCalls,
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
}

/// The active rules by method.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    rules: Vec<Arc<ActiveRule>>,
    by_method: HashMap<&'static str, MethodRules>,
    /// Rules that refuse connections.
    refusing: Vec<Arc<ActiveRule>>,
}

/// The rules that may select calls to a method.
#[derive(Debug, Default)]
struct MethodRules {
    rules: Vec<Arc<ActiveRule>>,
    /// Whether a rule selects the calls of probeshim itself.
    selects_own_calls: bool,
    cache: Mutex<HashMap<String, CachedSelection>>,
}

/// The rules that select an object, as long as the object does not change.
#[derive(Debug)]
struct CachedSelection {
    sandbox: Option<Arc<Sandbox>>,
    container: Option<Arc<Container>>,
    rules: Arc<[Arc<ActiveRule>]>,
}

impl FaultRules {
    /// Connects the rules with the node. Until then, calls that name an object by its id match no
    /// rule that selects pods or containers.
    pub fn connect(&self, node: NodeView) {
        // A second view would be of the same node.
        let _ = self.0.node.set(node);
    }

    /// Activates rules, all or none.
    pub fn add(&self, rules: Vec<FaultRule>, source: RuleSource) -> Result<(), RuleError> {
        self.change(|active| {
            for (index, rule) in rules.iter().enumerate() {
                let is_known = active.iter().any(|known| known.rule.name == rule.name)
                    || rules[..index].iter().any(|known| known.name == rule.name);
                if is_known {
                    let reason = "is the name of an active rule: choose another, or clear that rule first";
                    return Err(RuleError::new(format!("name {:?}", rule.name), reason));
                }
            }
            if active.len() + rules.len() > MAX_RULES {
                let reason = format!("would be more than {MAX_RULES} active ones");
                return Err(RuleError::new("the rules", reason));
            }
            for rule in rules {
                let rule = ActiveRule::new(rule, source, fastrand::u64(..));
                info!(
                    name = &*rule.rule.name,
                    rule = rule.text,
                    source = source.name(),
                    "fault rule activated"
                );
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
        let wanted: Vec<_> = rules.iter().map(identity).collect();
        let new: Vec<FaultRule> =
            rules.into_iter().filter(|rule| !configured.contains(&identity(rule))).collect();
        self.change(|active| {
            let mut kept = active.clone();
            kept.retain(|known| {
                known.source != RuleSource::Config || wanted.contains(&identity(&known.rule))
            });
            let is_taken = |rule: &&FaultRule| kept.iter().any(|known| known.rule.name == rule.name);
            if let Some(rule) = new.iter().find(is_taken) {
                let reason = "is the name of an active rule that is not in the file";
                return Err(RuleError::new(format!("name {:?}", rule.name), reason));
            }
            end_others(active, &kept);
            let activate = |rule| Arc::new(ActiveRule::new(rule, RuleSource::Config, fastrand::u64(..)));
            kept.extend(new.into_iter().map(activate));
            *active = kept;
            Ok(())
        })?;
        *configured = wanted;
        Ok(())
    }

    /// Ends the rules with these names, or all if `names` is empty. Returns the names of the ended
    /// ones; the error is a name without a rule, and ends none.
    pub fn clear(&self, names: &[String]) -> Result<Vec<Arc<str>>, RuleError> {
        self.change(|active| {
            for name in names {
                if !active.iter().any(|known| *known.rule.name == **name) {
                    let known: Vec<&str> = active.iter().map(|known| &*known.rule.name).collect();
                    let reason = match known.len() {
                        0 => "is no active rule: there are none".to_owned(),
                        _ => format!("is no active rule; active are {}", known.join(", ")),
                    };
                    return Err(RuleError::new(format!("name {name:?}"), reason));
                }
            }
            let (ended, kept): (Vec<_>, Vec<_>) = std::mem::take(active)
                .into_iter()
                .partition(|known| names.is_empty() || names.iter().any(|name| **name == *known.rule.name));
            *active = kept;
            end_others(&ended, &[]);
            Ok(ended.iter().map(|ended| ended.rule.name.clone()).collect())
        })
    }

    /// Returns the active rules.
    #[must_use]
    pub fn list(&self) -> Vec<FaultStatus> {
        let now = Instant::now();
        let index = self.index();
        let active = index.rules.iter().filter(|active| active.is_active(now));
        active
            .map(|active| {
                let (hits, calls) = active.hits();
                FaultStatus {
                    name: active.rule.name.to_string(),
                    rule: active.text.clone(),
                    source: active.source,
                    expires: active.expires.map(|(_, expires)| expires),
                    seed: active.seed,
                    hits,
                    calls,
                }
            })
            .collect()
    }

    /// Ends rules at the end of their lifetimes, for ever.
    pub async fn expire(self) {
        loop {
            let changed = self.0.changed.notified();
            let index = self.index();
            let expiries = index.rules.iter().filter_map(|active| active.expires.map(|(expires, _)| expires));
            let next = expiries.min();
            drop(index);
            tokio::select! {
                () = async { match next { Some(next) => sleep_until(next).await, None => std::future::pending().await } } => {}
                () = changed => continue,
            }
            let now = Instant::now();
            let expired = self.change(|active| {
                let (kept, expired): (Vec<_>, Vec<_>) =
                    std::mem::take(active).into_iter().partition(|active| active.is_active(now));
                *active = kept;
                end_others(&expired, &[]);
                Ok::<_, RuleError>(())
            });
            debug_assert!(expired.is_ok(), "the change has no error");
        }
    }

    /// Returns the view of the node, once the rules are connected.
    pub(super) fn node(&self) -> Option<&NodeView> {
        self.0.node.get()
    }

    /// Changes the rules. An error changes nothing.
    fn change<T, E>(&self, change: impl FnOnce(&mut Vec<Arc<ActiveRule>>) -> Result<T, E>) -> Result<T, E> {
        let mut index = self.0.index.write().unwrap_or_else(PoisonError::into_inner);
        let mut rules = index.rules.clone();
        let result = change(&mut rules)?;
        self.0.has_rules.store(!rules.is_empty(), Ordering::Relaxed);
        *index = Arc::new(RuleIndex::new(rules));
        drop(index);
        self.0.changed.notify_one();
        Ok(result)
    }

    fn index(&self) -> Arc<RuleIndex> {
        self.0.index.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Ends the rules that are not among the kept ones: calls that they hold are forwarded.
fn end_others(rules: &[Arc<ActiveRule>], kept: &[Arc<ActiveRule>]) {
    for rule in rules.iter().filter(|rule| !kept.iter().any(|kept| Arc::ptr_eq(kept, rule))) {
        rule.ended.cancel();
        info!(name = &*rule.rule.name, hits = rule.hits().0, "fault rule ended");
    }
}

impl CallPolicy for FaultRules {
    fn interceptor(&self, info: &Arc<CallInfo>) -> Option<Box<dyn Interceptor>> {
        if !self.0.has_rules.load(Ordering::Relaxed) {
            return None;
        }
        let MethodName::Known(method) = info.method else { return None };
        let index = self.index();
        let rules = index.by_method.get(method.name())?;
        let peer = info.peer.as_deref();
        let is_own = peer.is_some_and(Peer::is_this_process);
        if is_own && !rules.selects_own_calls {
            return None;
        }
        let few = Some(&rules.rules).filter(|rules| rules.len() <= FEW_RULES);
        if few.is_some_and(|rules| !rules.iter().any(|active| active.rule.matches.admits(peer))) {
            return None;
        }
        Some(Box::new(FaultInterceptor { rules: self.clone(), index, method, info: info.clone() }))
    }

    fn refuses(&self, peer: Option<&Peer>) -> bool {
        if !self.0.has_rules.load(Ordering::Relaxed) {
            return false;
        }
        let index = self.index();
        let now = Instant::now();
        let client = peer.and_then(|peer| peer.program.clone()).unwrap_or_default();
        // Each rule counts the connection, whether or not another refuses it.
        let refusing = index.refusing.iter().filter(|active| active.rule.matches.admits(peer));
        refusing.filter(|active| !active.occur(&client, 0, now).is_empty()).count() > 0
    }
}

impl RuleIndex {
    fn new(rules: Vec<Arc<ActiveRule>>) -> Self {
        let mut index = Self::default();
        for active in &rules {
            if active.rule.refuses_connections() {
                index.refusing.push(active.clone());
                continue;
            }
            for method in active.rule.matches.methods() {
                let of_method = index.by_method.entry(method.name()).or_default();
                of_method.rules.push(active.clone());
                of_method.selects_own_calls |= active.rule.matches.selects_own_calls();
            }
        }
        Self { rules, ..index }
    }

    /// Returns the rules that may select calls to a method.
    pub(super) fn of_method(&self, method: Method) -> &[Arc<ActiveRule>] {
        self.by_method.get(method.name()).map_or(&[], |rules| &rules.rules)
    }

    /// Returns the rules for a method whose selector admits a target. The result for an object is
    /// cached, because there may be thousands of rules.
    pub(super) fn selected(&self, method: Method, target: &Target) -> Arc<[Arc<ActiveRule>]> {
        let Some(of_method) = self.by_method.get(method.name()) else { return Arc::new([]) };
        let select = || {
            let rules = of_method.rules.iter();
            let admits = |active: &&Arc<ActiveRule>| {
                active.rule.matches.selector.matches_names(target.names(), |key| target.label(key))
            };
            rules.filter(admits).cloned().collect()
        };
        let Some(id) = target.object_id() else { return select() };
        let mut cache = of_method.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.get(id)
            && same(cached.sandbox.as_ref(), target.sandbox.as_ref())
            && same(cached.container.as_ref(), target.container.as_ref())
            && target.is_cacheable()
        {
            return cached.rules.clone();
        }
        let rules: Arc<[_]> = select();
        if target.is_cacheable() {
            if cache.len() >= MAX_CACHED {
                cache.clear();
            }
            let (sandbox, container) = (target.sandbox.clone(), target.container.clone());
            cache.insert(id.to_owned(), CachedSelection { sandbox, container, rules: rules.clone() });
        }
        rules
    }
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
