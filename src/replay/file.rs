//! The file of a capture. It is validated completely before any call is sent.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;

use crate::capture::{CaptureEnd, CaptureHeader, CapturedCall, FORMAT_VERSION, MessageJson};
use crate::cri::{FieldMessage, MessageSide, Method, MethodName};
use crate::history::json::{Container, Exec, Phases, Pod};
use crate::manifest::ExecPurpose;
use crate::relay::CallOutcome;

/// Maximum number of bytes of a line. The messages of a call are limited to 1 and 4 MiB.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Maximum number of errors that are reported together.
const MAX_PROBLEMS: usize = 20;

/// A capture that has been read.
#[derive(Debug)]
pub struct CaptureFile {
    /// The first line.
    pub header: CaptureHeader,
    /// The calls in the order in which they began.
    pub calls: Vec<RecordedCall>,
    /// Number of calls that are missing.
    pub missed: u64,
    /// The last line; `None` if the file was cut off.
    pub end: Option<CaptureEnd>,
}

/// A recorded call.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// Id of the call.
    pub id: u64,
    /// Time at which the call began.
    pub start: SystemTime,
    /// Duration of the call.
    pub duration: Duration,
    /// The method.
    pub method: MethodName,
    /// The outcome.
    pub outcome: CallOutcome,
    /// Time that the client gave the call.
    pub timeout: Option<Duration>,
    /// The request, if the file has it.
    pub request: Option<FieldMessage>,
    /// Whether arguments of the command were removed.
    pub has_no_command: bool,
    /// Names of the fault rules and policies that affected the call.
    pub affected_by: Vec<String>,
    /// The pod.
    pub pod: Option<Pod>,
    /// The container.
    pub container: Option<Container>,
    /// The command, with its phases.
    pub exec: Option<Exec>,
}

/// Reason why a file is not a valid capture.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    System {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The content is invalid. Each error is a line of the text.
    #[error("{0}")]
    Invalid(String),
}

/// Errors of a file, each with its line.
struct LineProblems<'a> {
    path: &'a Path,
    line: usize,
    found: Vec<String>,
}

impl CaptureFile {
    /// Reads and validates a file. All errors are reported together, up to a limit.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let failed = |error| ReadError::System { path: path.to_owned(), error };
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        Self::parse(BufReader::new(file), path)
    }

    pub(super) fn parse(mut lines: impl BufRead, path: &Path) -> Result<Self, ReadError> {
        let mut problems = LineProblems { path, line: 0, found: Vec::new() };
        let (mut header, mut calls, mut missed, mut end) = (None, Vec::new(), 0, None);
        loop {
            let mut line = Vec::new();
            let read = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            let count = read.map_err(|error| ReadError::System { path: path.to_owned(), error })?;
            if count == 0 {
                break;
            }
            problems.line += 1;
            let is_torn = !line.ends_with(b"\n") && (line.len() as u64) < MAX_LINE_BYTES;
            if is_torn && problems.line > 1 && serde_json::from_slice::<Value>(&line).is_err() {
                // The writer was killed, or its disk was full. The file has no end then.
                break;
            }
            let Some(json) = problems.json(&line) else {
                // Without a header the file is something else, and each line would be an error.
                if problems.line == 1 {
                    break;
                }
                continue;
            };
            if header.is_none() {
                header = problems.header(json);
                if header.is_none() {
                    break;
                }
            } else if end.is_some() {
                problems.add("follows the end of the capture, which must be the last line");
            } else if let Some(count) = json.get("missed") {
                missed = u64::saturating_add(missed, problems.number("missed", count));
            } else if let Some(value) = json.get("end") {
                end = problems.parsed("end", value.clone());
            } else if let Some(call) = problems.call(json) {
                calls.push(call);
            }
            if problems.found.len() >= MAX_PROBLEMS {
                problems.found.push("further errors are not shown".to_owned());
                break;
            }
        }
        if problems.line == 0 {
            problems.line = 1;
            problems.add("is missing: the file is empty, and not a capture of probeshim");
        }
        match header.filter(|_| problems.found.is_empty()) {
            None => Err(ReadError::Invalid(problems.found.join("\n"))),
            Some(header) => {
                calls.sort_by_key(|call| (call.start, call.id));
                Ok(Self { header, calls, missed, end })
            }
        }
    }
}

