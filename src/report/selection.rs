//! Pods to which a report is limited.

use serde::Serialize;

use crate::history::timeline::{Period, ProbeSeries};
use crate::lint::{LintFinding, LintSubject, lint, lint_selected};
use crate::object_ref::PodRef;

/// Pods to which a report is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// Namespace; null for all.
    pub namespace: Option<String>,
    /// Name of a pod, or `NAMESPACE/NAME`; null for all.
    pub pod: Option<String>,
}

impl Selection {
    /// Removes all that is not about the selected pods. Gaps and facts about the node stay.
    pub fn apply(&self, period: &mut Period) {
        if *self == Self::default() {
            return;
        }
        period.probes.retain(|probe| self.has_series(&probe.series));
        period.calls.retain(|record| self.has(record.call.pod.as_deref()));
        period.events.retain(|event| self.has_subject(&LintSubject::for_event(event)));
    }

    /// Returns what is wrong with the selected pods, the worst first. All pods are examined,
    /// because one can be slow because of others.
    #[must_use]
    pub fn lint(&self, period: &Period) -> Vec<LintFinding> {
        if *self == Self::default() {
            return lint(period);
        }
        lint_selected(period, |subject| self.has_subject(subject))
    }

    /// Returns whether a probe, or an event, of a period is selected.
    #[must_use]
    pub fn has_any(&self, period: &Period) -> bool {
        period.probes.iter().any(|probe| self.has_series(&probe.series))
            || period.events.iter().any(|event| self.has_subject(&LintSubject::for_event(event)))
    }

    /// Returns whether the pod of a probe is selected.
    #[must_use]
    pub fn has_series(&self, series: &ProbeSeries) -> bool {
        let (namespace, name) = (Some(series.namespace.clone()), Some(series.pod.clone()));
        self.has(Some(&PodRef { namespace, name, ..PodRef::default() }))
    }

    /// Returns whether the object of a finding is selected. The node is not, if pods are.
    #[must_use]
    pub fn has_subject(&self, subject: &LintSubject) -> bool {
        let (namespace, name) = (subject.namespace.clone(), subject.pod.clone());
        self.has(Some(&PodRef { namespace, name, ..PodRef::default() }))
    }

    fn has(&self, pod: Option<&PodRef>) -> bool {
        let Self { namespace, pod: name } = self;
        let its_namespace = pod.and_then(|pod| pod.namespace.as_deref());
        namespace.as_deref().is_none_or(|namespace| its_namespace == Some(namespace))
            && name.as_deref().is_none_or(|name| pod.is_some_and(|pod| pod.is_named(name)))
    }
}
