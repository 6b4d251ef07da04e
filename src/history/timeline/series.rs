//! The probe to which the attempts of a row belong.

use std::time::Duration;

use crate::execsync::{CallRecord, ProbeMatch};
use crate::manifest::Handler;
use crate::object_ref::{PodRef, pod_name};
use crate::prober::ProbeAttempt;
use crate::redact::path_without_query;
use crate::terminal::format;

/// Program that makes the attempts of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prober {
    /// A kubelet, whose ExecSyncs pass the relay.
    Kubelet,
    /// The prober of probeshim.
    Probeshim,
    /// Another client of the runtime.
    Client(String),
}

/// A probe of a container of a pod, with its settings. Attempts with other settings belong to
/// another series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSeries {
    /// Namespace of the pod; empty if it is unknown.
    pub namespace: String,
    /// Name of the pod; its uid, or the id of its sandbox, if the name is unknown.
    pub pod: String,
    /// Name of the container, or its id if the name is unknown.
    pub container: String,
    /// Type of the probe, as [`ProbeMatch::label`] returns it; `unknown` for an ExecSync that
    /// belongs to no known probe. Probes that have the same command and timeout have one series,
    /// such as `liveness or readiness`.
    pub probe: String,
    /// Program that makes the attempts.
    pub prober: Prober,
    /// Handler as text: the command, `httpGet http://:8080/healthz`, `tcpSocket :80` or `grpc
    /// :50051`.
    pub handler: String,
    /// Command of an exec probe; empty for other handlers. With redaction, only the program.
    pub command: Vec<String>,
    /// Timeout of an attempt; `None` without one.
    pub timeout: Option<Duration>,
    /// Period of the probe, if it is known.
    pub period: Option<Duration>,
    /// Failure threshold of the probe, if it is known.
    pub failure_threshold: Option<u32>,
}

impl Prober {
    /// Returns the name of the program.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Probeshim => "probeshim",
            Self::Client(program) => program,
        }
    }

    /// Returns the program with this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "kubelet" => Self::Kubelet,
            "probeshim" => Self::Probeshim,
            other => Self::Client(other.to_owned()),
        }
    }
}

impl ProbeSeries {
    /// Returns the series of an ExecSync. Returns `None` for other calls and for hooks, which are
    /// no probes.
    #[must_use]
    pub fn of_call(record: &CallRecord) -> Option<Self> {
        let (exec, analysis) = (record.call.exec.as_deref()?, record.analysis.as_deref()?);
        let period = match &analysis.identity {
            ProbeMatch::Matched { uses, period, .. } => {
                if !uses.iter().any(|used| used.is_probe()) {
                    return None;
                }
                *period
            }
            ProbeMatch::Inferred { period, .. } => Some(*period),
            ProbeMatch::Unknown => None,
        };
        let peer = record.call.peer.as_deref();
        let program = peer.and_then(|peer| peer.program.clone()).unwrap_or_else(|| "unknown".to_owned());
        let prober = match peer {
            Some(peer) if peer.is_this_process() => Prober::Probeshim,
            Some(peer) if peer.is_kubelet() => Prober::Kubelet,
            _ => Prober::named(&program),
        };
        let pod = record.call.pod.as_deref();
        let container = record.call.container.as_deref();
        Some(Self {
            namespace: pod.and_then(|pod| pod.namespace.clone()).unwrap_or_default(),
            pod: pod.map(name_of_pod).unwrap_or_default(),
            container: container.and_then(|it| it.name.clone().or_else(|| it.id.clone())).unwrap_or_default(),
            probe: probe_type(&analysis.identity),
            prober,
            handler: format::command(&exec.command),
            command: exec.command.clone(),
            timeout: exec.timeout(),
            period,
            failure_threshold: None,
        })
    }

    /// Returns the series of an attempt of the prober of probeshim. `redact` leaves out the
    /// arguments of commands and the query strings of URLs.
    #[must_use]
    pub fn of_attempt(attempt: &ProbeAttempt, redact: bool) -> Self {
        let (pod, container, probe) = (&attempt.pod, &attempt.container, &attempt.probe);
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let (handler, command) = describe(&probe.handler, redact);
        Self {
            namespace: pod.namespace.clone().unwrap_or_default(),
            pod: name_of_pod(pod),
            container: container.name.clone().or_else(|| container.id.clone()).unwrap_or_default(),
            probe: attempt.probe_type.name().to_owned(),
            prober: Prober::Probeshim,
            handler,
            command,
            timeout: Some(seconds(probe.timeout)),
            period: Some(seconds(probe.period)),
            failure_threshold: Some(probe.failure_threshold),
        }
    }

    /// Returns the approximate number of bytes in memory.
    #[must_use]
    pub fn size(&self) -> usize {
        let Self { namespace, pod, container, probe, prober, handler, command, .. } = self;
        let texts = [namespace, pod, container, probe, handler].map(String::len);
        let command = command.iter().map(|word| size_of::<String>() + word.len());
        size_of::<Self>() + texts.into_iter().chain(command).sum::<usize>() + prober.name().len()
    }

    /// Returns `NAMESPACE/POD`, or the pod without a namespace.
    #[must_use]
    pub fn pod_name(&self) -> String {
        pod_name(&self.namespace, &self.pod)
    }
}

fn name_of_pod(pod: &PodRef) -> String {
    let names = [&pod.name, &pod.uid, &pod.id];
    names.into_iter().flatten().next().cloned().unwrap_or_default()
}

/// Returns a handler as text, and the command of an exec handler.
fn describe(handler: &Handler, redact: bool) -> (String, Vec<String>) {
    let host = |host: Option<&str>| match host.unwrap_or_default() {
        address if address.contains(':') => format!("[{address}]"),
        name => name.to_owned(),
    };
    let name = handler.name();
    let text = match handler {
        Handler::Exec(command) => {
            let command = if redact { command.iter().take(1).cloned().collect() } else { command.clone() };
            return (format::command(&command), command);
        }
        Handler::Http(get) => {
            let scheme = if get.is_https { "https" } else { "http" };
            let slash = if get.path.starts_with('/') { "" } else { "/" };
            let path = if redact { path_without_query(&get.path) } else { get.path.as_str().into() };
            format!("{name} {scheme}://{}:{}{slash}{path}", host(get.host.as_deref()), get.port)
        }
        Handler::Tcp(socket) => format!("{name} {}:{}", host(socket.host.as_deref()), socket.port),
        Handler::Grpc(health) if health.service.is_empty() => format!("{name} :{}", health.port),
        Handler::Grpc(health) => format!("{name} :{} {}", health.port, health.service),
        Handler::NotUnderstood(unknown) => format!("{name} (not understood: {})", unknown.field),
    };
    (text, Vec::new())
}

/// Returns the type of a probe, or the types of all that have the same command and timeout.
fn probe_type(identity: &ProbeMatch) -> String {
    match identity {
        ProbeMatch::Matched { uses, .. } => {
            uses.iter().map(|used| used.name()).collect::<Vec<_>>().join(" or ")
        }
        _ => identity.label().unwrap_or(ProbeMatch::UNKNOWN).to_owned(),
    }
}
