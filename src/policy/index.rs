//! The active rules by method, and the rules that select an object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::active::ActiveRule;
use super::target::Target;
use crate::cri::Method;
use crate::inventory::{Container, Sandbox};

/// Maximum number of objects for which the rules that select them are cached.
const MAX_CACHED: usize = 10_000;

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
pub(super) struct MethodRules {
    pub(super) rules: Vec<Arc<ActiveRule>>,
    /// Whether a rule selects the calls of probeshim itself.
    pub(super) selects_own_calls: bool,
    cache: Mutex<HashMap<String, CachedSelection>>,
}

/// The rules that select an object, as long as the object does not change.
#[derive(Debug)]
struct CachedSelection {
    sandbox: Option<Arc<Sandbox>>,
    container: Option<Arc<Container>>,
    rules: Arc<[Arc<ActiveRule>]>,
}

impl RuleIndex {
    /// Creates the index of rules.
    pub(super) fn new(rules: Vec<Arc<ActiveRule>>) -> Self {
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

    /// Returns all rules.
    pub(super) fn rules(&self) -> &[Arc<ActiveRule>] {
        &self.rules
    }

    /// Returns the rules that refuse connections.
    pub(super) fn refusing(&self) -> &[Arc<ActiveRule>] {
        &self.refusing
    }

    /// Returns the rules that may select calls to a method, if there are any.
    pub(super) fn for_method(&self, method: Method) -> Option<&MethodRules> {
        self.by_method.get(method.name())
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
