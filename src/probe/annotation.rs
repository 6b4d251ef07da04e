//! Annotations of a pod for probeshim. `probeshim.io/<liveness|readiness|startup>.<container>` is a
//! probe as JSON. `probeshim.io/restart-policy` and `probeshim.io/restart-policy.<container>` are
//! restart policies.

use serde_json::Value;

use crate::inventory::Sandbox;
use crate::manifest::RestartPolicy;
use crate::manifest::Source;
use crate::manifest::cursor::Cursor;
use crate::manifest::read_probe;
use crate::manifest::{Probe, ProbeType};

/// Prefix of the keys of all annotations for probeshim.
const ANNOTATION_PREFIX: &str = "probeshim.io/";

/// Name of the restart policy of a pod, and prefix of the names of those of its containers.
const RESTART_POLICY: &str = "restart-policy";

/// Maximum number of reported reasons for which one annotation is invalid.
const MAX_REPORTED: usize = 3;
/// Maximum number of characters of the report about one annotation.
const MAX_REPORTED_BYTES: usize = 500;

/// Returns a probe of a container. An invalid annotation is ignored.
pub(crate) fn read(sandbox: &Sandbox, container: &str, probe_type: ProbeType) -> Option<Probe> {
    let text = sandbox.annotations.get(&format!("{ANNOTATION_PREFIX}{}.{container}", probe_type.name()))?;
    read_text(probe_type, text, false).ok()
}

/// Returns the restart policy from the annotation of a pod, or of one of its containers.
pub(crate) fn restart_policy(sandbox: &Sandbox, container: Option<&str>) -> Option<RestartPolicy> {
    let own = container.map(|container| format!(".{container}")).unwrap_or_default();
    policy(sandbox.annotations.get(&format!("{ANNOTATION_PREFIX}{RESTART_POLICY}{own}"))?)
}

fn policy(text: &str) -> Option<RestartPolicy> {
    RestartPolicy::NAMED.into_iter().find(|(name, _)| *name == text).map(|(_, policy)| policy)
}

/// Returns whether a pod has a probe annotation for a container.
pub(crate) fn has_for_container(sandbox: &Sandbox, container: &str) -> bool {
    let key = |probe_type: ProbeType| format!("{ANNOTATION_PREFIX}{}.{container}", probe_type.name());
    ProbeType::ALL.into_iter().any(|probe_type| sandbox.annotations.get(&key(probe_type)).is_some())
}

/// Returns whether a pod has any annotation for probeshim.
pub(crate) fn has_any(sandbox: &Sandbox) -> bool {
    sandbox.annotations.iter().any(|(key, _)| key.starts_with(ANNOTATION_PREFIX))
}

/// Returns a sentence with the reasons for each invalid annotation. `redact` omits the values of
/// annotations, which may be commands.
#[must_use]
pub fn annotation_problems(sandbox: &Sandbox, redact: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, text) in sandbox.annotations.iter() {
        let Some(name) = key.strip_prefix(ANNOTATION_PREFIX) else { continue };
        if name == RESTART_POLICY
            || name.strip_prefix(RESTART_POLICY).is_some_and(|of| of.len() > 1 && of.starts_with('.'))
        {
            if policy(text).is_none() {
                problems.push(format!(
                    "annotation {key}: Unsupported value: {text:?}: supported values: \"Always\", \"Never\", \"OnFailure\""
                ));
            }
            continue;
        }
        let problem = match type_of(name).map(|probe_type| read_text(probe_type, text, redact)) {
            None => {
                format!(
                    "annotation {key}: unknown key, must be {ANNOTATION_PREFIX}<liveness|readiness|startup>.<container> or {ANNOTATION_PREFIX}{RESTART_POLICY}[.<container>]"
                )
            }
            Some(Err(reasons)) => {
                let more = reasons.len().saturating_sub(MAX_REPORTED);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                format!("annotation {key}: {}{more}", reasons[..reasons.len().min(MAX_REPORTED)].join("; "))
            }
            Some(Ok(_)) => continue,
        };
        problems.push(problem.chars().take(MAX_REPORTED_BYTES).collect());
    }
    problems
}

fn type_of(name: &str) -> Option<ProbeType> {
    let (probe_type, container) = name.split_once('.')?;
    ProbeType::ALL.into_iter().find(|known| known.name() == probe_type && !container.is_empty())
}

fn read_text(probe_type: ProbeType, text: &str, redact: bool) -> Result<Probe, Vec<String>> {
    let value: Value = serde_json::from_str(text).map_err(|error| vec![format!("must be JSON: {error}")])?;
    let node = Cursor::root("", &value);
    let node = if redact { node.secret() } else { node };
    let mut problems = Vec::new();
    let read = read_probe(probe_type, &node, Source::Annotation, &mut problems);
    read.ok_or_else(|| problems.iter().map(ToString::to_string).collect())
}
