//! Probes in the API, with their results.

use serde::{Deserialize, Serialize};

use crate::cri::error_cause;
use crate::history::json::time;
use crate::prober::{AttemptRun, ProbeReport, ProbeResult};

/// A probe of a container, with its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusProbe {
    /// Type of the probe: `startup`, `readiness` or `liveness`.
    pub r#type: String,
    /// Handler of the probe: `exec`, `httpGet`, `tcpSocket` or `grpc`.
    pub handler: String,
    /// Probe source.
    pub source: String,
    /// `error` if the last attempts errored; otherwise the result of the current result run,
    /// `success` or `failure`; null before the first attempt.
    ///
    /// The kubelet ignores attempts that error (`prober/worker.go`: `doProbe`), so they change
    /// neither `run` nor `verdict`: a liveness probe that errors each time keeps its initial
    /// verdict, `success`.
    pub result: Option<String>,
    /// Length of the result run.
    pub run: u32,
    /// Threshold of the result run.
    pub threshold: u32,
    /// Probe result: `success`, `failure` or `unknown`; null before the first result.
    pub verdict: Option<String>,
    /// Whether the probe is on hold: it makes no attempts until the container is replaced.
    pub on_hold: bool,
    /// Number of would-be kills of the container.
    pub would_have_killed: u32,
    /// Number of kills of containers of this name because of this probe.
    #[serde(default)]
    pub killed: u32,
    /// Number of attempts in a row that errored, each after three tries; 0 after an attempt with a
    /// result.
    #[serde(default)]
    pub errors: u32,
    /// Cause of the last of these errors, in a few words.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Message of the last of these errors.
    #[serde(default)]
    pub last_error_message: Option<String>,
    /// Time at which the first of the last attempts with equal results, or with errors, ended.
    /// Attempts in earlier containers do not count.
    #[serde(default)]
    pub since: Option<String>,
}

impl From<&ProbeReport> for StatusProbe {
    fn from(report: &ProbeReport) -> Self {
        let threshold = match report.run.last {
            Some(ProbeResult::Failure) => report.probe.failure_threshold,
            _ => report.probe.success_threshold,
        };
        let attempts = report.attempts.as_ref();
        let error = attempts.and_then(AttemptRun::error);
        let result = error.map(|_| "error").or(report.run.last.map(ProbeResult::name));
        Self {
            r#type: report.probe_type.name().to_owned(),
            handler: report.probe.handler.name().to_owned(),
            source: report.probe.source.name().to_owned(),
            result: result.map(str::to_owned),
            run: report.run.length,
            threshold,
            verdict: report.result.map(|result| result.name().to_owned()),
            on_hold: report.on_hold,
            would_have_killed: report.would_have_killed,
            killed: report.killed,
            errors: attempts.filter(|_| error.is_some()).map_or(0, |attempts| attempts.length),
            last_error: error.map(error_cause).filter(|cause| !cause.is_empty()).map(str::to_owned),
            last_error_message: error.map(str::to_owned),
            since: attempts.map(|attempts| time(attempts.since)),
        }
    }
}
