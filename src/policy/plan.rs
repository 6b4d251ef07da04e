//! The recorded calls that a rule would have hit.

use std::collections::HashMap;

use super::active::Counter;
use super::call_match::CallMatch;
use super::command_match::CommandLine;
use super::fault::FaultRule;
use super::target::counter_key;
use crate::cri::MethodName;
use crate::inventory::Inventory;
use crate::probe::Selector;
use crate::tap::Call;

/// A recorded call, as a plan sees it.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall<'a> {
    /// The call.
    pub call: &'a Call,
    /// Types of the probes and hooks to which an `ExecSync` is attributed.
    pub probes: &'a [&'static str],
}

/// Result of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Ids of the calls that the rule would have hit, with its actions in the one-line form.
    pub hits: Vec<(u64, Vec<String>)>,
    /// Number of calls for which it is unknown, because their record lacks the pod, its labels or
    /// the image, and the object is no longer on the node.
    pub unknown: u64,
}

impl Plan {
    /// Returns the calls that a rule would have hit if it had been activated at the first call. The
    /// calls are in the order of their ids. The inventory has the labels and images that records
    /// lack. A `seed` makes the choices of the rule if it has none.
    #[must_use]
    pub fn new<'a>(
        rule: &FaultRule,
        seed: u64,
        calls: impl IntoIterator<Item = PlannedCall<'a>>,
        inventory: &Inventory,
    ) -> Self {
        let seed = rule.when.seed.unwrap_or(seed);
        let (mut plan, mut counters) = (Self::default(), HashMap::<String, Counter>::new());
        let mut first = None;
        for planned in calls {
            let call = planned.call;
            let since = call.start.duration_since(*first.get_or_insert(call.start)).unwrap_or_default();
            if !rule.when.is_open(since) || rule.lifetime.is_some_and(|lifetime| since >= lifetime) {
                continue;
            }
            match selects(&rule.matches, &planned, inventory) {
                None => plan.unknown += 1,
                Some(false) => {}
                Some(true) => {
                    let key = key_of(call);
                    let actions = counters.entry(key.clone()).or_default().occur(rule, seed, &key);
                    if !actions.is_empty() {
                        let actions = actions.iter().map(|(action, _)| action.to_string()).collect();
                        plan.hits.push((call.id, actions));
                    }
                }
            }
        }
        plan
    }
}

/// Returns whether a rule selects a recorded call; `None` if it is unknown.
fn selects(matches: &CallMatch, planned: &PlannedCall<'_>, inventory: &Inventory) -> Option<bool> {
    let call = planned.call;
    let MethodName::Known(method) = call.method else { return Some(false) };
    if !matches.methods().any(|known| known == method) || !matches.admits(call.peer.as_deref()) {
        return Some(false);
    }
    let needs_object = matches.command.is_some() || matches.selector != Selector::default();
    if needs_object && call.pod.is_none() && call.container.is_none() && method.names_object() {
        // Requests of this method are not decoded for records.
        return None;
    }
    if let Some(pattern) = &matches.command {
        match &call.exec {
            // The record has only the beginning of a long command.
            Some(exec) if exec.truncated => return None,
            Some(exec) if CommandLine::new(Some(&exec.command)).matches(pattern) == Some(true) => {}
            _ => return Some(false),
        }
    }
    if matches.probe.is_some_and(|probe| !planned.probes.contains(&probe.name())) {
        return Some(false);
    }
    let id = call.container.as_ref().and_then(|container| container.id.as_deref());
    let container = id.and_then(|id| inventory.container(id));
    let sandbox_id = call.pod.as_ref().and_then(|pod| pod.id.as_deref());
    let sandbox = container
        .and_then(|container| inventory.sandbox_of(container))
        .or_else(|| inventory.sandbox(sandbox_id?));
    let pod = call.pod.as_deref();
    let names = [
        pod.and_then(|pod| pod.namespace.as_deref()),
        pod.and_then(|pod| pod.name.as_deref()),
        call.container.as_ref().and_then(|container| container.name.as_deref()),
        container.map(|container| container.image.as_str()),
    ];
    let selector = &matches.selector;
    let lacks = [&selector.namespace, &selector.pod, &selector.container, &selector.image];
    let is_about_object = id.is_some() || pod.is_some();
    let lacks_name = lacks.into_iter().zip(names).any(|(wanted, name)| wanted.is_some() && name.is_none());
    if is_about_object && (lacks_name || (!selector.labels.is_empty() && sandbox.is_none())) {
        return None;
    }
    Some(selector.matches_names(names, |key| sandbox.and_then(|sandbox| sandbox.labels.get(key))))
}

