//! The condition under which the diagnoses of an incident are read.

use fixtures::wait::seldom_looks;
use serde_json::Value;

use super::answer::Ask;
use super::incident::Until;

/// Observations of a pod.
struct Observed {
    /// Its ExecSyncs.
    calls: Vec<Value>,
    /// Its events.
    events: Vec<Value>,
    /// Status of its first container.
    status: Value,
}

/// Waits until a condition holds. Calls up to the id `after` do not count. `status` returns the
/// status of the pod. The error names the missing part.
pub(crate) fn reached(
    until: &Until,
    pod: &str,
    after: u64,
    ask: Ask<'_>,
    status: impl Fn() -> Option<Value>,
) -> Result<(), String> {
    let mut missing = String::new();
    let result = wait("", || {
        let calls = ["calls", "--method", "ExecSync", "--namespace", "e2e", "--pod", pod];
        let mut calls = list(ask, &calls);
        calls.retain(|call| call["id"].as_u64().unwrap() > after);
        let mut events = list(ask, &["events"]);
        events.retain(|event| event["pod"] == pod);
        let status = status().map(|pod| pod["status"]["containerStatuses"][0].clone()).unwrap_or_default();
        missing = missing_parts(until, &Observed { calls, events, status });
        missing.is_empty().then_some(())
    });
    result.map_err(|_| missing)
}

/// Waits until there is a finding of a lint.
pub(crate) fn found(lint: &str, ask: Ask<'_>) -> Result<(), String> {
    wait(&format!("a finding of {lint}"), || {
        list(ask, &["lint"]).iter().any(|found| found["lint"] == lint).then_some(())
    })
}

/// Returns the list that a command of probeshim prints; an empty one before the pod is known.
pub(crate) fn list(ask: Ask<'_>, arguments: &[&str]) -> Vec<Value> {
    let output = ask(&[arguments, &["-o", "json"]].concat());
    output.map_or_else(|_| Vec::new(), |output| serde_json::from_str(&output).unwrap())
}

/// Waits until `look` returns a value. The error is `what`.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    seldom_looks().find_map(|()| look()).ok_or_else(|| what.to_owned())
}

/// Returns the parts of a condition that do not hold yet; an empty text if it holds.
fn missing_parts(until: &Until, observed: &Observed) -> String {
    let Observed { calls, events, status } = observed;
    let assessed = |name: &str| calls.iter().filter(|call| call["exec"]["assessment"] == name).count();
    let has_code = |code: &String| calls.iter().any(|call| call["code"] == code.as_str());
    let restarts = status["restartCount"].as_u64().unwrap_or(0);
    let times = |reason: &String| -> u64 {
        let events = events.iter().filter(|event| event["reason"] == reason.as_str());
        events.filter_map(|event| event["count"].as_u64()).sum()
    };
    let parts = [
        (calls.len() < until.calls).then(|| format!("{} of {} calls", calls.len(), until.calls)),
        (assessed("failed") < until.failed)
            .then(|| format!("{} of {} failed calls", assessed("failed"), until.failed)),
        (assessed("slow") < until.slow).then(|| format!("{} of {} slow calls", assessed("slow"), until.slow)),
        (restarts < until.restarts).then(|| format!("{restarts} of {} restarts", until.restarts)),
        until.code.as_ref().filter(|code| !has_code(code)).map(|code| format!("a call with {code}")),
        until
            .event
            .as_ref()
            .filter(|reason| times(reason) < until.times.max(1))
            .map(|reason| format!("{} of {} events {reason}", times(reason), until.times.max(1))),
        (until.ready && status["ready"] != true).then(|| "readiness".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
