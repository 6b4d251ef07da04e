//! Decides on one call: finds what it is about, and applies the rules that select it.

use std::cell::LazyCell;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::active::ActiveRule;
use super::effects::AppliedAction;
use super::index::RuleIndex;
use super::metrics::FaultMetrics;
use super::node_view::NodeView;
use super::target::{RequestNames, Target};
use crate::cri::Method;
use crate::relay::{CallInfo, Decision, Interception, Interceptor};

/// The interceptor of a call to a method for which there are rules.
#[derive(Debug)]
pub(super) struct FaultInterceptor {
    pub(super) node: Option<Arc<NodeView>>,
    pub(super) metrics: FaultMetrics,
    pub(super) index: Arc<RuleIndex>,
    pub(super) method: Method,
    pub(super) info: Arc<CallInfo>,
}

impl Interceptor for FaultInterceptor {
    fn decide(self: Box<Self>, request: Option<Bytes>) -> Decision {
        Box::pin(async move { self.interception(request).await })
    }
}

impl FaultInterceptor {
    async fn interception(self, request: Option<Bytes>) -> Interception {
        let frame = request.as_deref().unwrap_or_default();
        let names = RequestNames::read(self.method, frame);
        let target = match &self.node {
            Some(node) => node.find(names).await,
            None => Target::new(names),
        };
        let (now, key) = (Instant::now(), target.counter_key());
        let mut call = Interception::default();
        let command_line = LazyCell::new(|| target.command_line());
        for active in &*self.index.selected(self.method, &target) {
            if !self.selects(active, &target, &command_line) {
                continue;
            }
            for (action, random) in active.occur(&key, Some(self.info.id), now) {
                let (rule, place) = (&active.rule.name, active.rule.when.place);
                let applied = AppliedAction { rule, action, place, ended: &active.ended, random };
                applied.apply(self.method, request.as_ref(), &mut call);
                self.metrics.add(action);
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