impl LineProblems<'_> {
    fn add(&mut self, problem: impl std::fmt::Display) {
        self.found.push(format!("{}, line {}: {problem}", self.path.display(), self.line));
    }

    fn json(&mut self, line: &[u8]) -> Option<Value> {
        if !line.ends_with(b"\n") && line.len() as u64 == MAX_LINE_BYTES {
            self.add(format_args!("must have at most {} MiB", MAX_LINE_BYTES >> 20));
            return None;
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(json) if json.is_object() => Some(json),
            Ok(_) => {
                self.add("must be an object in JSON");
                None
            }
            Err(_) if self.line == 1 => {
                self.add("is not a capture; `probeshim capture -o FILE` writes one");
                None
            }
            Err(error) => {
                self.add(format_args!("must be JSON: {error}"));
                None
            }
        }
    }

    fn header(&mut self, json: Value) -> Option<CaptureHeader> {
        match json.get("probeshimCapture") {
            Some(version) if *version == FORMAT_VERSION => self.parsed("the header", json),
            Some(version) => {
                self.add(format_args!(
                    "probeshimCapture {version} must be {FORMAT_VERSION}: another version of probeshim wrote this file"
                ));
                None
            }
            None => {
                self.add(format_args!(
                    "probeshimCapture must be {FORMAT_VERSION}, but is missing: the file is not a capture, which `probeshim capture -o FILE` writes"
                ));
                None
            }
        }
    }

    fn parsed<T: serde::de::DeserializeOwned>(&mut self, name: &str, json: Value) -> Option<T> {
        serde_json::from_value(json).map_err(|error| self.add(format_args!("{name}: {error}"))).ok()
    }

    fn number(&mut self, name: &str, value: &Value) -> u64 {
        value.as_u64().unwrap_or_else(|| {
            self.add(format_args!("{name} {value} must be a whole number from 0"));
            0
        })
    }

    fn call(&mut self, json: Value) -> Option<RecordedCall> {
        let before = self.found.len();
        let CapturedCall { call, timeout_ms, request, response } = self.parsed("the call", json)?;
        let start = call.start.parse::<Timestamp>().map(SystemTime::from);
        let start = start.unwrap_or_else(|_| {
            self.add(format_args!(
                "start {:?} must be a time in RFC 3339, such as 2026-01-31T13:09:32.123Z",
                call.start
            ));
            SystemTime::UNIX_EPOCH
        });
        let duration = self.duration("durationMs", call.duration_ms);
        let timeout = timeout_ms.map(|timeout| self.duration("timeoutMs", timeout));
        let outcome = CallOutcome::named(&call.code).unwrap_or_else(|| {
            self.add(format_args!(
                "code {:?} must be a gRPC code, such as OK, or a reason why there is none, such as client-reset",
                call.code
            ));
            CallOutcome::ClientGone
        });
        let method = Method::from_name(&call.method)
            .map_or_else(|| MethodName::of_path(&call.method), MethodName::Known);
        if matches!(method, MethodName::Unknown(_)) && !call.method.starts_with('/') {
            self.add(format_args!(
                "method {:?} must be a method of the CRI, such as ExecSync, or the path of another method",
                call.method
            ));
        }
        let has_no_command =
            request.as_ref().is_some_and(|request| request.removed.iter().any(|path| path == "cmd"));
        let request = self.message("request", &method, MessageSide::Request, request.as_ref());
        self.message("response", &method, MessageSide::Response, response.as_ref());
        let affected_by = call.faults.into_iter().map(|fault| fault.name).chain(call.policy).collect();
        (self.found.len() == before).then_some(RecordedCall {
            id: call.id,
            start,
            duration,
            method,
            outcome,
            timeout,
            request,
            has_no_command,
            affected_by,
            pod: call.pod,
            container: call.container,
            exec: call.exec,
        })
    }

    fn duration(&mut self, name: &str, milliseconds: f64) -> Duration {
        Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_else(|_| {
            self.add(format_args!("{name} {milliseconds} must be a number of milliseconds from 0"));
            Duration::ZERO
        })
    }

    fn message(
        &mut self,
        name: &str,
        method: &MethodName,
        side: MessageSide,
        json: Option<&MessageJson>,
    ) -> Option<FieldMessage> {
        let (message, MethodName::Known(method)) = (json?.message.as_ref()?, method) else {
            self.add(format_args!("{name} must be null or omitted: {method} is not a method of the CRI"));
            return None;
        };
        let read = FieldMessage::from_json(*method, side, message);
        read.map_err(|error| self.add(format_args!("{name}.message: {error}"))).ok()
    }
}

impl RecordedCall {
    /// Returns the phases of the call, if all are known.
    #[must_use]
    pub fn phases(&self) -> Option<&Phases> {
        self.exec.as_ref()?.phases.as_ref().filter(|phases| phases.state == "complete")
    }

