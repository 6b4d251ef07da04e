//! The query of the page: a period and a selection, in the words of `probeshim calls`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{FromRequestParts, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde::Deserialize;

use super::answer::PageError;
use crate::admin::Admin;
use crate::admin::api::{CallsQuery, StatusPod};
use crate::execsync::{CallRecord, ProbeMatch};
use crate::history::json::Event;
use crate::history::timeline::{LearnedExec, Period, ProbeSeries};
use crate::history::{Filter, TimeArg};
use crate::lint::LintSubject;
use crate::overview::ProbeKey;
use crate::report::Selection;
use crate::tap::ExecCall;
use crate::terminal::format;

/// Length of the period if the query has none.
const DEFAULT_LENGTH: Duration = Duration::from_secs(60 * 60);

/// Maximum number of calls in an answer.
pub(super) const MAX_CALLS: usize = 500;

/// Query string of the page. The fields are those of `/v1/calls`, except the period.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// Begin of the period: a duration before the present, or a time in RFC 3339.
    since: Option<String>,
    /// End of the period in the same formats; absent for the present.
    until: Option<String>,
    method: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    probe: Option<String>,
    command: Option<String>,
    timeout_ms: Option<u64>,
    peer: Option<String>,
    code: Option<String>,
    #[serde(default)]
    failed: bool,
    last: Option<usize>,
    slowest: Option<usize>,
    /// Id of the last update that the page has. Only of a request for updates.
    after: Option<String>,
}

/// A request of the page, validated.
#[derive(Debug)]
pub(super) struct PageRequest {
    pub(super) admin: Arc<Admin>,
    pub(super) headers: HeaderMap,
    pub(super) selection: PageSelection,
    /// Id of the last update that the page has.
    pub(super) after: Option<String>,
}

/// The period and the selection of a query.
#[derive(Clone, Debug)]
pub(super) struct PageSelection {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
    /// Whether the period ends now.
    pub(super) is_live: bool,
    /// Whether the query selects something in the period.
    pub(super) is_filtered: bool,
    /// The pods.
    pub(super) pods: Selection,
    /// Conditions of calls, without the period and the probe.
    filter: Filter,
    container: Option<String>,
    probe: Option<String>,
    /// Text of a command.
    command: Option<String>,
    /// Timeout in milliseconds; 0 for none.
    timeout_ms: Option<u64>,
    /// Whether only the programs of commands are shown, and compared.
    redact: bool,
    peer: Option<String>,
    /// Number and order of calls.
    pub(super) order: crate::history::Selection,
}

impl FromRequestParts<Arc<Admin>> for PageRequest {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, PageError> {
        let query = Query::<PageQuery>::from_request_parts(parts, admin).await;
        let Query(mut query) = query.map_err(|error| PageError::BadRequest(error.body_text()))?;
        let after = query.after.take();
        let (selection, headers) = (query.select(admin)?, parts.headers.clone());
        Ok(Self { admin: admin.clone(), headers, selection, after })
    }
}

impl PageQuery {
    /// Returns whether the query selects something in the period.
    fn is_filtered(&self) -> bool {
        let Self { method, namespace, pod, container, probe, command, peer, code, .. } = self;
        let names = [method, namespace, pod, container, probe, command, peer, code];
        self.failed || self.timeout_ms.is_some() || names.into_iter().any(Option::is_some)
    }

