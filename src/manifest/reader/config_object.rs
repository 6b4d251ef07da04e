//! Reads ConfigMaps, Secrets and RuntimeClasses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::config_object::{ConfigData, ConfigObject};
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::go_base64::{Padding, decode};
use crate::manifest::pod::DataKind;
use crate::manifest::reader::fields::{FieldSet, check_api_version, required, text};
use crate::manifest::validation::{
    CONFIG_KEY, DNS_LABEL, DNS_SUBDOMAIN, is_config_key, is_dns_label, is_dns_subdomain,
};

/// Kinds of objects to which pods refer.
pub(in crate::manifest) const KINDS: [&str; 3] = ["ConfigMap", "Secret", RUNTIME_CLASS_KIND];

pub(in crate::manifest) const RUNTIME_CLASS_KIND: &str = "RuntimeClass";

pub(in crate::manifest) const RUNTIME_CLASS_GROUP: &str = "node.k8s.io";

const DATA: FieldSet = FieldSet {
    known: &["data", "binaryData", "stringData", "type"],
    ignored: &["apiVersion", "kind", "metadata", "immutable"],
    unsupported: &[],
};

const RUNTIME_CLASS: FieldSet = FieldSet {
    known: &["handler"],
    ignored: &["apiVersion", "kind", "metadata", "scheduling", "overhead"],
    unsupported: &[],
};

/// Reads an object whose kind is one of [`KINDS`].
pub(in crate::manifest) fn read(
    kind: &str,
    node: &Cursor<'_>,
    problems: &mut Vec<Violation>,
) -> Option<ConfigObject> {
    match kind {
        "ConfigMap" => data(node, DataKind::ConfigMap, problems),
        "Secret" => data(node, DataKind::Secret, problems),
        _ => runtime_class(node, problems),
    }
}

/// Returns kind, namespace and name of an object whose kind is one of [`KINDS`], or `None` if they
/// cannot be read.
pub(in crate::manifest) fn key(kind: &str, node: &Cursor<'_>) -> Option<(&'static str, String, String)> {
    let kind = KINDS.into_iter().find(|known| *known == kind)?;
    let (namespace, name) = name(node, &mut Vec::new())?;
    Some((kind, if kind == RUNTIME_CLASS_KIND { String::new() } else { namespace }, name))
}

fn name(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<(String, String)> {
    let Some(metadata) = node.field("metadata") else {
        node.missing("metadata.name", "", problems);
        return None;
    };
    let name = required(&metadata, "name", "", problems)?;
    if !is_dns_subdomain(&name) {
        metadata.field("name").inspect(|at| at.error(DNS_SUBDOMAIN, problems));
    }
    let namespace = text(&metadata, "namespace", problems).unwrap_or_else(|| "default".to_owned());
    if !is_dns_label(&namespace) {
        metadata.field("namespace").inspect(|at| at.error(DNS_LABEL, problems));
    }
    Some((namespace, name))
}

fn runtime_class(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<ConfigObject> {
    RUNTIME_CLASS.check(node, problems);
    check_api_version(node, &["node.k8s.io/v1"], "node.k8s.io/v1", problems);
    let (_, name) = name(node, problems)?;
    let handler = required(node, "handler", "must be the name of a handler of the runtime", problems)?;
    if !is_dns_label(&handler) {
        node.field("handler").inspect(|at| at.error(DNS_LABEL, problems));
    }
    Some(ConfigObject::RuntimeClass { name, handler })
}

fn data(node: &Cursor<'_>, kind: DataKind, problems: &mut Vec<Violation>) -> Option<ConfigObject> {
    let before = problems.len();
    check_api_version(node, &["v1"], "v1", problems);
    let (namespace, name) = name(node, problems)?;
    // ConfigMaps and misspelt fields may contain credentials, too.
    let node = node.clone().secret();
    DATA.check(&node, problems);
    let (mut entries, mut binary) = (BTreeMap::new(), BTreeSet::new());
    let is_secret = kind == DataKind::Secret;
    let [encoded, plain] = if is_secret { ["data", "stringData"] } else { ["binaryData", "data"] };
    for (field, is_encoded) in [(encoded, true), (plain, false)] {
        let Some(node) = node.field(field) else { continue };
        for (key, text) in node.map_of_texts(problems) {
            if !is_config_key(&key) {
                node.invalid_key(&key, CONFIG_KEY, problems);
            } else if !is_secret && entries.contains_key(&key) {
                node.invalid_key(&key, "duplicate of key present in binaryData", problems);
            }
            let content =
                if is_encoded { decode(&text, Padding::Required).ok() } else { Some(text.into_bytes()) };
            match content {
                Some(content) => {
                    if is_encoded && !is_secret {
                        binary.insert(key.clone());
                    }
                    entries.insert(key, content);
                }
                None => {
                    node.field(&key).inspect(|at| at.error("must be base64-encoded", problems));
                }
            }
        }
    }
    let secret_type = if is_secret { text(&node, "type", problems) } else { None }.unwrap_or_default();
    let data = ConfigData { kind, namespace, name, entries, binary, secret_type };
    (problems.len() == before).then(|| ConfigObject::Data(Arc::new(data)))
}
