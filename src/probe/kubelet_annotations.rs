//! Annotations of a container in which the kubelet records parts of its specification.

use serde_json::Value;

use crate::cri::labels::{GRACE_PERIOD, PORTS, PRE_STOP_HANDLER};
use crate::manifest::cursor::Cursor;
use crate::manifest::{ContainerPort, ContainerSpec, ExecPurpose, Hook, Source, read_hook, read_port};

/// Returns the parts of the specification that the annotations of a container contain.
pub(crate) fn container<'a>(name: &str, note: impl Fn(&str) -> Option<&'a str>) -> ContainerSpec {
    ContainerSpec {
        hooks: pre_stop(&note).map(|hook| (ExecPurpose::PreStop, hook)).into_iter().collect(),
        annotated_grace_period: grace_period(&note),
        ports: ports(&note).unwrap_or_default(),
        ..ContainerSpec::named(name)
    }
}

/// Returns the preStop hook.
pub(super) fn pre_stop<'a>(note: impl Fn(&str) -> Option<&'a str>) -> Option<Hook> {
    let text = note(PRE_STOP_HANDLER)?;
    let mut problems = Vec::new();
    let hook = match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            let hook = Cursor::root("", &value).secret().at_level(Source::KubeletAnnotation.level());
            read_hook(&hook, &mut problems)
        }
        Err(error) => {
            return Some(Hook::Invalid(format!("annotation {PRE_STOP_HANDLER}: must be JSON: {error}")));
        }
    };
    let reasons: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Some(
        hook.unwrap_or_else(|| {
            Hook::Invalid(format!("annotation {PRE_STOP_HANDLER}: {}", reasons.join("; ")))
        }),
    )
}

/// Returns the grace period of the pod in seconds, or the reason for which it is invalid.
pub(super) fn grace_period<'a>(note: impl Fn(&str) -> Option<&'a str>) -> Option<Result<u32, String>> {
    let text = note(GRACE_PERIOD)?;
    let read = text.parse().ok().filter(|seconds| i32::try_from(*seconds).is_ok());
    let reason = "must be an integer between 0 and 2147483647, inclusive";
    Some(read.ok_or_else(|| format!("annotation {GRACE_PERIOD}: Invalid value: {text:?}: {reason}")))
}

/// Returns the named ports of the container.
pub(super) fn ports<'a>(note: impl Fn(&str) -> Option<&'a str>) -> Option<Vec<ContainerPort>> {
    let value: Value = serde_json::from_str(note(PORTS)?).ok()?;
    let mut problems = Vec::new();
    let list = Cursor::root("", &value).list(&mut problems);
    Some(list.iter().filter_map(|node| read_port(node, &mut problems)).collect())
}