    /// Validates the query.
    fn select(self, admin: &Admin) -> Result<PageSelection, PageError> {
        let now = SystemTime::now();
        let time = |field: &str, text: &Option<String>| {
            let text = text.as_deref().filter(|text| !text.is_empty());
            let parsed = text.map(|text| {
                text.parse::<TimeArg>()
                    .map_err(|error| PageError::BadRequest(format!("{field} {text:?} {error}")))
            });
            parsed.transpose()
        };
        let since = time("since", &self.since)?.unwrap_or(TimeArg::Before(DEFAULT_LENGTH));
        let until = time("until", &self.until)?;
        let (from, to) = (since.before(now), until.map_or(now, |until| until.before(now)).min(now));
        if from >= to {
            return Err(PageError::BadRequest(
                "since must be before until and before the present".to_owned(),
            ));
        }
        let is_filtered = self.is_filtered();
        let query = CallsQuery {
            method: self.method,
            namespace: self.namespace,
            pod: self.pod,
            container: self.container,
            // A row of several probes has no single name in a query of calls.
            probe: self.probe.clone().filter(|probe| !probe.contains(" or ")),
            peer: self.peer,
            code: self.code,
            failed: self.failed,
            last: self.last.map(|last| last.min(MAX_CALLS)),
            slowest: self.slowest.map(|slowest| slowest.min(MAX_CALLS)),
            ..CallsQuery::default()
        };
        let filter = admin.call_filter(&query).map_err(PageError::BadRequest)?;
        // The calls of a probe are selected by its types, see `has_call`.
        let filter = Filter { probe: None, ..filter };
        let order = match query.selection().map_err(PageError::BadRequest)? {
            crate::history::Selection::All => crate::history::Selection::Last(MAX_CALLS),
            order => order,
        };
        let CallsQuery { namespace, pod, container, peer, .. } = query;
        let pods = Selection { namespace, pod };
        Ok(PageSelection {
            from,
            to,
            is_live: until.is_none(),
            is_filtered,
            pods,
            filter,
            container,
            probe: self.probe,
            command: self.command,
            timeout_ms: self.timeout_ms,
            redact: !admin.shows_commands(),
            peer,
            order,
        })
    }
}

impl PageSelection {
    /// Removes all that is not selected. Gaps and facts about the node stay.
    pub(super) fn apply(&self, period: &mut Period) {
        period.probes.retain(|probe| self.has_series(&probe.series));
        period.calls.retain(|record| self.has_call(record));
        period.events.retain(|event| self.has_event(event));
    }

    /// Returns whether an event is selected.
    pub(super) fn has_event(&self, event: &Event) -> bool {
        self.pods.has_subject(&LintSubject::for_event(event))
            && self.container.as_ref().is_none_or(|wanted| event.container.as_ref() == Some(wanted))
    }

    /// Returns whether a probe is selected.
    pub(super) fn has_series(&self, series: &ProbeSeries) -> bool {
        self.pods.has_series(series)
            && self.has_learned(series.learned().as_ref(), true)
            && self.has_names(Some(&series.container), &[&series.probe], Some(series.prober.name()))
    }

    /// Returns whether a call is selected. A call that may belong to several probes is selected
    /// with each of them.
    pub(super) fn has_call(&self, record: &CallRecord) -> bool {
        self.filter.matches(record)
            && self.probe.as_deref().is_none_or(|wanted| is_call_of_probe(record, wanted))
            && self.has_exec(record.call.exec.as_deref())
    }

    /// Returns whether the command and the timeout of a call are selected.
    fn has_exec(&self, exec: Option<&ExecCall>) -> bool {
        let timeout_ms = |exec: &ExecCall| exec.timeout().map_or(0, |timeout| timeout.as_millis());
        let command = |exec: &ExecCall| {
            let shown = if self.redact { exec.command.len().min(1) } else { exec.command.len() };
            format::command(&exec.command[..shown])
        };
        self.command.as_ref().is_none_or(|wanted| exec.is_some_and(|exec| command(exec) == *wanted))
            && self
                .timeout_ms
                .is_none_or(|wanted| exec.is_some_and(|exec| timeout_ms(exec) == u128::from(wanted)))
    }

    /// Returns whether the command and the timeout of a row or finding are selected. An object that
    /// is no probe has neither.
    fn has_learned(&self, learned: Option<&LearnedExec>, is_probe: bool) -> bool {
        match learned {
            Some(LearnedExec { command, timeout_ms }) => {
                self.command.as_ref().is_none_or(|wanted| wanted == command)
                    && self.timeout_ms.is_none_or(|wanted| timeout_ms.unwrap_or(0) == wanted)
            }
            None => !is_probe || self.command.is_none(),
        }
    }

    /// Returns whether a pod of the node is selected.
    pub(super) fn has_pod(&self, pod: &StatusPod) -> bool {
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        self.pods.has_subject(&LintSubject { namespace, pod: name, ..LintSubject::NODE })
    }

