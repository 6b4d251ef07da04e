//! Why a list of the page is empty.

use std::collections::BTreeSet;

use super::query::PageSelection;
use crate::admin::Admin;
use crate::execsync::CallRecord;
use crate::history::json::Event;
use crate::history::timeline::Period;
use crate::object_ref::pod_name;

/// Maximum number of pods that are named.
const MAX_NAMES: usize = 12;

/// Names of the pods that a list could have been about.
#[derive(Debug, Default)]
pub(super) struct KnownPods(BTreeSet<String>);

impl KnownPods {
    /// Returns the pods of the node now, if the period ends now.
    pub(super) fn current(admin: &Admin, selection: &PageSelection) -> Self {
        let pods = if selection.is_live { admin.pods(true) } else { Vec::new() };
        let names = pods.into_iter().map(|pod| {
            let namespace = pod.namespace.unwrap_or_default();
            pod_name(&namespace, &pod.name.unwrap_or(pod.id))
        });
        Self(names.collect())
    }

    /// Adds the pods of a period.
    pub(super) fn add_period(&mut self, period: &Period) {
        self.0.extend(period.probes.iter().map(|probe| pod_name(&probe.series.namespace, &probe.series.pod)));
        for record in &period.calls {
            self.add_call(record);
        }
        self.0.extend(period.events.iter().filter_map(|Event { namespace, pod, .. }| {
            Some(pod_name(namespace.as_deref().unwrap_or_default(), pod.as_deref()?))
        }));
    }

    /// Adds the pod of a call.
    pub(super) fn add_call(&mut self, record: &CallRecord) {
        let pod = record.call.pod.as_deref();
        self.0.extend(pod.and_then(|pod| {
            Some(pod_name(pod.namespace.as_deref().unwrap_or_default(), pod.name.as_deref()?))
        }));
    }

    /// Returns why there are none of these things, such as `calls`.
    pub(super) fn empty_reason(&self, things: &str, is_filtered: bool) -> String {
        if !is_filtered {
            return format!("There are no {things} in this period.");
        }
        let names: Vec<&str> = self.0.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let shown = names[..names.len().min(MAX_NAMES)].join(", ");
        match names.len().saturating_sub(MAX_NAMES) {
            _ if names.is_empty() => format!("No {things} match."),
            0 => format!("No {things} match; the pods are {shown}."),
            more => format!("No {things} match; the pods are {shown} and {more} more."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_names_the_pods_that_the_filter_could_select() {
        let reason = |pods: usize, is_filtered: bool| {
            let pods = (0..pods).map(|number| pod_name("shop", &format!("web-{number:02}")));
            KnownPods(pods.collect()).empty_reason("calls", is_filtered)
        };
        assert_eq!(reason(2, false), "There are no calls in this period.");
        assert_eq!(reason(0, true), "No calls match.");
        assert_eq!(reason(2, true), "No calls match; the pods are shop/web-00, shop/web-01.");
        assert!(reason(14, true).ends_with(", shop/web-11 and 2 more."), "{}", reason(14, true));
    }
}
