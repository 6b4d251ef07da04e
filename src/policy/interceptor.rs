//! Decides on one call: finds what it is about, and applies the policies that select it, in the
//! order from the client to the runtime: pauses, faults, coalescing, limits.

use std::cell::LazyCell;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::active::ActiveRule;
use super::admission::ExecPolicies;
use super::command_match::Matching;
use super::effects::AppliedAction;
use super::index::{MethodRule, RuleIndex};
use super::metrics::FaultMetrics;
use super::node_view::NodeView;
use super::offload::offload;
use super::pause::PAUSE;
use super::target::{RequestNames, Target};
use crate::cri::Method;
use crate::relay::{CallInfo, Decision, Interception, Interceptor, MarkSet};

/// Maximum size in bytes of a request that a thread of the relay reads.
const MAX_MESSAGE_AT_ONCE: usize = 16 << 10;

/// Number of rules that apply to a call before other calls have their turn.
const RULES_AT_ONCE: usize = 256;

/// The interceptor of a call that policies may affect.
#[derive(Debug)]
pub(super) struct PolicyInterceptor {
    pub(super) node: Option<Arc<NodeView>>,
    pub(super) method: Method,
    pub(super) info: Arc<CallInfo>,
    pub(super) faults: Option<SelectedFaults>,
    /// The policies of an `ExecSync`.
    pub(super) exec: Option<ExecPolicies>,
}

/// The rules for the method of a call.
#[derive(Debug)]
pub(super) struct SelectedFaults {
    pub(super) metrics: FaultMetrics,
    pub(super) index: Arc<RuleIndex>,
}

impl Interceptor for PolicyInterceptor {
    fn decide(self: Box<Self>, request: Option<Bytes>, marks: &MarkSet) -> Decision<'_> {
        Box::pin(async move { self.interception(request, marks).await })
    }
}

impl PolicyInterceptor {
    async fn interception(self, request: Option<Bytes>, marks: &MarkSet) -> Interception {
        let names = self.names(request.as_ref()).await;
        let needs_object =
            self.faults.is_some() || self.exec.as_ref().is_some_and(ExecPolicies::needs_object);
        let target = match &self.node {
            Some(node) if needs_object => node.find(names).await,
            Some(node) => node.find_known(names),
            None => Target::new(names),
        };
        let paused = self.exec.as_ref().zip(self.node.as_deref());
        let paused =
            paused.and_then(|(exec, node)| exec.pauses.as_ref()?.response(&self.info, &target, node));
        if let Some(response) = paused {
            marks.add_policy(PAUSE);
            return Interception::respond(response);
        }
        let faults = self.faults.as_ref();
        let mut call = match faults {
            Some(faults) => self.faulty(faults, request.as_ref(), &target, marks).await,
            None => Interception::default(),
        };
        let admission = self.exec.and_then(|exec| {
            let is_changed = call.request.is_some() || !call.after.is_empty() || !call.messages.is_empty();
            exec.admission(request, target, self.node, self.info, !is_changed)
        });
        call.next = admission.map(|admission| Box::new(admission) as Box<dyn Interceptor>);
        call
    }

    /// Reads the names in the request, a large one on another thread: it may have many thousands of
    /// arguments. Rules need no command that is too long for a pattern.
    async fn names(&self, request: Option<&Bytes>) -> RequestNames {
        let Some(request) = request else { return RequestNames::default() };
        let method = self.method;
        if request.len() <= MAX_MESSAGE_AT_ONCE {
            return RequestNames::read(method, request);
        }
        let request = request.clone();
        let reads_command = method.name() != "ExecSync" || self.needs_command();
        let read = move || {
            if reads_command {
                RequestNames::read(method, &request)
            } else {
                RequestNames::read_without_command(&request)
            }
        };
        offload(None, read).await
    }

    /// Returns the effects of the rules that select the call.
    async fn faulty(
        &self,
        faults: &SelectedFaults,
        request: Option<&Bytes>,
        target: &Target,
        marks: &MarkSet,
    ) -> Interception {
        let mut call = Interception::default();
        let rules = faults.index.selected(self.method, target);

        // The command is compared with each pattern once, whatever the number of rules is.
        let mut needed: Vec<usize> = rules.iter().filter_map(|rule| rule.pattern).collect();
        needed.sort_unstable();
        needed.dedup();
        let matching = if needed.is_empty() {
            Matching::default()
        } else {
            let (command, patterns) = (target.command_line(), faults.index.patterns());
            command.matching(patterns, needed, target.object_id()).await
        };

        let (key, now) = (LazyCell::new(|| target.counter_key()), Instant::now());
        for (place, MethodRule { active, pattern }) in rules.iter().enumerate() {
            if place % RULES_AT_ONCE == RULES_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let is_match = pattern.map_or(Some(true), |place| matching.of(place));
            if is_match == Some(false) || !self.admits(active, target) {
                continue;
            }
            if is_match.is_none() {
                active.count_long_command();
                continue;
            }
            for (action, random) in active.occur(&key, Some(self.info.id), now) {
                let (rule, place) = (&active.rule.name, active.rule.when.place);
                let applied = AppliedAction { rule, action, place, ended: &active.ended, random };
                applied.apply(self.method, request, &mut call, marks);
                faults.metrics.add(action);
            }
        }
        call
    }

    /// Returns whether a policy or a rule compares the whole command with those of probes.
    fn needs_command(&self) -> bool {
        let rules = self.faults.as_ref().and_then(|faults| faults.index.for_method(self.method));
        self.exec.is_some() || rules.is_some_and(|rules| rules.selects_probes)
    }

    /// Returns whether a rule whose selector admits the target selects the call, if its command
    /// matches.
    fn admits(&self, active: &ActiveRule, target: &Target) -> bool {
        let matches = &active.rule.matches;
        matches.admits(self.info.peer.as_deref())
            && matches.probe.is_none_or(|probe| {
                self.node.as_ref().is_some_and(|node| node.is_probe(target, probe.into()))
            })
    }
}
