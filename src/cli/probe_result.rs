//! The result of a probe in a few words.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use jiff::{SignedDuration, Timestamp};

use crate::admin::api::{StatusContainer, StatusPod, StatusProbe};
use crate::manifest::ProbeType;
use crate::terminal::format;

/// Verdict and result of a probe that has succeeded.
const SUCCESS: &str = "success";

/// Enforcement mode in which no probes run.
pub(super) const OFF: &str = "off";

/// Time beyond its timeout after which an attempt that is being made is overdue.
const OVERDUE: SignedDuration = SignedDuration::from_secs(1);

/// A probe with its container and pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeOfPod<'a> {
    pub(super) pod: &'a StatusPod,
    pub(super) container: &'a StatusContainer,
    pub(super) probe: &'a StatusProbe,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeResultText {
    /// The result, such as `failed 17 in a row, kills at 3`.
    pub(super) text: String,
    /// Whether the probe succeeds, or makes no attempts for a good reason.
    pub(super) is_well: bool,
}

/// Returns the probes of the newest containers of a pod.
pub(super) fn probes<'a>(sandboxes: &[&'a StatusPod]) -> Vec<ProbeOfPod<'a>> {
    let Some(pod) = sandboxes.last().copied() else { return Vec::new() };
    let containers = super::pod_summary::newest_containers(&[pod]);
    let probes =
        containers.into_iter().flat_map(|container| container.probes.iter().map(move |it| (container, it)));
    probes.map(|(container, probe)| ProbeOfPod { pod, container, probe }).collect()
}

impl ProbeOfPod<'_> {
    /// Returns the result of the probe. `mode` is the enforcement mode.
    pub(super) fn result(self, mode: &str, now: Timestamp) -> ProbeResultText {
        let Self { container, probe, .. } = self;
        if container.state != "running" {
            return ProbeResultText { text: format!("container {}", container.state), is_well: false };
        }
        if mode == OFF {
            let last = probe.result.as_deref().map(|result| format!(", last result {result}"));
            let text = format!("not probed (mode off){}", last.unwrap_or_default());
            return ProbeResultText { text, is_well: true };
        }
        let result = self.last_result(mode, now);
        match probe.running_since.as_deref() {
            Some(since) if self.is_overdue(now) && probe.since.is_some() => {
                let text = format!("{}, {}", result.text, self.running("an attempt", since, now));
                ProbeResultText { text, is_well: false }
            }
            _ => result,
        }
    }

    /// Returns how long an attempt has been running, with its timeout.
    fn running(self, attempt: &str, since: &str, now: Timestamp) -> String {
        let timeout = self.probe.timeout_seconds.map(|timeout| format!(" (timeout {timeout}s)"));
        format!("{attempt} has run for {}{}", format::age(since, now), timeout.unwrap_or_default())
    }

    /// Returns whether the attempt that is being made has exceeded its timeout.
    fn is_overdue(self, now: Timestamp) -> bool {
        let since: Option<Timestamp> =
            self.probe.running_since.as_deref().and_then(|since| since.parse().ok());
        let timeout = self.probe.timeout_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
        since.zip(timeout).is_some_and(|(since, timeout)| now.duration_since(since) > timeout + OVERDUE)
    }

    /// Returns the handler of the probe and its timing, in the format of `kubectl describe`
    /// (`pkg/describe/describe.go`: `DescribeProbe`).
    pub(super) fn description(self) -> String {
        let StatusProbe { action, handler, .. } = self.probe;
        // An earlier version reports neither the arguments of the handler nor the timing.
        let mut text = if action.is_empty() { handler } else { action }.clone();
        for (label, number, unit) in [
            ("delay", self.probe.initial_delay_seconds, "s"),
            ("timeout", self.probe.timeout_seconds, "s"),
            ("period", self.probe.period_seconds, "s"),
            ("#success", self.probe.success_threshold, ""),
            ("#failure", self.probe.failure_threshold, ""),
        ] {
            if let Some(number) = number {
                // Writing to a string does not fail.
                let _ = write!(text, " {label}={number}{unit}");
            }
        }
        text
    }

    /// Returns the result of the last attempts.
    fn last_result(self, mode: &str, now: Timestamp) -> ProbeResultText {
        let probe = self.probe;
        let well = |text: String| ProbeResultText { text, is_well: true };
        let unwell = |text: String| ProbeResultText { text, is_well: false };
        let age = probe.since.as_deref().map(|since| format::age(since, now));
        let since = age.map(|age| format!(" since {age}")).unwrap_or_default();
        let is_startup = probe.r#type == ProbeType::Startup.name();
        // The kubelet keeps the result run when the container is replaced (`prober/worker.go`:
        // `doProbe`). An attempt of the container itself has a time.
        let is_restarted = probe.is_restarted();
        if let Some(field) = &probe.not_understood {
            return unwell(format!("not understood ({field})"));
        }
        match (probe.result.as_deref(), probe.on_hold) {
            (Some("error"), _) => {
                let cause = probe.last_error.as_deref().map(|cause| format!(" ({cause})"));
                unwell(format!("erroring ×{}{}", probe.errors, cause.unwrap_or_default()))
            }
            (Some(_), false) if is_restarted => {
                self.not_yet_run("the first attempt since the restart", "not yet run since the restart", now)
            }
            (Some(SUCCESS), true) if is_startup => well(format!("ok{since}, completed")),
            (Some("failure"), true) => {
                let reason = probe.hold_reason.as_deref().map(|reason| format!(": {reason}"));
                unwell(format!("failed{since}, on hold{}", reason.unwrap_or_default()))
            }
            (_, true) => well("on hold".to_owned()),
            (Some(SUCCESS), false) if probe.verdict.as_deref() == Some(SUCCESS) => well(format!("ok{since}")),
            // Each attempt was successful, and more are needed.
            (Some(SUCCESS), false) => well(format!("ok {} in a row, needs {}", probe.run, probe.threshold)),
            (Some(_), false) => {
                let effect = effect_of_failure(&probe.r#type, mode);
                // The pod is unready until an attempt succeeds; a kill ends the run of failures.
                let is_unready = effect == UNREADY && probe.run >= probe.threshold;
                let at = if is_unready { String::new() } else { format!(" at {}", probe.threshold) };
                unwell(format!("failed {} in a row, {effect}{at}", probe.run))
            }
            (None, false) => self.not_yet_run("the first attempt", "not yet run", now),
        }
    }

    /// Returns the result of a probe without an attempt that has ended: its running attempt, or
    /// that it has none.
    fn not_yet_run(self, attempt: &str, none: &str, now: Timestamp) -> ProbeResultText {
        match self.probe.running_since.as_deref() {
            Some(since) => {
                ProbeResultText { text: self.running(attempt, since, now), is_well: !self.is_overdue(now) }
            }
            None => ProbeResultText { text: none.to_owned(), is_well: true },
        }
    }
}

