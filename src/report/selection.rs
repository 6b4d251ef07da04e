//! Pods to which a report is limited.

use serde::Serialize;

use crate::history::timeline::Period;
use crate::lint::LintSubject;
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
        period.probes.retain(|probe| {
            let (namespace, name) = (probe.series.namespace.clone(), probe.series.pod.clone());
            let pod = PodRef { namespace: Some(namespace), name: Some(name), ..PodRef::default() };
            self.has(Some(&pod))
        });
        period.calls.retain(|record| self.has(record.call.pod.as_deref()));
        period.events.retain(|event| {
            let (namespace, name) = (event.namespace.clone(), event.pod.clone());
            self.has(Some(&PodRef { namespace, name, ..PodRef::default() }))
        });
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