    /// Returns whether a row of a probe is selected.
    pub(super) fn has_row(&self, key: &ProbeKey) -> bool {
        // The prober of a probe without results may be unknown.
        let prober = Some(key.prober.as_str()).filter(|prober| !prober.is_empty());
        // The query of a learned row has its command; its label is no type.
        let types = if key.learned.is_some() { key.types() } else { vec![key.probe.as_str()] };
        self.has_learned(key.learned.as_ref(), true) && self.has_names(Some(&key.container), &types, prober)
    }

    /// Returns whether the object of a finding is selected.
    pub(super) fn has_subject(&self, subject: &LintSubject) -> bool {
        let LintSubject { container, probe, prober, .. } = subject;
        let types: Vec<&str> = probe.as_deref().into_iter().collect();
        self.pods.has_subject(subject)
            && self.has_learned(subject.learned.as_ref(), probe.is_some())
            && self.has_names(container.as_deref(), &types, prober.as_deref())
    }

    /// Returns whether names are selected. A name that an object does not have is no condition.
    fn has_names(&self, container: Option<&str>, probes: &[&str], peer: Option<&str>) -> bool {
        let is = |wanted: &Option<String>, name: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| name.is_none_or(|name| name == wanted))
        };
        let has = |name: &str, wanted: &str| name == wanted || name.split(" or ").any(|name| name == wanted);
        let is_probe = |wanted: &str| probes.is_empty() || probes.iter().any(|name| has(name, wanted));
        is(&self.container, container) && is(&self.peer, peer) && self.probe.as_deref().is_none_or(is_probe)
    }
}

/// Returns whether an ExecSync belongs, or may belong, to a probe or hook. `wanted` is a label, or
/// types that are joined with `or`.
fn is_call_of_probe(record: &CallRecord, wanted: &str) -> bool {
    let Some(identity) = record.analysis.as_ref().map(|analysis| &analysis.identity) else { return false };
    let is_wanted = |name: &str| wanted.split(" or ").any(|wanted| wanted == name);
    let is_one = match identity {
        ProbeMatch::Matched { uses, .. } => uses.iter().any(|used| is_wanted(used.name())),
        ProbeMatch::Inferred { .. } | ProbeMatch::Unknown => false,
    };
    is_one || is_wanted(identity.label().unwrap_or(ProbeMatch::UNKNOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the selection of a probe and a command.
    fn selection(probe: Option<&str>, command: Option<&str>) -> PageSelection {
        PageSelection {
            from: SystemTime::UNIX_EPOCH,
            to: SystemTime::UNIX_EPOCH,
            is_live: true,
            is_filtered: true,
            pods: Selection::default(),
            filter: Filter::default(),
            container: None,
            probe: probe.map(str::to_owned),
            command: command.map(str::to_owned),
            timeout_ms: None,
            redact: false,
            peer: None,
            order: crate::history::Selection::All,
        }
    }

    /// Returns the row of a probe.
    fn row(probe: &str, learned: Option<LearnedExec>) -> ProbeKey {
        ProbeKey { container: "main".to_owned(), probe: probe.to_owned(), learned, ..ProbeKey::default() }
    }

    #[test]
    fn a_row_of_several_types_is_selected_by_all_of_them_and_by_each() {
        let joint = row("liveness or readiness", None);
        for wanted in [None, Some("liveness or readiness"), Some("liveness"), Some("readiness")] {
            assert!(selection(wanted, None).has_row(&joint), "{wanted:?}");
        }
        assert!(!selection(Some("startup"), None).has_row(&joint));
        assert!(!selection(Some("liveness or readiness"), None).has_row(&row("startup", None)));
    }

    #[test]
    fn a_row_of_a_learned_command_is_selected_by_its_command() {
        let learned = LearnedExec { command: "cat /tmp/ok".to_owned(), timeout_ms: Some(1000) };
        let cat = row("cat /tmp/ok", Some(learned));
        assert!(selection(Some(ProbeMatch::UNKNOWN), Some("cat /tmp/ok")).has_row(&cat));
        assert!(selection(Some(ProbeMatch::INFERRED), Some("cat /tmp/ok")).has_row(&cat));
        assert!(!selection(Some(ProbeMatch::UNKNOWN), Some("cat /tmp/other")).has_row(&cat));
        assert!(!selection(Some("liveness"), None).has_row(&cat));
    }
}