impl ProbeResultText {
    pub(super) fn style(&self) -> Style {
        if self.is_well { Style::new() } else { AnsiColor::Yellow.on_default() }
    }
}

/// Effect of a readiness probe that fails.
const UNREADY: &str = "unready";

/// Returns the effect of a probe that fails as often as its threshold says.
fn effect_of_failure(probe_type: &str, mode: &str) -> &'static str {
    match mode {
        _ if probe_type == ProbeType::Readiness.name() => UNREADY,
        "kill" | "restart" => "kills",
        _ => "would kill",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_description_of_a_probe_has_only_what_the_server_reports() {
        let pod = json!({
            "namespace": "shop", "name": "web", "uid": "1", "id": "s", "sandbox": "ready", "ip": null, "source": "list",
            "containers": [],
        });
        let pod: StatusPod = serde_json::from_value(pod).unwrap();
        let container = json!({"name": "main", "id": "c", "state": "running", "source": "list"});
        let container: StatusContainer = serde_json::from_value(container).unwrap();
        let probe = json!({
            "type": "liveness", "handler": "exec", "source": "manifest", "result": null, "run": 0, "threshold": 1,
            "verdict": null, "onHold": false, "wouldHaveKilled": 0,
        });
        let mut probe: StatusProbe = serde_json::from_value(probe).unwrap();
        let shown =
            |probe: &StatusProbe| ProbeOfPod { pod: &pod, container: &container, probe }.description();
        assert_eq!(shown(&probe), "exec");
        probe.initial_delay_seconds = Some(0);
        probe.failure_threshold = Some(3);
        assert_eq!(shown(&probe), "exec delay=0s #failure=3");
        probe.running_since = Some("2026-11-24T13:00:28Z".to_owned());
        let now = "2026-11-24T13:00:40Z".parse().unwrap();
        let result = ProbeOfPod { pod: &pod, container: &container, probe: &probe }.result("kill", now);
        assert!(result.is_well, "an attempt without a known timeout is not overdue");
    }

    /// Returns the result of a probe with these fields in JSON, and whether it is well.
    fn shown(kind: &str, mode: &str, state: &str, fields: &serde_json::Value) -> (String, bool) {
        let pod: StatusPod = serde_json::from_value(json!({
            "namespace": "shop", "name": "web", "uid": "1", "id": "s", "sandbox": "ready", "ip": null, "source": "list",
            "containers": [],
        }))
        .unwrap();
        let now = "2026-11-24T13:00:40Z".parse().unwrap();
        let mut probe = json!({
            "type": kind, "handler": "exec", "source": "manifest", "result": null, "run": 0, "threshold": 1, "verdict": null,
            "onHold": false, "wouldHaveKilled": 0, "since": "2026-11-24T13:00:00.000Z",
        });
        probe.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let container = json!({"name": "main", "id": "c", "state": state, "source": "list"});
        let (container, probe) =
            (serde_json::from_value(container).unwrap(), serde_json::from_value(probe).unwrap());
        let text = ProbeOfPod { pod: &pod, container: &container, probe: &probe }.result(mode, now);
        (text.text, text.is_well)
    }

    #[test]
    fn the_result_of_a_probe_states_its_run_and_the_effect_at_its_threshold() {
        let failing = json!({"result": "failure", "run": 17, "threshold": 3, "verdict": "success"});
        let held = json!({"result": "failure", "onHold": true, "verdict": "failure"});
        let reasoned = json!({
            "result": "failure", "onHold": true, "verdict": "failure", "holdReason": "the pod is being stopped",
        });
        let erroring = json!({"result": "error", "errors": 8, "lastError": "executable not found", "verdict": "success"});
        let unknown =
            json!({"result": "error", "errors": 8, "lastError": "x", "notUnderstood": "grpc.future"});
        for (kind, mode, state, more, expected) in [
            (
                "liveness",
                "kill",
                "running",
                json!({"result": "success", "run": 3, "verdict": "success"}),
                ("ok since 40s", true),
            ),
            (
                "readiness",
                "kill",
                "running",
                json!({"result": "success", "run": 1, "threshold": 2, "verdict": "failure"}),
                ("ok 1 in a row, needs 2", true),
            ),
            (
                "startup",
                "kill",
                "running",
                json!({"result": "success", "verdict": "success", "onHold": true}),
                ("ok since 40s, completed", true),
            ),
            ("liveness", "restart", "running", failing.clone(), ("failed 17 in a row, kills at 3", false)),
            (
                "liveness",
                "dry-run",
                "running",
                failing.clone(),
                ("failed 17 in a row, would kill at 3", false),
            ),
            ("readiness", "kill", "running", failing.clone(), ("failed 17 in a row, unready", false)),
            ("liveness", "kill", "running", held, ("failed since 40s, on hold", false)),
            (
                "liveness",
                "kill",
                "running",
                reasoned,
                ("failed since 40s, on hold: the pod is being stopped", false),
            ),
            ("liveness", "kill", "running", unknown, ("not understood (grpc.future)", false)),
            ("liveness", "kill", "running", erroring, ("erroring ×8 (executable not found)", false)),
            ("liveness", "kill", "running", json!({"verdict": "success"}), ("not yet run", true)),
            ("liveness", "off", "running", json!({}), ("not probed (mode off)", true)),
            (
                "liveness",
                "off",
                "running",
                failing.clone(),
                ("not probed (mode off), last result failure", true),
            ),
            ("liveness", "kill", "exited", failing, ("container exited", false)),
        ] {
            let (text, is_well) = shown(kind, mode, state, &more);
            assert_eq!((text.as_str(), is_well), expected, "{kind} {mode}");
        }
    }

    #[test]
    fn an_attempt_that_runs_is_shown_with_its_duration_and_timeout() {
        for (kind, mode, state, more, expected) in [
            (
                "liveness",
                "kill",
                "running",
                json!({"since": null, "runningSince": "2026-11-24T13:00:28Z", "timeoutSeconds": 20}),
                ("the first attempt has run for 12s (timeout 20s)", true),
            ),
            (
                "liveness",
                "kill",
                "running",
                json!({"since": null, "runningSince": "2026-11-24T13:00:28Z", "timeoutSeconds": 10}),
                ("the first attempt has run for 12s (timeout 10s)", false),
            ),
            (
                "liveness",
                "kill",
                "running",
                json!({"result": "success", "verdict": "success", "runningSince": "2026-11-24T13:00:28Z", "timeoutSeconds": 10}),
                ("ok since 40s, an attempt has run for 12s (timeout 10s)", false),
            ),
            (
                "liveness",
                "kill",
                "running",
                json!({"result": "success", "verdict": "success", "runningSince": "2026-11-24T13:00:28Z", "timeoutSeconds": 20}),
                ("ok since 40s", true),
            ),
            (
                "liveness",
                "restart",
                "running",
                json!({"since": null, "result": "failure", "run": 0, "threshold": 3, "verdict": "success"}),
                ("not yet run since the restart", true),
            ),
            (
                "readiness",
                "restart",
                "running",
                json!({
                    "since": null, "result": "success", "run": 4, "verdict": "failure",
                    "runningSince": "2026-11-24T13:00:38Z", "timeoutSeconds": 1,
                }),
                ("the first attempt since the restart has run for 2s (timeout 1s)", true),
            ),
        ] {
            let (text, is_well) = shown(kind, mode, state, &more);
            assert_eq!((text.as_str(), is_well), expected, "{kind} {mode}");
        }
    }
}
