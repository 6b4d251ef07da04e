//! The annotations by which a pod tells probeshim of its probes: `probeshim.io/<liveness|readiness|startup>.<container>`, a probe as JSON.

use std::collections::HashMap;

use serde_json::Value;

use super::manifest;
use super::node::Node;
use super::spec::{Source, Use, Written};
use crate::world::Sandbox;

/// What begins the keys of all of them.
const OURS: &str = "probeshim.io/";

/// What a probe may say.
const FIELDS: [&str; 10] = [
    "exec",
    "httpGet",
    "tcpSocket",
    "grpc",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
];

/// How much is told of one annotation that cannot be read: reasons, and characters.
const TOLD: usize = 3;
const LONGEST: usize = 500;

/// The probes of a container. One that cannot be read is as if it were not there.
pub(super) fn read(sandbox: &Sandbox, container: &str) -> Vec<Written> {
    let read = |(used, _): (Use, &str)| {
        let text = sandbox.annotations.get(&format!("{OURS}{}.{container}", used.name()))?;
        probe(used, text, false).ok()
    };
    Use::PROBES.into_iter().filter_map(read).collect()
}

/// What cannot be read, and why: a sentence for each annotation. `redact`: what is written there may be a command, and is not shown.
#[must_use]
pub fn annotation_problems(sandbox: &Sandbox, redact: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, text) in sandbox.annotations.iter() {
        let Some(name) = key.strip_prefix(OURS) else { continue };
        let problem = match used(name).map(|used| probe(used, text, redact)) {
            None => {
                format!(
                    "annotation {key} means nothing: its key must be {OURS}<liveness|readiness|startup>.<container>"
                )
            }
            Some(Err(reasons)) => {
                let more = reasons.len().saturating_sub(TOLD);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                format!("annotation {key}: {}{more}", reasons[..reasons.len().min(TOLD)].join("; "))
            }
            Some(Ok(_)) => continue,
        };
        problems.push(problem.chars().take(LONGEST).collect());
    }
    problems
}

fn used(name: &str) -> Option<Use> {
    let (used, container) = name.split_once('.')?;
    let mut probes = Use::PROBES.into_iter().map(|(used, _)| used);
    probes.find(|probe| probe.name() == used && !container.is_empty())
}

fn probe(used: Use, text: &str, redact: bool) -> Result<Written, Vec<String>> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| vec![format!("it is not JSON: {error}")])?;
    let node = Node::root("", &value);
    let node = if redact { node.secret() } else { node };
    let mut problems = Vec::new();
    let read = manifest::probe(used, &node, &HashMap::new(), Source::Annotation, &mut problems);
    for field in value.as_object().into_iter().flat_map(|object| object.keys()) {
        if let Some(unknown) = node.field(field).filter(|_| !FIELDS.contains(&field.as_str())) {
            unknown.complain("is no field of a probe", &mut problems);
        }
    }
    if problems.is_empty() {
        Ok((used, read))
    } else {
        Err(problems.iter().map(ToString::to_string).collect())
    }
}
