//! Decides on one call: finds what it is about, and applies the policies that select it, in the
//! order from the client to the runtime: pauses, faults, coalescing, limits.

use std::cell::LazyCell;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::active::ActiveRule;
use super::admission::ExecPolicies;
use super::effects::AppliedAction;
use super::index::RuleIndex;
use super::metrics::FaultMetrics;
use super::node_view::NodeView;
use super::pause::PAUSE;
use super::target::{RequestNames, Target};
use crate::cri::Method;
use crate::relay::{CallInfo, Decision, Interception, Interceptor, MarkSet};

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
        let names = RequestNames::read(self.method, request.as_deref().unwrap_or_default());
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
        let mut call = faults.map_or_else(Interception::default, |faults| {
            self.faulty(faults, request.as_ref(), &target, marks)
        });
        let admission = self.exec.and_then(|exec| {
            let is_changed = call.request.is_some() || !call.after.is_empty() || !call.messages.is_empty();
            exec.admission(request, target, self.node, self.info, !is_changed)
        });
        call.next = admission.map(|admission| Box::new(admission) as Box<dyn Interceptor>);
        call
    }

    /// Returns the effects of the rules that select the call.
    fn faulty(
        &self,
        faults: &SelectedFaults,
        request: Option<&Bytes>,
        target: &Target,
        marks: &MarkSet,
    ) -> Interception {
        let now = Instant::now();
        let mut call = Interception::default();
        let key = LazyCell::new(|| target.counter_key());
        let command_line = LazyCell::new(|| target.command_line());
        for active in &*faults.index.selected(self.method, target) {
            if !self.selects(active, target, &command_line) {
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

    /// Returns whether a rule whose selector admits the target selects the call.
    fn selects(
        &self,
        active: &ActiveRule,
        target: &Target,
        command_line: &impl Deref<Target = Option<String>>,
    ) -> bool {
        let matches = &active.rule.matches;
        matches.admits(self.info.peer.as_deref())
            && matches
                .command
                .as_ref()
                .is_none_or(|regex| command_line.as_ref().is_some_and(|line| regex.is_match(line)))
            && matches.probe.is_none_or(|probe| {
                self.node.as_ref().is_some_and(|node| node.is_probe(target, probe.into()))
            })
    }
}
