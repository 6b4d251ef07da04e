//! The active rules by method, and the rules that select an object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::active::ActiveRule;
use super::command_pattern::CommandPattern;
use super::target::Target;
use crate::cri::Method;
use crate::inventory::{Container, Sandbox};

/// Maximum number of objects for which the rules that select them are cached.
const MAX_CACHED: usize = 10_000;

/// The active rules by method.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    rules: Vec<Arc<ActiveRule>>,
    /// The different patterns of commands.
    patterns: Arc<[CommandPattern]>,
    by_method: HashMap<&'static str, MethodRules>,
    /// Rules that refuse connections.
    refusing: Vec<Arc<ActiveRule>>,
}

/// The rules that may select calls to a method.
#[derive(Debug, Default)]
pub(super) struct MethodRules {
    pub(super) rules: Vec<MethodRule>,
    /// Whether a rule selects the calls of probeshim itself.
    pub(super) selects_own_calls: bool,
    /// Whether a rule selects the probes of a type.
    pub(super) selects_probes: bool,
    cache: Mutex<HashMap<String, CachedSelection>>,
}

/// A rule that may select calls to a method.
#[derive(Clone, Debug)]
pub(super) struct MethodRule {
    pub(super) active: Arc<ActiveRule>,
    /// Place of the pattern of its command among all patterns; `None` if it has none.
    pub(super) pattern: Option<usize>,
}

/// The rules that select an object, as long as the object does not change.
#[derive(Debug)]
struct CachedSelection {
    sandbox: Option<Arc<Sandbox>>,
    container: Option<Arc<Container>>,
    rules: Arc<[MethodRule]>,
}

impl RuleIndex {
    /// Creates the index of rules.
    pub(super) fn new(rules: Vec<Arc<ActiveRule>>) -> Self {
        let mut index = Self::default();
        let (mut patterns, mut places) = (Vec::new(), HashMap::new());
        for active in &rules {
            if active.rule.refuses_connections() {
                index.refusing.push(active.clone());
                continue;
            }
            let pattern = active.rule.matches.command.as_ref().map(|pattern| {
                *places.entry(pattern.id()).or_insert_with(|| {
                    patterns.push(pattern.clone());
                    patterns.len() - 1
                })
            });
            for method in active.rule.matches.methods() {
                let of_method = index.by_method.entry(method.name()).or_default();
                of_method.rules.push(MethodRule { active: active.clone(), pattern });
                of_method.selects_probes |= active.rule.matches.selects_probes();
                of_method.selects_own_calls |= active.rule.matches.selects_own_calls();
            }
        }
        Self { rules, patterns: patterns.into(), ..index }
    }

    /// Returns all rules.
    pub(super) fn rules(&self) -> &[Arc<ActiveRule>] {
        &self.rules
    }

    /// Returns the different patterns of commands.
    pub(super) fn patterns(&self) -> &Arc<[CommandPattern]> {
        &self.patterns
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
    pub(super) fn selected(&self, method: Method, target: &Target) -> Arc<[MethodRule]> {
        let Some(of_method) = self.by_method.get(method.name()) else { return Arc::new([]) };
        let select = || {
            let rules = of_method.rules.iter();
            let admits = |rule: &&MethodRule| {
                rule.active.rule.matches.selector.matches_names(target.names(), |key| target.label(key))
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
