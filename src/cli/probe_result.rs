//! The result of a probe in a few words.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;

use crate::admin::api::{StatusContainer, StatusPod, StatusProbe};
use crate::manifest::ProbeType;
use crate::terminal::format;

/// Verdict and result of a probe that has succeeded.
const SUCCESS: &str = "success";

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
        let well = |text: String| ProbeResultText { text, is_well: true };
        let unwell = |text: String| ProbeResultText { text, is_well: false };
        if container.state != "running" {
            return unwell(format!("container {}", container.state));
        }
        let age = probe.since.as_deref().map(|since| format::age(since, now));
        let since = age.map(|age| format!(" since {age}")).unwrap_or_default();
        let is_startup = probe.r#type == ProbeType::Startup.name();
        match (probe.result.as_deref(), probe.on_hold) {
            (Some("error"), _) => {
                let cause = probe.last_error.as_deref().map(|cause| format!(" ({cause})"));
                unwell(format!("erroring ×{}{}", probe.errors, cause.unwrap_or_default()))
            }
            (Some(SUCCESS), true) if is_startup => well(format!("ok{since}, completed")),
            (Some("failure"), true) => unwell(format!("failed{since}, on hold")),
            (_, true) => well("on hold".to_owned()),
            (Some(SUCCESS), false) if probe.verdict.as_deref() == Some(SUCCESS) => well(format!("ok{since}")),
            (Some(SUCCESS), false) => unwell(format!(
                "ok {} in a row, {} at {}",
                probe.run,
                effect_of_success(&probe.r#type),
                probe.threshold
            )),
            (Some(_), false) => unwell(format!(
                "failed {} in a row, {} at {}",
                probe.run,
                effect_of_failure(&probe.r#type, mode),
                probe.threshold
            )),
            (None, false) => well("not yet run".to_owned()),
        }
    }
}

impl ProbeResultText {
    pub(super) fn style(&self) -> Style {
        if self.is_well { Style::new() } else { AnsiColor::Yellow.on_default() }
    }
}

/// Returns the effect of a probe that succeeds as often as its threshold says.
fn effect_of_success(probe_type: &str) -> &'static str {
    if probe_type == ProbeType::Readiness.name() { "ready" } else { "succeeds" }
}

/// Returns the effect of a probe that fails as often as its threshold says.
fn effect_of_failure(probe_type: &str, mode: &str) -> &'static str {
    match mode {
        _ if probe_type == ProbeType::Readiness.name() => "unready",
        "kill" | "restart" => "kills",
        _ => "would kill",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_result_of_a_probe_states_its_run_and_the_effect_at_its_threshold() {
        let pod: StatusPod = serde_json::from_value(json!({
            "namespace": "shop", "name": "web", "uid": "1", "id": "s", "sandbox": "ready", "ip": null, "source": "list",
            "containers": [],
        }))
        .unwrap();
        let now = "2026-11-24T13:00:40Z".parse().unwrap();
        let shown = |kind: &str, mode: &str, state: &str, more: serde_json::Value| {
            let mut probe = json!({
                "type": kind, "handler": "exec", "source": "manifest", "result": null, "run": 0, "threshold": 1, "verdict": null,
                "onHold": false, "wouldHaveKilled": 0, "since": "2026-11-24T13:00:00.000Z",
            });
            probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let container = json!({"name": "main", "id": "c", "state": state, "source": "list"});
            let (container, probe) =
                (serde_json::from_value(container).unwrap(), serde_json::from_value(probe).unwrap());
            let text = ProbeOfPod { pod: &pod, container: &container, probe: &probe }.result(mode, now);
            (text.text, text.is_well)
        };
        let failing = json!({"result": "failure", "run": 17, "threshold": 3, "verdict": "success"});
        let held = json!({"result": "failure", "onHold": true, "verdict": "failure"});
        let erroring = json!({"result": "error", "errors": 8, "lastError": "executable not found", "verdict": "success"});
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
                ("ok 1 in a row, ready at 2", false),
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
            ("readiness", "kill", "running", failing.clone(), ("failed 17 in a row, unready at 3", false)),
            ("liveness", "kill", "running", held, ("failed since 40s, on hold", false)),
            ("liveness", "kill", "running", erroring, ("erroring ×8 (executable not found)", false)),
            ("liveness", "kill", "running", json!({"verdict": "success"}), ("not yet run", true)),
            ("liveness", "kill", "exited", failing, ("container exited", false)),
        ] {
            let (text, is_well) = shown(kind, mode, state, more);
            assert_eq!((text.as_str(), is_well), expected, "{kind} {mode}");
        }
    }
}
