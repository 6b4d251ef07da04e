//! The last results of ExecSyncs, from calls as they end.

use std::collections::HashMap;

use super::probe_key::ProbeKey;
use super::row_result::RowResult;
use crate::admin::api::Call;
use crate::execsync::{Assessment, CallRecord, ExecVerdict};
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

/// Returns the result of an ExecSync in a few words, by the verdict that lints and reports count.
pub(crate) fn result_of(call: &Call) -> RowResult {
    let unknown = RowResult { text: "?".to_owned(), ..RowResult::default() };
    let Ok(record) = CallRecord::try_from(call.clone()) else { return unknown };
    let Some(verdict) = ExecVerdict::from_record(&record) else { return unknown };
    let is_slow = matches!(record.analysis.as_deref().map(|it| it.assessment), Some(Assessment::Slow(_)));
    match verdict {
        ExecVerdict::Success if record.is_late() => RowResult::of_kind(ResultKind::Late),
        ExecVerdict::Success if is_slow => RowResult::of_kind(ResultKind::Slow),
        ExecVerdict::Success => RowResult::ok(),
        ExecVerdict::TimedOut => RowResult::of_kind(ResultKind::Timeout),
        ExecVerdict::Failure => match record.call.exec.as_deref().and_then(|exec| exec.result) {
            Some(result) => RowResult::bad(format!("exit {}", result.exit_code)),
            None => RowResult::of_kind(ResultKind::Failure),
        },
        ExecVerdict::Error => RowResult::bad(call.code.clone()),
        ExecVerdict::Unknown => unknown,
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
    fn a_command_that_its_client_gave_up_and_the_timeout_killed_is_a_timeout() {
        let mut given_up = call("sleep", 0, -1000.0);
        given_up.code = "client-reset".to_owned();
        if let Some(exec) = &mut given_up.exec {
            (exec.exit_code, exec.timeout_seconds) = (None, 1);
            (exec.started_ms, exec.exited_ms, exec.exit_status) = (Some(10.0), Some(1010.0), Some(137));
        }
        assert_eq!(result_of(&given_up), RowResult::bad("timeout".to_owned()));
    }

    #[test]
    fn an_exit_code_of_0_after_the_timeout_is_late_and_not_bad() {
        let late = result_of(&call("true", 0, -20.0));
        assert_eq!(late, RowResult { text: "late".to_owned(), ..RowResult::default() });
        assert!(result_of(&call("true", 1, -20.0)).is_bad);
        let record = crate::execsync::CallRecord::try_from(call("true", 0, -20.0)).unwrap();
        assert!(record.is_late() && !record.is_failed());
        let mut row = crate::history::timeline::Minute::default();
        row.add_call(&record);
        assert_eq!((row.successes, row.slow, row.late, row.failed()), (1, 1, 1, 0));
        assert_eq!(ResultKind::worst(&row), Some(ResultKind::Late));
    }
}
