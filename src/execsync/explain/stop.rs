//! Sentences about the stop of the container of a call.

use std::time::SystemTime;

use crate::cri::signal_name;
use crate::execsync::analysis::CallRecord;
use crate::execsync::cause::ExecVerdict;
use crate::execsync::identity::ProbeMatch;
use crate::kill::ObservedKill;
use crate::terminal::format::duration;

/// The stop of a container, as its `Killing` event reports it.
#[derive(Clone, Debug)]
pub struct ContainerStop {
    /// Message of the event.
    pub message: String,
    /// Time of the event.
    pub at: SystemTime,
    /// Exit code of the container, if it has exited.
    pub exit_code: Option<i32>,
}

impl ContainerStop {
    /// Returns whether a record is about this stop: it is the call that stopped the container, or
    /// the last attempt of the probe before it.
    #[must_use]
    pub fn is_shown_by(&self, record: &CallRecord) -> bool {
        let call = &*record.call;
        if call.method.label() == "StopContainer" {
            return call.start == self.at;
        }
        let Some(ProbeMatch::Matched { uses, period: Some(period), .. }) =
            record.analysis.as_deref().map(|analysis| &analysis.identity)
        else {
            return false;
        };
        let has_failed =
            matches!(ExecVerdict::from_record(record), Some(ExecVerdict::Failure | ExecVerdict::TimedOut));
        let is_named = uses.iter().any(|used| {
            let failed = format!(" failed {} probe", used.name());
            self.message.contains(&failed)
        });
        // A later attempt would have ended at least a period later.
        let since = self.at.duration_since(call.start + call.duration);
        has_failed && is_named && since.is_ok_and(|since| since < *period)
    }

    /// Describes the reason of the call that made the stop, and its effect.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut sentences = vec![format!("The event of this stop: {}.", self.message_without_command())];
        if let Some(code) = self.exit_code {
            let signal = signal_name(code).map(|signal| format!(" ({signal})")).unwrap_or_default();
            sentences.push(format!("The container exited with code {code}{signal}."));
        }
        sentences
    }

    /// Describes the stop that follows an attempt of a probe.
    pub(super) fn describe_after(&self, record: &CallRecord) -> Option<String> {
        let call = &*record.call;
        let later = duration(self.at.duration_since(call.start + call.duration).ok()?);
        Some(format!("The container was stopped {later} later: {}.", self.message_without_command()))
    }

    /// Returns the message without the command of the probe, which may have to be hidden.
    fn message_without_command(&self) -> String {
        let kill = ObservedKill::of_message(&self.message);
        kill.map_or_else(|| self.message.clone(), |kill| ObservedKill { command: None, ..kill }.to_string())
    }
}
