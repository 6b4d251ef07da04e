//! Spans of calls, with the phases of an ExecSync as children.

use super::analysis::CallRecord;
use super::cause::name::cause_names;
use super::phases::Phases;
use crate::cri::Code;
use crate::relay::CallOutcome;
use crate::tap::Call;
use crate::telemetry::traces::{Span, Value};

impl CallRecord {
    /// Returns the span of the call. If all phases are known, they are its children: they follow
    /// each other without a gap.
    #[must_use]
    pub fn span(&self) -> Span {
        let call = &*self.call;
        let header = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
        let parent = self.trace.as_ref();
        let parent =
            parent.and_then(|trace| Some((header(&trace.parent)?, trace.state.as_ref().and_then(header))));
        let insight = self.analysis.as_deref();
        Span {
            name: format!("runtime.v1.RuntimeService/{}", call.method),
            start: call.start,
            end: call.start + call.duration,
            parent,
            attributes: attributes(self),
            error: (call.ending != CallOutcome::Completed(Some(Code::OK))).then(|| call.ending.to_string()),
            children: insight.map(|insight| parts(call, &insight.phases)).unwrap_or_default(),
        }
    }
}

fn attributes(record: &CallRecord) -> Vec<(&'static str, Value)> {
    let (call, insight) = (&*record.call, record.analysis.as_deref());
    let mut known = vec![
        ("rpc.system", Value::Text("grpc".to_owned())),
        ("rpc.service", Value::Text("runtime.v1.RuntimeService".to_owned())),
        ("rpc.method", Value::Text(call.method.to_string())),
    ];
    if let CallOutcome::Completed(Some(Code(code))) = call.ending {
        known.push(("rpc.grpc.status_code", Value::Int(code.into())));
    }
    let mut text = |key, value: Option<&String>| {
        known.extend(value.map(|value| (key, Value::Text(value.clone()))));
    };
    if let Some(pod) = call.pod.as_deref() {
        text("k8s.namespace.name", pod.namespace.as_ref());
        text("k8s.pod.name", pod.name.as_ref());
        text("k8s.pod.uid", pod.uid.as_ref());
    }
    if let Some(container) = call.container.as_deref() {
        text("k8s.container.name", container.name.as_ref());
        text("container.id", container.id.as_ref());
    }
    known.push(("probeshim.call", Value::Int(i64::try_from(call.id).unwrap_or(i64::MAX))));
    if let Some(exec) = call.exec.as_deref() {
        known.push(("process.command_args", Value::Texts(exec.command.clone())));
        known.push(("probeshim.timeout_seconds", Value::Int(exec.timeout_seconds)));
        known.extend(exec.result.map(|result| ("process.exit.code", Value::Int(result.exit_code.into()))));
    }
    if let Some(marks) = call.marks.as_deref() {
        let names = marks.faults.iter().map(|mark| mark.name.to_string()).collect();
        known.push(("probeshim.faults", Value::Texts(names)));
        let policies = marks.policy_names().map(str::to_owned).collect();
        known.push(("probeshim.policy", Value::Texts(policies)));
    }
    if let Some(insight) = insight {
        let causes: Vec<String> = cause_names(record).into_iter().map(str::to_owned).collect();
        if !causes.is_empty() {
            known.push(("probeshim.causes", Value::Texts(causes)));
        }
        let probe = insight.identity.label();
        known.extend(probe.map(|probe| ("probeshim.probe", Value::Text(probe.to_owned()))));
        known.push(("probeshim.phases", Value::Text(insight.phases.state().to_owned())));
        let margin = insight.margin.map(|margin| margin.as_signed_ms(|margin| margin.as_secs_f64() * 1e3));
        known.extend(margin.map(|margin| ("probeshim.margin_ms", Value::Float(margin))));
    }
    known
}

fn parts(call: &Call, phases: &Phases) -> Vec<(&'static str, std::time::SystemTime, std::time::SystemTime)> {
    let Phases::Complete(parts) = phases else { return Vec::new() };
    // In complete phases, `other` is the time before the request was complete.
    let mut at = call.start + parts.other;
    let mut spans = Vec::new();
    for (name, time) in parts.named() {
        if let Some(time) = time.filter(|_| name != "other") {
            spans.push((name, at, at + time));
            at += time;
        }
    }
    spans
}
