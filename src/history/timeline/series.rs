//! The probe to which the attempts of a row belong.

use std::time::Duration;

use crate::execsync::{CallRecord, ProbeMatch};
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

/// A probe of a container of a pod, with its settings. Attempts with other settings belong to another
/// series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSeries {
    /// Namespace of the pod; empty if it is unknown.
    pub namespace: String,
    /// Name of the pod; its uid, or the id of its sandbox, if the name is unknown.
    pub pod: String,
    /// Name of the container, or its id if the name is unknown.
    pub container: String,
    /// Type of the probe, as [`ProbeMatch::label`] returns it; `unknown` for an ExecSync that belongs
    /// to no known probe.
    pub probe: String,
    /// Program that makes the attempts.
    pub prober: Prober,
    /// Handler as text: the command, `httpGet http://:8080/healthz`, `tcpSocket :80` or `grpc :50051`.
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
    /// Returns the series of an ExecSync. Returns `None` for other calls and for hooks, which are no
    /// probes.
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
        let first = |names: [Option<&String>; 3]| names.into_iter().flatten().next().cloned();
        let container = record.call.container.as_deref();
        let container_names =
            [container.and_then(|it| it.name.as_ref()), container.and_then(|it| it.id.as_ref()), None];
        Some(Self {
            namespace: pod.and_then(|pod| pod.namespace.clone()).unwrap_or_default(),
            pod: pod
                .and_then(|pod| first([pod.name.as_ref(), pod.uid.as_ref(), pod.id.as_ref()]))
                .unwrap_or_default(),
            container: first(container_names).unwrap_or_default(),
            probe: analysis.identity.label().unwrap_or(ProbeMatch::UNKNOWN).to_owned(),
            prober,
            handler: format::command(&exec.command),
            command: exec.command.clone(),
            timeout: exec.timeout(),
            period,
            failure_threshold: None,
        })
    }

    /// Returns `NAMESPACE/POD`, or the pod without a namespace.
    #[must_use]
    pub fn pod_name(&self) -> String {
        if self.namespace.is_empty() { self.pod.clone() } else { format!("{}/{}", self.namespace, self.pod) }
    }
}
