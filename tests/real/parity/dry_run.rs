//! The rows up to the point of the kill: probeshim makes the probes in `dry-run`, and says what it would do.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Expected, Row, watch};
use crate::real::probing::{Pod, Probing};
use crate::real::server::wait_for;

/// Makes the pods of these rows, and looks whether each is as it is expected to be. In the twins of table 9.7 the container that is probed
/// runs beside the main one.
pub(crate) fn hold(rows: &[Row], is_sidecar: bool) -> Result<(), String> {
    let manifests: Vec<Value> =
        rows.iter().enumerate().map(|(place, row)| row.manifest(place, is_sidecar)).collect();
    let probing = Probing::start(&manifests, "dry-run")?;
    // A prober that is younger than a period lets its workers begin at any time within it.
    let period = rows.iter().flat_map(Row::periods).max().unwrap_or(0);
    let started = Instant::now();
    wait_for("the prober is old enough", || (started.elapsed() > Duration::from_secs(period)).then_some(()));
    // The first row is made last and looked at first, since it asks when something happened.
    let mut pods: Vec<(Pod, SystemTime)> = manifests
        .iter()
        .rev()
        .map(|manifest| {
            let pod = probing.run(manifest);
            (pod, SystemTime::now())
        })
        .collect();
    pods.reverse();
    let begun = Instant::now();
    for (row, (pod, since)) in rows.iter().zip(&pods) {
        row.check(&probing, pod, *since);
    }
    watch(begun);
    for (row, (pod, _)) in rows.iter().zip(&pods) {
        row.check_again(&probing, pod, is_sidecar);
    }
    Ok(())
}

impl Row {
    /// Waits for what is expected to happen.
    fn check(&self, probing: &Probing, pod: &Pod, since: SystemTime) {
        let (name, what) = (&pod.name, self.name);
        let container = || {
            let status = probing.status(name);
            let containers = status["containers"].as_array().cloned().unwrap_or_default();
            containers.into_iter().find(|container| container["name"] == "probed").unwrap_or_default()
        };
        match self.expected {
            Expected::Killed(count) => probing.wait_for_event(name, "WouldKill", "", count),
            Expected::KilledWithin(grace) => probing.wait_for_event(name, "WouldKill", grace, 1),
            Expected::Warned(text) => probing.wait_for_event(name, "ProbeWarning", text, 1),
            Expected::ReadyAfter(seconds) => {
                let after = wait_for(what, || probing.ready_after(name, "probed", since));
                assert!(after >= Duration::from_secs(seconds), "{what}: ready after {after:?}");
            }
            Expected::ReadyWithStartup => {
                wait_for(what, || (container()["started"] == true).then_some(()));
                let started = Instant::now();
                wait_for(what, || (container()["ready"] == true).then_some(()));
                let (after, events) = (started.elapsed(), probing.events(name));
                assert!(after < Duration::from_secs(10), "{what}: after {after:?} {events:#?}");
            }
            Expected::Well => {
                wait_for(what, || (container()["ready"] == true).then_some(()));
            }
            Expected::NotReady | Expected::NotStarted => {
                probing.wait_for_event(name, "Unhealthy", "", 2);
            }
            Expected::NotReadyAtTheEnd => {
                wait_for(what, || (container()["ready"] == true).then_some(()));
                let id = pod.containers.first().unwrap();
                let stopping = probing.crictl.spawn(&["stop", "--timeout", "20", id]);
                wait_for(what, || {
                    let now = container();
                    (now["ready"] == false && now["state"] == "running").then_some(())
                });
                stopping.output();
            }
        }
    }

    /// Looks whether what must not happen has not.
    fn check_again(&self, probing: &Probing, pod: &Pod, is_sidecar: bool) {
        let (name, what) = (&pod.name, self.name);
        let status = probing.status(name);
        let containers = status["containers"].as_array().unwrap();
        let probed = containers.iter().find(|container| container["name"] == "probed").unwrap();
        let kills = probing.count(name, "WouldKill", "");
        let shown = || format!("{what}: {status:#} {:#?}", probing.events(name));
        match self.expected {
            Expected::Killed(_) | Expected::KilledWithin(_) => {
                let message =
                    if is_sidecar { "Init container probed failed" } else { "Container probed failed" };
                // One look: while another is taken one more may be told.
                let events = probing.events(name);
                let mut told = events.iter().filter(|event| event["reason"] == "WouldKill");
                let says_so = |event: &Value| event["message"].as_str().unwrap().starts_with(message);
                assert!(kills > 0 && told.all(says_so), "{}", shown());
            }
            Expected::Well | Expected::Warned(_) | Expected::ReadyAfter(_) | Expected::ReadyWithStartup => {
                assert_eq!(kills, 0, "{}", shown());
                assert_eq!((&probed["ready"], &status["ready"]), (&json!(true), &json!(true)), "{}", shown());
            }
            Expected::NotReady | Expected::NotStarted => {
                assert_eq!(kills, 0, "{}", shown());
                let field = if self.expected == Expected::NotReady { "ready" } else { "started" };
                assert_eq!((&probed[field], &status["ready"]), (&json!(false), &json!(false)), "{}", shown());
            }
            Expected::NotReadyAtTheEnd => {
                assert_eq!(kills, 0, "{}", shown());
                // Those that run beside the main one are probed to the very end; of others an attempt may have been under way.
                let failed = probing.count(name, "Unhealthy", "Liveness probe failed");
                assert!(is_sidecar || failed <= 1, "{}", shown());
            }
        }
    }
}
