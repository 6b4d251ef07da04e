//! Probes in the API, with their results.

use serde::{Deserialize, Serialize};

use crate::cri::error_cause;
use crate::history::json::time;
use crate::manifest::Handler;
use crate::prober::{AttemptRun, ProbeReport, ProbeResult};
use crate::redact::path_without_query;

/// A probe of a container, with its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusProbe {
    /// Type of the probe: `startup`, `readiness` or `liveness`.
    pub r#type: String,
    /// Handler of the probe: `exec`, `httpGet`, `tcpSocket` or `grpc`.
    pub handler: String,
    /// Handler with its arguments in the words of kubectl, such as `exec [cat /tmp/healthy]`. With
    /// `--redact-commands`, a command has no arguments and a URL no query string.
    #[serde(default)]
    pub action: String,
    /// Delay in seconds between the start of the container and the first attempt. An earlier
    /// version reports neither the delay nor the four following numbers.
    #[serde(default)]
    pub initial_delay_seconds: Option<u32>,
    /// Timeout of an attempt in seconds.
    #[serde(default)]
    pub timeout_seconds: Option<u32>,
    /// Period of the attempts in seconds.
    #[serde(default)]
    pub period_seconds: Option<u32>,
    /// Number of successes in a row after which a failed probe succeeds.
    #[serde(default)]
    pub success_threshold: Option<u32>,
    /// Number of failures in a row after which the probe fails.
    #[serde(default)]
    pub failure_threshold: Option<u32>,
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
    /// Reason for which the container is not killed although the probe has failed: it, or its pod,
    /// is being stopped or may be; null otherwise, and of an earlier version.
    #[serde(default)]
    pub hold_reason: Option<String>,
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
    /// Field of the handler that this version does not know, such as `grpc.mode`: the probe is not
    /// run, and each attempt errors. Null if the handler is understood, and of an earlier version.
    #[serde(default)]
    pub not_understood: Option<String>,
    /// Time at which the first of the last attempts with equal results, or with errors, ended.
    /// Attempts in earlier containers do not count.
    #[serde(default)]
    pub since: Option<String>,
    /// Time at which the attempt that is being made began; null between attempts.
    #[serde(default)]
    pub running_since: Option<String>,
}

impl StatusProbe {
    /// Returns whether the result run is that of an earlier container, and no attempt in the
    /// current one has ended. An earlier version reports neither the timeout nor the time of the
    /// attempts.
    #[must_use]
    pub fn is_restarted(&self) -> bool {
        let has_no_attempt = self.since.is_none() && self.timeout_seconds.is_some();
        let is_reset = self.run == 0 && self.result.as_deref() == Some("failure") && !self.on_hold;
        self.errors == 0 && self.result.is_some() && (has_no_attempt || is_reset)
    }

    /// Returns a probe with its results. `redact` hides arguments of commands and query strings.
    pub(super) fn new(report: &ProbeReport, redact: bool) -> Self {
        let probe = &report.probe;
        let threshold = match report.run.last {
            Some(ProbeResult::Failure) => probe.failure_threshold,
            _ => probe.success_threshold,
        };
        let attempts = report.attempts.as_ref();
        let error = attempts.and_then(AttemptRun::error);
        let result = error.map(|_| "error").or(report.run.last.map(ProbeResult::name));
        Self {
            r#type: report.probe_type.name().to_owned(),
            handler: probe.handler.name().to_owned(),
            action: action(&probe.handler, redact),
            initial_delay_seconds: Some(probe.initial_delay),
            timeout_seconds: Some(probe.timeout),
            period_seconds: Some(probe.period),
            success_threshold: Some(probe.success_threshold),
            failure_threshold: Some(probe.failure_threshold),
            source: probe.source.name().to_owned(),
            result: result.map(str::to_owned),
            run: report.run.length,
            threshold,
            verdict: report.result.map(|result| result.name().to_owned()),
            on_hold: report.on_hold,
            hold_reason: report.hold_reason.clone(),
            would_have_killed: report.would_have_killed,
            killed: report.killed,
            errors: attempts.filter(|_| error.is_some()).map_or(0, |attempts| attempts.length),
            last_error: error.map(error_cause).filter(|cause| !cause.is_empty()).map(str::to_owned),
            last_error_message: error.map(str::to_owned),
            not_understood: match &probe.handler {
                Handler::NotUnderstood(unknown) => Some(unknown.path()),
                _ => None,
            },
            since: attempts.map(|attempts| time(attempts.since)),
            running_since: report.running_since.map(time),
        }
    }
}

