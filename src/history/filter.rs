//! Selection of the calls to be listed.

use std::sync::Arc;
use std::time::SystemTime;

use crate::cri::MethodName;
use crate::execsync::{CallRecord, ProbeMatch};
use crate::object_ref::{ContainerRef, PodRef};

/// Conditions for the calls to be listed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The method of the call.
    pub method: Option<MethodName>,
    /// Earliest end of the call.
    pub since: Option<SystemTime>,
    /// The pod of the call: its name, `NAMESPACE/NAME`, its uid, or a prefix of its sandbox's id.
    pub pod: Option<String>,
    /// The container of the call: its name, or a prefix of its id.
    pub container: Option<String>,
    /// The probe or hook of an `ExecSync`: `liveness`, `preStop`, …, `ambiguous`, `probe` for
    /// inferred probes, or `unknown`.
    pub probe: Option<String>,
}

/// Number and order of the calls to be listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All calls, in the order of their ends.
    #[default]
    All,
    /// The last calls, in the order of their ends.
    Last(usize),
    /// The slowest calls, the slowest first.
    Slowest(usize),
}

impl Filter {
    /// Returns whether a call matches the filter.
    #[must_use]
    pub fn matches(&self, record: &CallRecord) -> bool {
        let call = &record.call;
        self.method.as_ref().is_none_or(|method| call.method == *method)
            && self.since.is_none_or(|since| call.start + call.duration >= since)
            && self
                .pod
                .as_ref()
                .is_none_or(|wanted| call.pod.as_deref().is_some_and(|pod| is_pod(pod, wanted)))
            && self.container.as_ref().is_none_or(|wanted| {
                call.container.as_deref().is_some_and(|container| is_container(container, wanted))
            })
            && self.probe.as_ref().is_none_or(|wanted| is_probe(record, wanted))
    }
}

fn is_pod(pod: &PodRef, wanted: &str) -> bool {
    let is_named = |name: &Option<String>| name.as_deref() == Some(wanted);
    let whole_name = || Some(format!("{}/{}", pod.namespace.as_ref()?, pod.name.as_ref()?));
    is_named(&pod.name)
        || is_named(&pod.uid)
        || is_named(&whole_name())
        || has_prefix(pod.id.as_deref(), wanted)
}

fn is_container(container: &ContainerRef, wanted: &str) -> bool {
    container.name.as_deref() == Some(wanted) || has_prefix(container.id.as_deref(), wanted)
}

/// Returns whether `wanted` is a prefix of an id. It has at least four characters: a shorter text
/// is rather a name.
fn has_prefix(id: Option<&str>, wanted: &str) -> bool {
    wanted.len() >= 4 && id.is_some_and(|id| id.starts_with(wanted))
}

fn is_probe(record: &CallRecord, wanted: &str) -> bool {
    let label =
        record.analysis.as_ref().map(|insight| insight.identity.label().unwrap_or(ProbeMatch::UNKNOWN));
    label.is_some_and(|label| label.eq_ignore_ascii_case(wanted))
}

impl Selection {
    pub(super) fn select(self, mut calls: Vec<Arc<CallRecord>>) -> Vec<Arc<CallRecord>> {
        match self {
            Self::All => {}
            Self::Last(count) => drop(calls.drain(..calls.len().saturating_sub(count))),
            Self::Slowest(count) => {
                calls.sort_by_key(|record| std::cmp::Reverse(record.call.duration));
                calls.truncate(count);
            }
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tap::Call;

    #[test]
    fn filters_match_pods_and_containers_by_name_or_id() {
        let text = |text: &str| Some(text.to_owned());
        let pod =
            PodRef { id: text("5a4db0x"), namespace: text("shop"), name: text("web-0"), uid: text("u-1") };
        let container = ContainerRef { id: text("c0ffee00"), name: text("web"), attempt: None };
        let call = Call {
            pod: Some(pod.into()),
            container: Some(container.into()),
            ..Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO)
        };
        let record = CallRecord::unanalyzed(call, None, None);
        for (pod, lets_through) in [
            ("web-0", true),
            ("shop/web-0", true),
            ("u-1", true),
            ("5a4d", true),
            ("5a", false),
            ("web", false),
        ] {
            let filter = Filter { pod: text(pod), ..Filter::default() };
            assert_eq!(filter.matches(&record), lets_through, "{pod}");
        }
        for (container, lets_through) in [("web", true), ("c0ffee", true), ("coffee", false), ("we", false)] {
            let filter = Filter { container: text(container), ..Filter::default() };
            assert_eq!(filter.matches(&record), lets_through, "{container}");
        }
        let probe = Filter { probe: text("liveness"), ..Filter::default() };
        assert!(!probe.matches(&record));
    }
}
