//! Identifies the probe of a row.

use serde::Serialize;

use crate::admin::api::{Call, CallsQuery};
use crate::execsync::{CallRecord, ProbeMatch};
use crate::history::timeline::{LearnedExec, ProbeSeries};
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
    /// Type of the probe, see [`ProbeSeries::probe`]; of a command that belongs to no known probe
    /// the program with its arguments, see [`ProbeSeries::label`].
    #[serde(rename = "type")]
    pub probe: String,
    /// Name of the program that makes the attempts.
    pub prober: String,
    /// Command and timeout, if they belong to no known probe.
    pub learned: Option<LearnedExec>,
}

impl ProbeKey {
    /// Returns the key of a probe of a report.
    #[must_use]
    pub fn from_report(probe: &ProbeReport) -> Self {
        let learned = probe.learned();
        Self {
            namespace: probe.namespace.clone(),
            pod: probe.pod.clone(),
            container: probe.container.clone(),
            probe: learned.as_ref().map_or_else(|| probe.kind.clone(), LearnedExec::label),
            prober: probe.prober.clone(),
            learned,
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

    /// Returns the types of the row: several if probes have the same command and timeout.
    pub(crate) fn types(&self) -> Vec<&str> {
        match &self.learned {
            Some(_) => vec![ProbeMatch::INFERRED, ProbeMatch::UNKNOWN],
            None => self.probe.split(" or ").collect(),
        }
    }

    /// Returns whether a finding is about this probe, its container or its pod.
    pub(crate) fn is_subject(&self, subject: &LintSubject) -> bool {
        let has =
            |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let is_probe = match (&subject.learned, &self.learned) {
            (Some(wanted), learned) => learned.as_ref() == Some(wanted),
            (None, Some(_)) => subject.probe.is_none(),
            (None, None) => has(&subject.probe, &self.probe),
        };
        subject.pod.as_ref() == Some(&self.pod)
            && has(&subject.namespace, &self.namespace)
            && has(&subject.container, &self.container)
            && is_probe
            && has(&subject.prober, &self.prober)
    }

    /// Returns the query for the calls of the probe. A probe that has several types has no single
    /// name in a query, so the calls are then those of the container.
    pub(crate) fn calls_query(&self) -> CallsQuery {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let probe = self.learned.is_none().then(|| text(&self.probe)).flatten();
        CallsQuery {
            method: Some("ExecSync".to_owned()),
            pod: text(&self.pod_name()),
            container: text(&self.container),
            probe: probe.filter(|probe| !probe.contains(" or ")),
            command: self.learned.as_ref().map(|learned| learned.command.clone()),
            timeout_ms: self.learned.as_ref().map(|learned| learned.timeout_ms.unwrap_or(0)),
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
            probe: series.label(),
            prober: series.prober.name().to_owned(),
            learned: series.learned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::timeline::Prober;

    fn series(probe: &str, handler: &str, timeout: u64) -> ProbeSeries {
        ProbeSeries {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            probe: probe.to_owned(),
            prober: Prober::Kubelet,
            handler: handler.to_owned(),
            command: Vec::new(),
            timeout: Some(Duration::from_secs(timeout)),
            period: (probe == "probe").then_some(Duration::from_secs(5)),
            failure_threshold: None,
        }
    }

    #[test]
    fn a_command_of_no_known_probe_is_a_row_of_its_own_whether_its_period_is_inferred_or_not() {
        let key = |probe, handler, timeout| ProbeKey::from(&series(probe, handler, timeout));
        let cat = key("unknown", "cat /tmp/healthy", 1);
        assert_eq!(cat.probe, "cat /tmp/healthy");
        assert_eq!(cat, key("probe", "cat /tmp/healthy", 1), "the period is inferred");
        assert_ne!(cat, key("unknown", "cat /tmp/healthy", 2), "another timeout");
        assert_ne!(cat, key("unknown", "true", 1), "another command");
        assert_ne!(cat, key("liveness", "cat /tmp/healthy", 1));
        assert_eq!(key("liveness", "true", 1), key("liveness", "false", 1), "a known probe has its type");
    }

    #[test]
    fn the_calls_of_a_command_are_selected_by_it_and_its_timeout() {
        let query = ProbeKey::from(&series("probe", "cat /tmp/healthy", 1)).calls_query();
        assert_eq!((query.probe, query.command.as_deref()), (None, Some("cat /tmp/healthy")));
        assert_eq!(query.timeout_ms, Some(1000));
        let named = ProbeKey::from(&series("liveness", "cat", 1)).calls_query();
        assert_eq!((named.probe.as_deref(), named.command, named.timeout_ms), (Some("liveness"), None, None));
    }
}
