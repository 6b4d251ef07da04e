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