/// Returns the text by which an active rule would count the calls of a container.
fn key_of(call: &Call) -> String {
    let (pod, container) = (call.pod.as_deref(), call.container.as_deref());
    let container_id = container.and_then(|container| container.id.as_deref());
    let names = [
        pod.and_then(|pod| pod.namespace.as_deref()),
        pod.and_then(|pod| pod.name.as_deref()),
        container.and_then(|container| container.name.as_deref()),
    ];
    counter_key(names, container_id.or_else(|| pod?.id.as_deref()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::object_ref::{ContainerRef, PodRef};
    use crate::relay::Peer;
    use crate::tap::ExecCall;

    fn exec(id: u64, pod: &str, command: &str) -> Call {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(id);
        let mut call =
            Call::sample(id, "/runtime.v1.RuntimeService/ExecSync", start, Duration::from_millis(5));
        call.pod = Some(Arc::new(PodRef {
            id: Some("5a".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some(pod.to_owned()),
            uid: None,
        }));
        call.container = Some(Arc::new(ContainerRef {
            id: Some(format!("c-{pod}")),
            name: Some("main".to_owned()),
            attempt: Some(0),
        }));
        call.peer = Some(Arc::new(Peer { uid: 0, pid: Some(1), program: Some("kubelet".to_owned()) }));
        call.exec = Some(Box::new(ExecCall { command: vec![command.to_owned()], ..ExecCall::default() }));
        call
    }

    fn plan(text: &str, calls: &[Call]) -> (Vec<u64>, u64) {
        let rule = FaultRule::parse("test", text, None, false).unwrap();
        let calls = calls.iter().map(|call| PlannedCall { call, probes: &["liveness"] });
        let plan = Plan::new(&rule, 0, calls, &Inventory::default());
        (plan.hits.into_iter().map(|(id, _)| id).collect(), plan.unknown)
    }

    #[test]
    fn a_plan_has_the_calls_that_a_rule_would_have_hit() {
        let calls: Vec<Call> =
            (1..=6).map(|id| exec(id, if id % 2 == 0 { "web-2" } else { "web-1" }, "true")).collect();
        assert_eq!(plan("ExecSync pod=shop/web-1: hang", &calls), (vec![1, 3, 5], 0));
        assert_eq!(plan("ExecSync pod=shop/*: 1*off -> 1*hang -> off", &calls), (vec![3, 4], 0));
        assert_eq!(plan("ExecSync probe=liveness every=3: hang", &calls), (vec![5, 6], 0));
        assert_eq!(plan("ExecSync probe=startup: hang", &calls), (vec![], 0));
        assert_eq!(plan("ExecSync from=2s to=4s: hang", &calls), (vec![3, 4], 0));
        assert_eq!(plan("ExecSync client=crictl: hang", &calls), (vec![], 0));
        assert_eq!(plan("ExecSync command=^t: hang", &calls).0.len(), 6);
        assert_eq!(plan("StopContainer: hang", &calls), (vec![], 0));
        let rule = FaultRule::parse("test", "ExecSync: hang", Some(Duration::from_secs(3)), false).unwrap();
        let planned = calls.iter().map(|call| PlannedCall { call, probes: &[] });
        assert_eq!(Plan::new(&rule, 0, planned, &Inventory::default()).hits.len(), 3, "the lifetime counts");
    }

    #[test]
    fn a_plan_counts_the_calls_for_which_the_record_lacks_an_answer() {
        let pull =
            Call::sample(3, "/runtime.v1.ImageService/PullImage", SystemTime::UNIX_EPOCH, Duration::ZERO);
        assert_eq!(plan("PullImage image=busybox*: hang", std::slice::from_ref(&pull)), (vec![], 1));
        assert_eq!(plan("PullImage: hang", std::slice::from_ref(&pull)), (vec![3], 0));
        // The request of a kubelet names the pod, and the record lacks the image.
        let of_pod = Call { pod: exec(3, "web-1", "").pod, ..pull };
        assert_eq!(plan("PullImage pod=shop/web-*: hang", std::slice::from_ref(&of_pod)), (vec![3], 0));
        assert_eq!(plan("PullImage image=busybox*: hang", &[of_pod]), (vec![], 1));
        let list =
            Call::sample(4, "/runtime.v1.RuntimeService/Status", SystemTime::UNIX_EPOCH, Duration::ZERO);
        assert_eq!(plan("Status pod=web-1: hang", &[list]), (vec![], 0));
        let calls = [exec(1, "web-1", "true")];
        assert_eq!(plan("ExecSync image=busybox*: hang", &calls), (vec![], 1));
        assert_eq!(plan("ExecSync label.app=web: hang", &calls), (vec![], 1));
        let mut long = exec(2, "web-1", "true");
        long.exec = Some(Box::new(ExecCall { truncated: true, ..ExecCall::default() }));
        assert_eq!(plan("ExecSync command=x$: hang", &[long]), (vec![], 1));
    }
}
