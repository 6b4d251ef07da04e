//! Selection of the calls to be listed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::filter_values::{CodeLabel, ProbeLabel};
use crate::cri::MethodName;
use crate::execsync::{CallInFlight, CallRecord, ProbeMatch};
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::Peer;
use crate::tap::{Call, ExecCall, is_stream};
use crate::terminal::format;

/// Conditions for the calls to be listed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Whether only calls of this run are listed, and not those that an earlier probeshim recorded.
    pub this_run: bool,
    /// The method of the call.
    pub method: Option<MethodName>,
    /// Earliest end of the call.
    pub since: Option<SystemTime>,
    /// The namespace of the pod of the call.
    pub namespace: Option<String>,
    /// The pod of the call: its name, `NAMESPACE/NAME`, its uid, or a prefix of its sandbox's id.
    pub pod: Option<String>,
    /// The container of the call: its name, or a prefix of its id.
    pub container: Option<String>,
    /// The probe or hook of an `ExecSync`.
    pub probe: Option<ProbeLabel>,
    /// The command of an `ExecSync`, as text.
    pub command: Option<String>,
    /// The timeout of an `ExecSync`; `Some(None)` selects those without one.
    pub timeout: Option<Option<Duration>>,
    /// The client of the call: the name of its program, or its pid.
    pub peer: Option<String>,
    /// The outcome of the call.
    pub code: Option<CodeLabel>,
    /// Whether only calls are listed that failed: see [`CallRecord::is_failed`].
    pub failed: bool,
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
        (!self.this_run || record.ended.is_some())
            && (!self.failed || record.is_failed())
            && self.since.is_none_or(|since| call.start + call.duration >= since)
            && self.code.is_none_or(|code| code.0.has_label_of(call.ending))
            && self.matches_subject(
                &call.method,
                call.peer.as_deref(),
                call.pod.as_deref(),
                call.container.as_deref(),
            )
            && self.probe.is_none_or(|wanted| is_probe(record, wanted))
            && self.matches_exec(call.exec.as_deref())
    }

    /// Returns whether the command and the timeout of a call match the filter.
    fn matches_exec(&self, exec: Option<&ExecCall>) -> bool {
        let has_command =
            |wanted: &String| exec.is_some_and(|exec| format::command(&exec.command) == *wanted);
        let has_timeout = |wanted: Option<Duration>| exec.is_some_and(|exec| exec.timeout() == wanted);
        self.command.as_ref().is_none_or(has_command) && self.timeout.is_none_or(has_timeout)
    }

    /// Returns whether a call that has ended may match the filter once it is analyzed: whether its
    /// method and its client match.
    #[must_use]
    pub fn may_match(&self, call: &Call) -> bool {
        self.method.as_ref().is_none_or(|wanted| call.method == *wanted)
            && self
                .peer
                .as_ref()
                .is_none_or(|name| call.peer.as_ref().is_some_and(|peer| peer.is_named(name)))
    }

    /// Returns whether a call in flight matches the filter. It has no code, and has not failed yet.
    /// Streams match only if the filter has their method.
    #[must_use]
    pub fn matches_in_flight(&self, call: &CallInFlight) -> bool {
        let CallInFlight { info, details } = call;
        let is_probe = |ProbeLabel(wanted): ProbeLabel| {
            details.exec.is_some() && details.probe_match.label().unwrap_or(ProbeMatch::UNKNOWN) == wanted
        };
        !self.failed
            && self.code.is_none()
            && (self.method.is_some() || !is_stream(&info.method))
            && self.matches_subject(
                &info.method,
                info.peer.as_deref(),
                details.pod.as_deref(),
                details.container.as_deref(),
            )
            && self.probe.is_none_or(is_probe)
            && self.matches_exec(details.exec.as_deref())
    }

    /// Returns whether the method, client, pod and container of a call match the filter.
    fn matches_subject(
        &self,
        method: &MethodName,
        peer: Option<&Peer>,
        pod: Option<&PodRef>,
        container: Option<&ContainerRef>,
    ) -> bool {
        let is_peer = |name: &String| peer.is_some_and(|peer| peer.is_named(name));
        let is_in = |namespace: &String| pod.is_some_and(|pod| pod.namespace.as_ref() == Some(namespace));
        let is_pod = |name: &String| pod.is_some_and(|pod| pod.is_named(name));
        let is_container = |name: &String| container.is_some_and(|container| container.is_named(name));
        self.method.as_ref().is_none_or(|wanted| method == wanted)
            && self.peer.as_ref().is_none_or(is_peer)
            && self.namespace.as_ref().is_none_or(is_in)
            && self.pod.as_ref().is_none_or(is_pod)
            && self.container.as_ref().is_none_or(is_container)
    }
}

