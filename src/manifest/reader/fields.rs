//! Fields of objects, and readers for common types of fields.

use std::net::IpAddr;

use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::PullPolicy;
use crate::manifest::validation::{
    DNS_SUBDOMAIN, IP_ADDRESS, LABEL_VALUE, QUALIFIED_NAME, is_dns_subdomain, is_label_value,
    is_qualified_name,
};

/// Names of the fields that an object can have.
pub(in crate::manifest) struct FieldSet {
    /// Fields that the reader reads.
    pub(in crate::manifest) known: &'static [&'static str],
    /// Fields for other programs, such as the API server and the scheduler. They are accepted and
    /// ignored.
    pub(in crate::manifest) ignored: &'static [&'static str],
    /// Fields that probeshim does not support, with the reason.
    pub(in crate::manifest) unsupported: &'static [(&'static str, &'static str)],
}

impl FieldSet {
    /// Returns a set of fields that are all read.
    pub(in crate::manifest) const fn only(known: &'static [&'static str]) -> Self {
        Self { known, ignored: &[], unsupported: &[] }
    }

    /// Reports unsupported and unknown fields; if the level is lenient, unknown ones in the log.
    pub(in crate::manifest) fn check(&self, node: &Cursor<'_>, problems: &mut Vec<Violation>) {
        let Some(object) = node.object(problems) else { return };
        for name in object.keys() {
            let Some(field) = node.field(name) else { continue };
            if self.known.contains(&name.as_str()) || self.ignored.contains(&name.as_str()) {
                continue;
            }
            match self.unsupported.iter().find(|(known, _)| known == name) {
                Some(_) if is_nothing(field.value()) => {}
                // `spec::reject_misplaced_probes` reports misspelt names of probes.
                None if field.has_error(problems) => {}
                Some((_, why)) => field.unsupported(why, problems),
                None => node.unknown_field(name, &[self.known, self.ignored].concat(), problems),
            }
        }
    }
}

/// Returns whether the value is equivalent to an absent field.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Reads an optional string. An empty string counts as absent.
pub(in crate::manifest) fn text(
    node: &Cursor<'_>,
    field: &str,
    problems: &mut Vec<Violation>,
) -> Option<String> {
    node.field(field)?.text(problems).filter(|text| !text.is_empty())
}

/// Reads a required string, which must not be empty. An empty `reason` is omitted from the error.
pub(in crate::manifest) fn required(
    node: &Cursor<'_>,
    field: &str,
    reason: &'static str,
    problems: &mut Vec<Violation>,
) -> Option<String> {
    match node.field(field) {
        // The caller has reported that the node is not an object.
        None if !node.value().is_object() => None,
        None => {
            node.missing(field, reason, problems);
            None
        }
        Some(found) => {
            let text = found.text(problems)?;
            if text.is_empty() {
                found.empty(reason, problems);
            }
            Some(text).filter(|text| !text.is_empty())
        }
    }
}

/// Reads an optional boolean, whose default is false.
pub(in crate::manifest) fn flag(node: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> bool {
    node.field(field).and_then(|flag| flag.flag(problems)).unwrap_or(false)
}

/// Reads an optional list.
pub(in crate::manifest) fn list<'a>(
    node: &Cursor<'a>,
    field: &str,
    problems: &mut Vec<Violation>,
) -> Vec<Cursor<'a>> {
    node.field(field).map(|list| list.list(problems)).unwrap_or_default()
}

/// Reports invalid keys of labels or annotations, and invalid values of labels. Other functions
/// report values that are not strings.
pub(in crate::manifest) fn check_keys(texts: &Cursor<'_>, is_label: bool, problems: &mut Vec<Violation>) {
    for key in texts.value().as_object().into_iter().flat_map(|object| object.keys()) {
        let Some(at) = texts.field(key) else { continue };
        // Annotation keys may contain upper-case letters.
        let name = if is_label { key.clone() } else { key.to_ascii_lowercase() };
        if !is_qualified_name(&name) {
            texts.invalid_key(key, QUALIFIED_NAME, problems);
        } else if is_label && at.value().as_str().is_some_and(|value| !is_label_value(value)) {
            at.error(LABEL_VALUE, problems);
        }
    }
}

/// Reports a string that is not an IP address.
pub(in crate::manifest) fn check_address(at: &Cursor<'_>, problems: &mut Vec<Violation>) {
    if at.value().as_str().is_some_and(|text| text.parse::<IpAddr>().is_err()) {
        at.error(IP_ADDRESS, problems);
    }
}

/// Reads an optional policy for pulling an image. An empty string counts as absent.
pub(in crate::manifest) fn pull_policy(
    node: &Cursor<'_>,
    field: &str,
    problems: &mut Vec<Violation>,
) -> Option<PullPolicy> {
    let policy = node.field(field).filter(|policy| policy.value() != "")?;
    policy.one_of(&PullPolicy::NAMED, problems)
}

/// Reads the id of a user or group, from 0 to 2147483647.
pub(in crate::manifest) fn id(node: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> Option<i64> {
    node.field(field)?.non_negative(problems)
}

/// Reports an `apiVersion` that is not in `known`. The error names the one that Kubernetes serves.
pub(in crate::manifest) fn check_api_version(
    node: &Cursor<'_>,
    known: &[&str],
    served: &str,
    problems: &mut Vec<Violation>,
) {
    let Some(at) = node.field("apiVersion") else { return };
    if at.text(problems).is_some_and(|version| !known.contains(&version.as_str())) {
        at.unknown_value(&[served], problems);
    }
}

/// Reports a value that is not among the known ones. An empty value is the default.
pub(super) fn check_choice(at: Option<Cursor<'_>>, known: &[&str], problems: &mut Vec<Violation>) {
    let choices: Vec<(&str, ())> = known.iter().map(|known| (*known, ())).collect();
    at.filter(|at| at.value() != "").and_then(|at| at.one_of(&choices, problems));
}

/// Reads the optional name of an object of the cluster, a DNS subdomain.
pub(super) fn object_name(node: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> Option<String> {
    let name = text(node, field, problems)?;
    if !is_dns_subdomain(&name) {
        node.field(field).inspect(|at| at.error(DNS_SUBDOMAIN, problems));
    }
    Some(name)
}