/// Returns a handler with its arguments in the format of kubectl (`pkg/describe/describe.go`:
/// `DescribeProbe`).
fn action(handler: &Handler, redact: bool) -> String {
    match handler {
        Handler::Exec(command) if redact && command.len() > 1 => format!("exec [{} …]", command[0]),
        Handler::Exec(command) => format!("exec [{}]", command.join(" ")),
        Handler::Http(get) => {
            let scheme = if get.is_https { "https" } else { "http" };
            let host = host(get.host.as_deref());
            let slash = if get.path.starts_with('/') { "" } else { "/" };
            let path = if redact { path_without_query(&get.path) } else { get.path.as_str().into() };
            format!("http-get {scheme}://{host}:{}{slash}{path}", get.port)
        }
        Handler::Tcp(socket) => format!("tcp-socket {}:{}", host(socket.host.as_deref()), socket.port),
        Handler::Grpc(health) => {
            let mode = if health.is_tls { " mode=TLS" } else { "" };
            let text = format!("grpc <pod>:{} {}", health.port, health.service);
            format!("{}{mode}", text.trim_end())
        }
        Handler::NotUnderstood(unknown) => {
            format!("{} (not understood: {})", unknown.handler, unknown.field)
        }
    }
}

/// Returns the host in a URL, which is empty for the address of the pod.
fn host(host: Option<&str>) -> String {
    match host.unwrap_or_default() {
        address if address.contains(':') => format!("[{address}]"),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{GrpcHealth, HttpGet, Port, TcpSocket};

    #[test]
    fn the_handler_of_a_probe_is_described_as_by_kubectl_and_without_secrets_if_redacted() {
        let text = |text: &str| text.to_owned();
        let get = |host: Option<&str>, path: &str| {
            let (host, port) = (host.map(text), Port::Number(8080));
            Handler::Http(HttpGet { path: path.to_owned(), port, host, is_https: false, headers: Vec::new() })
        };
        for (handler, shown, redacted) in [
            (Handler::Exec(vec![text("cat"), text("/tmp/x")]), "exec [cat /tmp/x]", "exec [cat …]"),
            (Handler::Exec(vec![text("true")]), "exec [true]", "exec [true]"),
            (
                get(None, "/healthz?token=a"),
                "http-get http://:8080/healthz?token=a",
                "http-get http://:8080/healthz?redacted",
            ),
            (get(Some("::1"), "x"), "http-get http://[::1]:8080/x", "http-get http://[::1]:8080/x"),
            (
                Handler::Tcp(TcpSocket { port: Port::Name(text("web")), host: Some(text("db")) }),
                "tcp-socket db:web",
                "tcp-socket db:web",
            ),
            (
                Handler::Grpc(GrpcHealth { port: 9, service: text("a.B"), is_tls: true }),
                "grpc <pod>:9 a.B mode=TLS",
                "grpc <pod>:9 a.B mode=TLS",
            ),
            (
                Handler::Grpc(GrpcHealth { port: 9, service: String::new(), is_tls: false }),
                "grpc <pod>:9",
                "grpc <pod>:9",
            ),
        ] {
            assert_eq!(
                (action(&handler, false).as_str(), action(&handler, true).as_str()),
                (shown, redacted)
            );
        }
    }
}