    /// Returns whether the call is the ExecSync of a hook, or of a probe or a hook that have the
    /// same command.
    #[must_use]
    pub fn may_be_hook(&self) -> bool {
        let probe = self.exec.as_ref().and_then(|exec| exec.probe.as_ref());
        probe.is_some_and(|probe| {
            let names = probe.candidates.iter().chain([&probe.r#type]);
            names.filter_map(|name| ExecPurpose::named(name)).any(|purpose| !purpose.is_probe())
        })
    }

    /// Returns the exit code of the command, if the call returned one.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.exec.as_ref()?.exit_code
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HEADER: &str = r#"{"probeshimCapture":1,"version":"0","started":"2026-01-31T13:09:32Z","forMs":1000,"runtime":null,"redactCommands":false}"#;

    fn call(id: u64, second: u32) -> Value {
        json!({
            "id": id, "start": format!("2026-01-31T13:09:{second}Z"), "method": "ExecSync", "durationMs": 2.5,
            "code": "OK", "requestBytes": 1, "responseBytes": 1, "peer": null, "pod": null, "container": null,
            "exec": null, "timeoutMs": 1000, "response": null,
            "request": {"message": {"containerId": "c0ffee", "cmd": ["true"]}},
        })
    }

    fn parse(lines: &[String]) -> Result<CaptureFile, String> {
        let text = lines.join("\n");
        CaptureFile::parse(text.as_bytes(), Path::new("file")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_capture_is_read_in_the_order_of_the_starts_of_its_calls() {
        let end = r#"{"end":{"reason":"duration","calls":2,"missed":3,"unobserved":0}}"#;
        let gap = r#"{"missed":3}"#;
        let lines = [HEADER, &call(8, 33).to_string(), gap, &call(7, 32).to_string(), end];
        let recording = parse(&lines.map(str::to_owned)).unwrap();
        let ids: Vec<u64> = recording.calls.iter().map(|call| call.id).collect();
        assert_eq!((ids, recording.missed), (vec![7, 8], 3));
        assert_eq!(recording.end.unwrap().calls, 2);
        let call = &recording.calls[0];
        assert_eq!(call.request.as_ref().unwrap().text(&["container_id"]).as_deref(), Some("c0ffee"));
        assert_eq!(
            (call.duration, call.timeout),
            (Duration::from_micros(2500), Some(Duration::from_secs(1)))
        );
    }

    #[test]
    fn a_capture_that_ends_within_a_line_has_the_calls_before_it() {
        let torn = &call(8, 33).to_string()[..40];
        let capture = parse(&[HEADER.to_owned(), call(7, 32).to_string(), torn.to_owned()]).unwrap();
        assert_eq!((capture.calls.len(), capture.end.is_none()), (1, true));
    }

    #[test]
    fn all_errors_of_a_capture_are_reported_with_their_line_field_and_value() {
        let changed = |field: &str, value: Value| {
            let mut call = call(1, 32);
            call[field] = value;
            call.to_string()
        };
        let lines = [
            HEADER.to_owned(),
            changed("start", json!("yesterday")),
            changed("code", json!("FINE")),
            changed("durationMs", json!(-1)),
            changed("method", json!("Exec Sync")),
            changed("request", json!({"message": {"command": []}})),
            changed("id", json!("one")),
            "{".to_owned(),
            "[]".to_owned(),
        ];
        let errors = parse(&lines).unwrap_err();
        let expected = [
            "file, line 2: start \"yesterday\" must be a time in RFC 3339",
            "file, line 3: code \"FINE\" must be a gRPC code",
            "file, line 4: durationMs -1 must be a number of milliseconds from 0",
            "file, line 5: method \"Exec Sync\" must be a method of the CRI",
            "file, line 5: request must be null or omitted",
            "file, line 6: request.message: command: []: ",
            "file, line 7: the call: invalid type: string \"one\"",
            "file, line 8: must be JSON: ",
            "file, line 9: must be an object",
        ];
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{errors}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_capture_of_this_version_has_one_error() {
        for (text, expected) in [
            ("", "line 1: is missing"),
            ("{\"a\": 1}\n{", "line 1: probeshimCapture must be 1, but is missing"),
            (r#"{"probeshimCapture": 2}"#, "line 1: probeshimCapture 2 must be 1"),
            ("kind: Pod\nmetadata:\n", "line 1: is not a capture; `probeshim capture -o FILE` writes one"),
        ] {
            let error = parse(&[text.to_owned()]).unwrap_err();
            assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
        }
        let end = r#"{"end":{"reason":"duration","calls":0,"missed":0,"unobserved":0}}"#;
        let error = parse(&[HEADER.to_owned(), end.to_owned(), call(1, 32).to_string()]).unwrap_err();
        assert!(error.contains("line 3: follows the end"), "{error}");
    }
}
