//! Decides on one call: finds what it is about, and applies the rules that select it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::active::ActiveRule;
use super::effects::AppliedAction;
use super::rules::{FaultRules, NodeView, RuleIndex};
use super::target::{RequestNames, Target};
use crate::cri::Method;
use crate::manifest::ExecPurpose;
use crate::relay::{CallInfo, Decision, Interception, Interceptor};

/// The interceptor of a call to a method for which there are rules.
#[derive(Debug)]
pub(super) struct FaultInterceptor {
    pub(super) rules: FaultRules,
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
        let target = match self.rules.node() {
            Some(node) => find(node, names, self.needs_object()).await,
            None => Target::unknown(names),
        };
        let (now, key) = (Instant::now(), target.counter_key());
        let mut call = Interception::default();
        for active in &*self.index.selected(self.method, &target) {
            if !self.selects(active, &target) {
                continue;
            }
            for (action, random) in active.occur(&key, self.info.id, now) {
                let (rule, place) = (&active.rule.name, active.rule.when.place);
                let applied = AppliedAction { rule, action, place, ended: &active.ended, random };
                applied.apply(self.method, request.as_ref(), &mut call);
            }
        }
        call
    }

    /// Returns whether a rule depends on the pod or container of the call.
    fn needs_object(&self) -> bool {
        self.index.of_method(self.method).iter().any(|active| active.rule.matches.needs_object())
    }

    /// Returns whether a rule whose selector admits the target selects the call.
    fn selects(&self, active: &ActiveRule, target: &Target) -> bool {
        let matches = &active.rule.matches;
        matches.admits(self.info.peer.as_deref())
            && matches
                .command
                .as_ref()
                .is_none_or(|regex| target.command_line().is_some_and(|line| regex.is_match(&line)))
            && matches.probe.is_none_or(|probe| {
                self.rules.node().is_some_and(|node| is_probe(node, target, probe.into()))
            })
    }
}

/// Finds the objects that a request names. Objects that clients have just created are known once
/// the calls that created them are processed.
async fn find(node: &NodeView, names: RequestNames, is_needed: bool) -> Target {
    let found = Target::find(names, &node.inventory.borrow());
    match found {
        Ok(target) => target,
        Err(names) if is_needed && node.calls.flush().await => {
            let found = Target::find(names, &node.inventory.borrow());
            found.unwrap_or_else(Target::unknown)
        }
        Err(names) => Target::unknown(names),
    }
}

/// Returns whether an `ExecSync` has the command and timeout of a probe of its container.
fn is_probe(node: &NodeView, target: &Target, purpose: ExecPurpose) -> bool {
    let (Some(sandbox), Some(container)) = (&target.sandbox, &target.container) else { return false };
    let Some((command, timeout)) = target.exec() else { return false };
    let known = node.specs.borrow().known_execs(sandbox, container);
    known
        .iter()
        .any(|known| known.purpose == purpose && known.command == command && known.timeout_seconds == timeout)
}
