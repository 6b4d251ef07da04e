//! Converts the spec of a pod to the types of Kubernetes, for `/pods`.

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::json;
use serde_path_to_error::{Path, Segment};

use crate::manifest::cursor::{Cursor, Violation};

/// Returns the spec of a pod in the types of Kubernetes. Reports fields of other types, also those
/// that probeshim ignores, as an API server does.
pub(super) fn pod_spec(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<PodSpec> {
    let value = spec.value();
    if let Ok(read) = PodSpec::deserialize(value) {
        return Some(read);
    }
    // An error is only the first one. Each field is converted separately to find the fields with
    // errors.
    for (field, inner) in value.as_object().into_iter().flatten() {
        let Err(error) = serde_path_to_error::deserialize::<_, PodSpec>(&json!({field: inner})) else {
            continue;
        };
        let at = value_at(spec, error.path());
        // The error begins with the value, which may be a secret.
        let text = error.inner().to_string();
        let expected = text.rsplit_once("expected ").map_or("", |(_, expected)| expected);
        at.error(expectation(expected), problems);
    }
    None
}

/// Returns the value at a path, or the last one on the path that is there.
fn value_at<'a>(spec: &Cursor<'a>, path: &Path) -> Cursor<'a> {
    let mut at = spec.clone();
    for segment in path {
        let next = match segment {
            Segment::Map { key } => at.field(key),
            Segment::Seq { index } => at.items(&[]).into_iter().nth(*index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// Returns the type of a field, from the words in which the conversion expects it.
fn expectation(expected: &str) -> &'static str {
    match expected {
        "i32" | "i64" | "u32" | "u64" | "usize" => "must be an integer",
        "f64" | "f32" => "must be a number",
        "a string" | "a borrowed string" => "must be a string; quote a value that YAML reads as another type",
        "a boolean" => "must be true or false",
        "a sequence" => "must be a list",
        "a map" => "must be an object",
        _ if expected.starts_with("struct") || expected.chars().next().is_some_and(char::is_uppercase) => {
            "must be an object"
        }
        _ => "must have the type that Kubernetes defines",
    }
}
