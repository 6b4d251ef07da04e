//! Answers of the API that more than one listener serves.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::api::{self, CallsQuery};
use super::state::Admin;
use crate::cri::MethodName;
use crate::cri::v1::ContainerState;
use crate::events::{Event, EventFilter, reason};
use crate::execsync::{self, CallRecord, ContainerStop, ProbeMatch};
use crate::history::{Filter, FilterValueError, MethodArg, NameCoverage, Selection};
use crate::kubelet::Kubelet;
use crate::prober::{EnforcementMode, ProbeManager};
use crate::suggest::did_you_mean;

impl Admin {
    /// Returns the enforcement mode.
    pub(crate) fn mode(&self) -> EnforcementMode {
        self.state.prober.as_ref().map_or(EnforcementMode::Off, ProbeManager::mode)
    }

    /// Returns whether the loopback address shows commands, output, annotations and query strings.
    pub(crate) fn shows_commands(&self) -> bool {
        self.info.http_pods && !self.state.redact
    }

    /// Returns the pods of the inventory, merged with the managed pods. `redact` hides arguments of
    /// commands.
    pub(crate) fn pods(&self, redact: bool) -> Vec<api::StatusPod> {
        let probed = self.state.prober.as_ref().map(ProbeManager::report).unwrap_or_default();
        let mut all = api::pods(&self.state.inventory.borrow().clone(), &probed, redact);
        if let Some(kept) = &self.state.client_pods {
            api::annotate_not_restartable(&mut all, &kept.borrow());
        }
        match self.state.kubelet.get().map(Kubelet::published_pods) {
            Some(managed) => api::merge_managed(all, &managed, &probed, redact),
            None => all,
        }
    }

    /// Returns the sources of the names of probes, and the containers without names.
    pub(crate) fn probe_names(&self) -> api::ProbeNames {
        let of_this_run = Filter { this_run: true, ..Filter::default() };
        let calls = self.state.calls.select(&of_this_run, Selection::All);
        let inventory = self.state.inventory.borrow().clone();
        let is_running = |id: &str| {
            let container = inventory.container(id);
            container.is_some_and(|container| container.state == ContainerState::ContainerRunning)
        };
        let specs = self.state.names.specs.borrow().clone();
        let is_known = |id: &str, command: &[String], timeout: i64| {
            let container = inventory.container(id);
            let known =
                container.and_then(|it| specs.known_exec(inventory.sandbox_of(it)?, it, command, timeout));
            known.is_some()
        };
        let coverage = NameCoverage::from_records(calls.iter(), is_running, is_known);
        api::ProbeNames::new(&self.state.names.sources.borrow(), coverage)
    }

    /// Explains a recorded call, with the stop of its container that follows it and the reason why
    /// its probe is not known. `shown` is the record as the client may see it.
    pub(crate) fn explain(&self, record: &CallRecord, shown: &CallRecord) -> Vec<String> {
        let mut sentences = execsync::explain_with_stop(shown, self.stop_of(record).as_ref());
        sentences.extend(self.explain_unknown(record));
        sentences
    }

    /// Returns the stop of a container that a record [shows](ContainerStop::is_shown_by).
    fn stop_of(&self, record: &CallRecord) -> Option<ContainerStop> {
        let id = record.call.container.as_ref()?.id.as_deref()?;
        let filter = EventFilter { since: Some(record.call.start), ..EventFilter::default() };
        let is_it = |event: &&Arc<Event>| {
            event.reason == reason::KILLING
                && event.container.as_ref().is_some_and(|container| container.id.as_deref() == Some(id))
        };
        let inventory = self.state.inventory.borrow().clone();
        let exit_code =
            inventory.container(id).and_then(|container| container.exit.as_ref()).map(|(code, _)| *code);
        let events = self.state.events.select(&filter);
        let stops = events.iter().filter(is_it).map(|event| ContainerStop {
            message: event.message.clone(),
            at: event.time,
            exit_code,
        });
        stops.into_iter().find(|stop| stop.is_shown_by(record))
    }

    /// Returns a sentence about an ExecSync that belongs to no known probe: whether its pod is
    /// known, and what helps. `None` for other calls.
    fn explain_unknown(&self, record: &CallRecord) -> Option<String> {
        let analysis = record.analysis.as_ref()?;
        if matches!(analysis.identity, ProbeMatch::Matched { .. }) {
            return None;
        }
        let inventory = self.state.inventory.borrow().clone();
        let pod = record.call.pod.as_ref().and_then(|pod| pod.id.as_deref());
        let sandbox = pod.and_then(|id| inventory.sandbox(id));
        let specs = self.state.names.specs.borrow().clone();
        let known_from = sandbox.and_then(|sandbox| specs.source_of_pod(sandbox));
        let container = record.call.container.as_ref().and_then(|it| inventory.container(it.id.as_deref()?));
        let known_now =
            container.zip(sandbox).zip(record.call.exec.as_ref()).and_then(|((container, sandbox), exec)| {
                specs.known_exec(sandbox, container, &exec.command, exec.timeout_seconds)
            });
        self.state.names.sources.borrow().explain_unknown(known_from, known_now.as_ref())
    }

    /// Returns the filter of a query of calls. The error names the field, the value and what is
    /// allowed.
    pub(crate) fn call_filter(&self, query: &CallsQuery) -> Result<Filter, String> {
        let method = query.method.as_deref().map(|name| self.method(name)).transpose()?;
        let probe = query.probe.as_deref().map(|name| parse("probe", name)).transpose()?;
        let code = query.code.as_deref().map(|name| parse("code", name)).transpose()?;
        let CallsQuery { namespace, pod, container, command, timeout_ms, peer, failed, this_run, .. } =
            query.clone();
        let timeout = timeout_ms.map(|timeout| (timeout > 0).then(|| Duration::from_millis(timeout)));
        let since = query.since_ms.map(time_before);
        Ok(Filter {
            this_run,
            method,
            since,
            namespace,
            pod,
            container,
            probe,
            command,
            timeout,
            peer,
            code,
            failed,
        })
    }

    /// Returns the method with this name or path: a method of the CRI, or another one that was
    /// called.
    fn method(&self, name: &str) -> Result<MethodName, String> {
        let MethodArg(method) = parse("method", name)?;
        if matches!(method, MethodName::Known(_)) || self.state.calls.has(&method) {
            return Ok(method);
        }
        let called = self.state.calls.other_methods();
        let hint = did_you_mean(name, called.iter().map(|path| &**path));
        Err(format!("method {name:?} is not a method of the CRI, and no call to it is recorded{hint}"))
    }
}

impl CallsQuery {
    /// Returns the number and order of the calls that a query selects.
    pub(crate) fn selection(&self) -> Result<Selection, String> {
        match (self.last, self.slowest) {
            (None, None) => Ok(Selection::All),
            (Some(last), None) => Ok(Selection::Last(last)),
            (None, Some(slowest)) => Ok(Selection::Slowest(slowest)),
            (Some(_), Some(_)) => Err("last and slowest exclude each other".to_owned()),
        }
    }
}

/// Returns the time before the present.
pub(super) fn time_before(milliseconds: u64) -> SystemTime {
    SystemTime::now().checked_sub(Duration::from_millis(milliseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Parses the value of a filter.
fn parse<T: FromStr<Err = FilterValueError>>(field: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{field} {text:?} {error}"))
}
