//! The last results of ExecSyncs, from calls as they end.

use std::collections::HashMap;

use super::probe_key::ProbeKey;
use super::row_result::RowResult;
use crate::admin::api::Call;
use crate::report::ResultKind;

/// Maximum number of probes with a last result.
const MAX_PROBES: usize = 20_000;

/// The last result of each probe, from its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastResults(HashMap<ProbeKey, RowResult>);

impl LastResults {
    /// Records the result of a call.
    pub(crate) fn add(&mut self, call: &Call) {
        let Some(key) = ProbeKey::from_call(call) else { return };
        if self.0.len() < MAX_PROBES || self.0.contains_key(&key) {
            self.0.insert(key, result_of(call));
        }
    }

    pub(crate) fn get(&self, key: &ProbeKey) -> Option<&RowResult> {
        self.0.get(key)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the result of an ExecSync in a few words.
pub(crate) fn result_of(call: &Call) -> RowResult {
    let exec = call.exec.as_ref();
    // A late exit code 0 is a success.
    let is_late = exec.and_then(|exec| exec.margin_ms).is_some_and(|margin| margin < 0.0);
    let is_slow = exec.and_then(|exec| exec.assessment.as_deref()) == Some("slow");
    let bad = |text: String| RowResult { text, is_bad: true };
    match (call.code.as_str(), exec.and_then(|exec| exec.exit_code)) {
        ("DEADLINE_EXCEEDED", _) => bad("timeout".to_owned()),
        ("OK", Some(0)) if is_late => RowResult::of_kind(ResultKind::Late),
        ("OK", Some(0)) if is_slow => RowResult::of_kind(ResultKind::Slow),
        ("OK", Some(0)) => RowResult::ok(),
        ("OK", Some(code)) => bad(format!("exit {code}")),
        ("OK", None) => RowResult { text: "?".to_owned(), is_bad: false },
        (code, _) => bad(code.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ExecSync of a command that belongs to no known probe.
    fn call(command: &str, exit_code: i32, margin_ms: f64) -> Call {
        let samples = include_str!("../history/json/samples.jsonl").lines();
        let mut call = samples
            .map(|line| serde_json::from_str::<Call>(line).unwrap())
            .find(|call| call.exec.as_ref().is_some_and(|exec| exec.phases.is_some()))
            .unwrap();
        call.code = "OK".to_owned();
        if let Some(exec) = &mut call.exec {
            exec.command = vec![command.to_owned()];
            (exec.exit_code, exec.margin_ms, exec.probe) = (Some(exit_code), Some(margin_ms), None);
            exec.assessment = Some("slow".to_owned());
            exec.slow_because = Some("half-of-timeout".to_owned());
        }
        call
    }

    #[test]
    fn each_command_of_a_container_has_its_own_last_result() {
        let (fine, failed) = (call("true", 0, 500.0), call("false", 3, 500.0));
        let mut results = LastResults::default();
        results.add(&fine);
        results.add(&failed);
        let text = |call: &Call| results.get(&ProbeKey::from_call(call).unwrap()).unwrap().text.clone();
        assert_eq!((text(&fine), text(&failed)), ("slow".to_owned(), "exit 3".to_owned()));
    }

    #[test]
    fn an_exit_code_of_0_after_the_timeout_is_late_and_not_bad() {
        let late = result_of(&call("true", 0, -20.0));
        assert_eq!(late, RowResult { text: "late".to_owned(), is_bad: false });
        assert!(result_of(&call("true", 1, -20.0)).is_bad);
        let record = crate::execsync::CallRecord::try_from(call("true", 0, -20.0)).unwrap();
        assert!(record.is_late() && !record.is_failed());
        let mut row = crate::history::timeline::Minute::default();
        row.add_call(&record);
        assert_eq!((row.successes, row.slow, row.late, row.failed()), (1, 1, 1, 0));
        assert_eq!(ResultKind::worst(&row), Some(ResultKind::Late));
    }
}
