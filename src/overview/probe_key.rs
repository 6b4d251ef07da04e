//! Identifies the probe of a row.

use serde::Serialize;

use crate::admin::api::{Call, CallsQuery};
use crate::execsync::CallRecord;
use crate::history::timeline::ProbeSeries;
use crate::lint::LintSubject;
use crate::object_ref::pod_name;
use crate::report::ProbeReport;

/// Identifies a probe, and the program that makes its attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ProbeKey {
    /// Namespace of the pod; empty if it is unknown.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Type of the probe, see [`ProbeSeries::probe`].
    #[serde(rename = "type")]
    pub probe: String,
    /// Name of the program that makes the attempts.
    pub prober: String,
}

impl ProbeKey {
    /// Returns the key of a probe of a report.
    #[must_use]
    pub fn from_report(probe: &ProbeReport) -> Self {
        Self {
            namespace: probe.namespace.clone(),
            pod: probe.pod.clone(),
            container: probe.container.clone(),
            probe: probe.kind.clone(),
            prober: probe.prober.clone(),
        }
    }

    /// Returns the key of the probe of an ExecSync; `None` for other calls and for hooks.
    pub(crate) fn from_call(call: &Call) -> Option<Self> {
        let record = CallRecord::try_from(call.clone()).ok()?;
        ProbeSeries::of_call(&record).as_ref().map(Self::from)
    }

    /// Returns `NAMESPACE/POD`, or the pod without a namespace.
    #[must_use]
    pub fn pod_name(&self) -> String {
        pod_name(&self.namespace, &self.pod)
    }

    /// Returns whether a finding is about this probe, its container or its pod.
    pub(crate) fn is_subject(&self, subject: &LintSubject) -> bool {
        let has =
            |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
        subject.pod.as_ref() == Some(&self.pod)
            && has(&subject.namespace, &self.namespace)
            && has(&subject.container, &self.container)
            && has(&subject.probe, &self.probe)
            && has(&subject.prober, &self.prober)
    }

    /// Returns the query for the calls of the probe. A probe that has several types has no single
    /// name in a query, so the calls are then those of the container.
    pub(crate) fn calls_query(&self) -> CallsQuery {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        CallsQuery {
            method: Some("ExecSync".to_owned()),
            pod: text(&self.pod_name()),
            container: text(&self.container),
            probe: text(&self.probe).filter(|probe| !probe.contains(" or ")),
            peer: text(&self.prober).filter(|prober| prober != "unknown"),
            ..CallsQuery::default()
        }
    }
}

impl From<&ProbeSeries> for ProbeKey {
    fn from(series: &ProbeSeries) -> Self {
        Self {
            namespace: series.namespace.clone(),
            pod: series.pod.clone(),
            container: series.container.clone(),
            probe: series.probe.clone(),
            prober: series.prober.name().to_owned(),
        }
    }
}
