//! The annotations by which a pod tells probeshim of its probes: `probeshim.io/<liveness|readiness|startup>.<container>`, a probe as JSON.

use std::collections::HashMap;

use serde_json::Value;

use super::manifest;
use super::node::Node;
use super::spec::{Source, Use, Written};
use crate::world::Sandbox;

/// What begins the keys of all of them.
const OURS: &str = "probeshim.io/";

/// The probes of a container. One that cannot be read is as if it were not there.
pub(super) fn read(sandbox: &Sandbox, container: &str) -> Vec<Written> {
    let read = |(used, _): (Use, &str)| {
        let text = sandbox.annotations.get(&format!("{OURS}{}.{container}", used.name()))?;
        probe(used, text, false).ok()
    };
    Use::PROBES.into_iter().filter_map(read).collect()
}

/// What cannot be read, and why. `redact`: what is written there may be a command, and is not shown.
#[must_use]
pub fn annotation_problems(sandbox: &Sandbox, redact: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, text) in &sandbox.annotations {
        let Some(name) = key.strip_prefix(OURS) else { continue };
        match used(name).map(|used| probe(used, text, redact)) {
            None => problems.push(format!(
                "annotation {key} means nothing: its key must be {OURS}<liveness|readiness|startup>.<container>"
            )),
            Some(Err(reasons)) => {
                problems.extend(reasons.into_iter().map(|reason| format!("annotation {key}: {reason}")));
            }
            Some(Ok(_)) => {}
        }
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
    if problems.is_empty() {
        Ok((used, read))
    } else {
        Err(problems.iter().map(ToString::to_string).collect())
    }
}
