//! Converts the spec of a pod to the types of Kubernetes, for `/pods`.

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::json;

use crate::manifest::cursor::{Cursor, Violation};

/// Returns the spec of a pod in the types of Kubernetes. Reports fields of other types, also those
/// that probeshim ignores, as an API server does.
pub(super) fn pod_spec(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<PodSpec> {
    let value = spec.value();
    if let Ok(read) = PodSpec::deserialize(value) {
        return Some(read);
    }
    // The error has no path, and is only the first one. Each field is converted separately to find
    // the fields with errors.
    for (field, inner) in value.as_object().into_iter().flatten() {
        let Err(error) = PodSpec::deserialize(&json!({field: inner})) else { continue };
        // The error begins with the value, which may be a secret.
        let error = error.to_string();
        let expected = error.rsplit_once("expected ").map_or("another type", |(_, expected)| expected);
        let reason = format!("must have the type that Kubernetes defines: expected {expected}");
        spec.field(field).as_ref().unwrap_or(spec).error(reason, problems);
    }
    None
}
