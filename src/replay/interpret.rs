//! Interprets arbitrary bytes as the file of a capture, for a fuzz target.

use std::path::Path;
use std::time::Duration;

use super::file::{CaptureFile, RecordedCall};
use super::report::{ReplayReport, ReplayedCall};
use super::run::{Schedule, limit, plan};
use super::targets::Targets;
use crate::capture::CaptureRuntime;
use crate::cri::FieldClient;
use crate::cri::v1::{Container, ContainerMetadata, PodSandbox, PodSandboxMetadata};
use crate::socket::SocketPath;

/// Reads bytes as a capture, and returns the report of a replay whose calls end as recorded, except
/// for their exit codes and durations. Every second object of the capture is on the node. Returns
/// `None` if the bytes are no capture.
pub(crate) fn interpret_capture(bytes: &[u8]) -> Option<ReplayReport> {
    let file = match CaptureFile::parse(bytes, Path::new("capture")) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().lines().next().is_some_and(|line| line.starts_with("capture, line ")));
            return None;
        }
    };
    let upstream = SocketPath::parse("unix:///run/runtime.sock").expect("the path is absolute");
    let targets = node(&file.calls);
    let runtime = CaptureRuntime { name: "runtime".to_owned(), version: "1".to_owned() };
    let mut report = ReplayReport::new(&file, &upstream, runtime);
    let (mut sent, mut schedule) = (Vec::new(), Schedule::default());
    for (index, call) in file.calls.iter().enumerate() {
        match plan(call, &targets, index % 2 == 0) {
            Ok((_, request)) => {
                schedule.next(call.start, 0.5);
                drop(FieldClient::request(request, limit(call).0));
                sent.push(replayed(call));
            }
            Err(reason) => report.skip(reason, &targets),
        }
    }
    report.shortened = schedule.shortened;
    report.add(sent);
    Some(report)
}

/// Returns the result of a call that was sent again.
fn replayed(call: &RecordedCall) -> ReplayedCall<'_> {
    ReplayedCall {
        recorded: call,
        outcome: call.outcome,
        message: Some("message".to_owned()),
        exit_code: call.exit_code().map(i32::wrapping_neg),
        duration: Duration::from_millis(call.id % 100),
        phases: call.phases().cloned(),
    }
}

/// Returns a node that has every second object of a capture, with other ids.
fn node(calls: &[RecordedCall]) -> Targets {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for call in calls.iter().step_by(2) {
        let Some(pod) = &call.pod else { continue };
        let id = format!("sandbox-{}", call.id);
        let metadata = PodSandboxMetadata {
            name: pod.name.clone().unwrap_or_default(),
            namespace: pod.namespace.clone().unwrap_or_default(),
            uid: pod.uid.clone().unwrap_or_default(),
            ..PodSandboxMetadata::default()
        };
        sandboxes.push(PodSandbox { id: id.clone(), metadata: Some(metadata), ..PodSandbox::default() });
        let name = call.container.as_ref().and_then(|container| container.name.clone());
        containers.extend(name.map(|name| Container {
            id: format!("container-{}", call.id),
            pod_sandbox_id: id,
            metadata: Some(ContainerMetadata { name, attempt: 0 }),
            ..Container::default()
        }));
    }
    Targets::new(sandboxes, containers, calls)
}