fn is_probe(record: &CallRecord, ProbeLabel(wanted): ProbeLabel) -> bool {
    let label =
        record.analysis.as_ref().map(|insight| insight.identity.label().unwrap_or(ProbeMatch::UNKNOWN));
    label == Some(wanted)
}

impl Selection {
    pub(crate) fn select(self, mut calls: Vec<Arc<CallRecord>>) -> Vec<Arc<CallRecord>> {
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
    use super::*;
    use crate::cri::Code;
    use crate::relay::CallOutcome;
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
        let probe = Filter { probe: Some(ProbeLabel("liveness")), ..Filter::default() };
        assert!(!probe.matches(&record));
        let of_command = Filter { command: text("true"), ..Filter::default() };
        assert!(!of_command.matches(&record), "it is no ExecSync");
        for (namespace, lets_through) in [("shop", true), ("default", false)] {
            let filter = Filter { namespace: text(namespace), ..Filter::default() };
            assert_eq!(filter.matches(&record), lets_through, "{namespace}");
        }
    }

    #[test]
    fn filters_match_commands_as_text_and_timeouts() {
        let command = ["sh", "-c", "exit 3"].map(str::to_owned).into();
        let exec = ExecCall { command, timeout_seconds: 2, ..ExecCall::default() };
        let call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO);
        let call = Call { exec: Some(Box::new(exec)), ..call };
        let record = CallRecord::unanalyzed(call, None, None);
        let seconds = |seconds| Some(Some(Duration::from_secs(seconds)));
        for (command, timeout, lets_through) in [
            (Some("sh -c 'exit 3'"), None, true),
            (Some("sh -c 'exit 3'"), seconds(2), true),
            (Some("sh -c 'exit 3'"), seconds(1), false),
            (Some("sh"), None, false),
            (None, Some(None), false),
        ] {
            let filter = Filter { command: command.map(str::to_owned), timeout, ..Filter::default() };
            assert_eq!(filter.matches(&record), lets_through, "{command:?} {timeout:?}");
        }
    }

    #[test]
    fn filters_match_peers_by_program_or_pid_and_calls_by_code_and_failure() {
        let peer = Peer { uid: 0, pid: Some(4711), program: Some("kubelet".to_owned()) };
        let record = |ending| {
            let call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO);
            CallRecord::unanalyzed(Call { ending, peer: Some(peer.clone().into()), ..call }, None, None)
        };
        let ok = record(CallOutcome::Completed(Some(Code::OK)));
        for (peer, lets_through) in
            [("kubelet", true), ("4711", true), ("kubelet[4711]", true), ("kube", false), ("471", false)]
        {
            let filter = Filter { peer: Some(peer.to_owned()), ..Filter::default() };
            assert_eq!(filter.matches(&ok), lets_through, "{peer}");
        }
        let late = record(CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)));
        let code = |code: &str| Filter { code: Some(code.parse().unwrap()), ..Filter::default() };
        assert!(code("deadline_exceeded").matches(&late) && !code("OK").matches(&late));
        let failed = Filter { failed: true, ..Filter::default() };
        assert!(failed.matches(&late) && !failed.matches(&ok));
        let this_run = Filter { this_run: true, ..Filter::default() };
        assert!(!this_run.matches(&ok), "an earlier probeshim recorded it");
    }
}
