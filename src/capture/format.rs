//! The lines of a capture, in JSON as in `history::json`. The first line is the header, and the
//! last one is the end.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hub::CaptureItem;
use crate::cri::{FieldMessage, MessageSide, MethodName, Redaction};
use crate::history::json::{Call, milliseconds};
use crate::redact::without_queries;
use crate::tap::{BodyOmission, CapturedBody};

/// Version of the format. Any change other than a new field raises it.
pub const FORMAT_VERSION: u32 = 1;

/// The first line of a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureHeader {
    /// Version of the format: [`FORMAT_VERSION`].
    pub probeshim_capture: u32,
    /// Version of the probeshim that captured the calls.
    pub version: String,
    /// Time at which the capture began.
    pub started: String,
    /// Requested duration of the capture.
    pub for_ms: f64,
    /// The runtime; null if it did not answer.
    pub runtime: Option<CaptureRuntime>,
    /// Whether arguments of commands were removed.
    pub redact_commands: bool,
}

/// The runtime that answered the calls of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRuntime {
    /// Name of the runtime, such as `containerd`.
    pub name: String,
    /// Version of the runtime.
    pub version: String,
}

/// A line after the header.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CaptureLine {
    /// A call that has ended.
    Call(Box<CapturedCall>),
    /// Calls are missing here, because they arrived too fast.
    Missed {
        /// Number of missing calls.
        missed: u64,
    },
    /// The end of the capture.
    End {
        /// Reason and totals.
        end: CaptureEnd,
    },
}

/// A call with its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturedCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Time that the client gave the call; null if it gave none, or if it is unknown.
    #[serde(rename = "timeoutMs")]
    pub timeout_ms: Option<f64>,
    /// The request; null if there was none.
    pub request: Option<MessageJson>,
    /// The response; null if there was none, such as after a failure.
    pub response: Option<MessageJson>,
}

/// A message of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageJson {
    /// The message in the JSON of protobuf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// Paths of the fields from which values were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Reason why there is no message: `not-captured`, `too-long`, `no-room`, `compressed`,
    /// `incomplete`, `stream`, `unknown-method` or `malformed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<String>,
}

/// The last line of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureEnd {
    /// Reason of the end.
    pub reason: CaptureEndReason,
    /// Number of calls in the capture.
    pub calls: u64,
    /// Number of calls that are missing, because they arrived too fast for this capture. Those that
    /// were not analyzed at its end count too, if their method and client match its filter.
    pub missed: u64,
    /// Number of calls that probeshim forwarded but did not observe; null if it is unknown.
    pub unobserved: Option<u64>,
}

/// Reason for the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureEndReason {
    /// The requested duration was over.
    Duration,
    /// The file had reached its maximum size.
    MaxBytes,
    /// The user ended the capture.
    Interrupted,
    /// probeshim ended.
    ProbeshimEnded,
}

impl CapturedCall {
    /// Decodes the messages of a call, and removes secrets from all its parts.
    #[must_use]
    pub fn new(item: &CaptureItem, redaction: Redaction) -> Self {
        let CaptureItem { record, bodies, timeout, .. } = item;
        let mut call = match redaction {
            Redaction::Secrets => Call::from(&**record),
            Redaction::SecretsAndCommands => Call::from(&(**record).clone().redacted()),
        };
        call.message = call.message.map(|message| without_queries(&message).into_owned());
        if let Some(exec) = &mut call.exec {
            exec.output = None;
        }
        // The messages of failed attempts contain output.
        if let Some(kill) = &mut call.kill {
            kill.failures.clear();
        }
        let method = &record.call.method;
        let message = |side, body| MessageJson::new(method, side, body, redaction);
        Self {
            call,
            timeout_ms: timeout.map(|timeout: Duration| milliseconds(timeout)),
            request: message(MessageSide::Request, &bodies.request),
            response: message(MessageSide::Response, &bodies.response),
        }
    }
}

impl MessageJson {
    /// Returns the message of one direction without secrets; `None` if there was none.
    fn new(
        method: &MethodName,
        side: MessageSide,
        body: &CapturedBody,
        redaction: Redaction,
    ) -> Option<Self> {
        let bytes = match body {
            CapturedBody::Absent => return None,
            CapturedBody::Omitted(reason) => return Some(Self::omitted(*reason)),
            CapturedBody::Message(capture) => capture.bytes().unwrap_or_default(),
        };
        let MethodName::Known(method) = method else {
            return Some(Self::omitted(BodyOmission::UnknownMethod));
        };
        let Some(mut message) = FieldMessage::decode(*method, side, bytes) else {
            return Some(Self::omitted(BodyOmission::Malformed));
        };
        let removed = message.remove_secrets(redaction);
        Some(Self { message: Some(message.to_json()), removed, omitted: None })
    }

    fn omitted(reason: BodyOmission) -> Self {
        Self { omitted: Some(reason.name().to_owned()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use prost::Message as _;

    use super::*;
    use crate::cri::v1;
    use crate::execsync::CallRecord;
    use crate::relay::{Capture, CaptureBudget};
    use crate::tap::{self, CallBodies, ExecCall, KillRecord, ProbeFailure};

    const SECRET: &str = "s3cret";

    #[test]
    fn a_captured_call_has_no_output_and_its_line_can_be_read_again() {
        let path = "/runtime.v1.RuntimeService/ExecSync";
        let exec = ExecCall {
            command: vec!["cat".into(), "file".into()],
            output: Some(SECRET.into()),
            ..ExecCall::default()
        };
        let failure = ProbeFailure { at: SystemTime::UNIX_EPOCH, message: SECRET.to_owned() };
        let kill = KillRecord {
            probe: "liveness".to_owned(),
            message: "failed".to_owned(),
            threshold: 1,
            grace_period: 30,
            failures: vec![failure],
        };
        let call = tap::Call {
            exec: Some(Box::new(exec)),
            kill: Some(Box::new(kill)),
            ..tap::Call::sample(7, path, SystemTime::UNIX_EPOCH, Duration::from_millis(5))
        };
        let budget = CaptureBudget::new(1000);
        let body = |bytes: Vec<u8>| CapturedBody::Message(Capture::copied(&bytes, &budget));
        let request = v1::ExecSyncRequest { cmd: vec!["cat".into(), "file".into()], ..Default::default() };
        let response = v1::ExecSyncResponse { stdout: SECRET.into(), ..Default::default() };
        let bodies =
            CallBodies { request: body(request.encode_to_vec()), response: body(response.encode_to_vec()) };
        let item = CaptureItem {
            record: Arc::new(CallRecord::unanalyzed(call, None, None)),
            bodies: Arc::new(bodies),
            timeout: Some(Duration::from_secs(2)),
            missed: 0,
        };
        let captured = CapturedCall::new(&item, Redaction::Secrets);
        let text = serde_json::to_string(&captured).unwrap();
        assert!(!text.contains(SECRET), "{text}");
        assert!(text.contains(r#""request":{"message":{"cmd":["cat","file"]}}"#), "{text}");
        assert_eq!(serde_json::from_str::<CapturedCall>(&text).unwrap(), captured);
        let redacted = CapturedCall::new(&item, Redaction::SecretsAndCommands);
        let text = serde_json::to_string(&redacted).unwrap();
        assert!(!text.contains("file") && text.contains(r#""removed":["cmd"]"#), "{text}");
    }
}
