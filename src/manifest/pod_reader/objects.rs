//! What other documents give to pods: `ConfigMap`s, Secrets, `RuntimeClass`es.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{Credential, StringMap};
use crate::manifest::pod_reader::fields::{FieldSet, required, text};
use crate::manifest::validation::{DNS_LABEL, DNS_SUBDOMAIN, is_dns_label, is_dns_subdomain};
use crate::manifest::version;

/// Something for pods.
#[derive(Clone, PartialEq)]
pub(super) enum ConfigObject {
    /// A `ConfigMap` or Secret.
    Data(ConfigData),
    /// What runs pods.
    RuntimeClass { name: String, handler: String },
}

/// A `ConfigMap` or Secret.
#[derive(Clone, PartialEq)]
pub(super) struct ConfigData {
    is_secret: bool,
    namespace: String,
    name: String,
    entries: BTreeMap<String, Vec<u8>>,
    /// Those of a `ConfigMap` that are only for files.
    binary: BTreeSet<String>,
}

/// All of them.
#[derive(Default)]
pub(super) struct ConfigObjects<'a> {
    data: BTreeMap<(bool, &'a str, &'a str), &'a ConfigData>,
    classes: BTreeMap<&'a str, &'a str>,
    /// What is there and cannot be read, which has been told of: kinds, namespaces and names.
    invalid: BTreeSet<(&'a str, &'a str, &'a str)>,
    /// How often that was asked for.
    missed: Cell<usize>,
}

/// What a key of a `ConfigMap` or Secret is made of.
const KEY: &str = "must be a key of letters, digits, -, _ and .";

const DATA: FieldSet = FieldSet {
    known: &["data", "binaryData", "stringData"],
    ignored: &["apiVersion", "kind", "metadata", "immutable", "type"],
    unsupported: &[],
};

const RUNTIME_CLASS: FieldSet = FieldSet {
    known: &["handler"],
    ignored: &["apiVersion", "kind", "metadata", "scheduling", "overhead"],
    unsupported: &[],
};

impl std::fmt::Debug for ConfigObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.key())
    }
}

impl ConfigObject {
    /// What tells it apart from others.
    pub(super) fn key(&self) -> (&str, &str, &str) {
        match self {
            Self::Data(data) => (kind(data.is_secret), &data.namespace, &data.name),
            Self::RuntimeClass { name, .. } => ("RuntimeClass", "", name),
        }
    }
}

fn kind(is_secret: bool) -> &'static str {
    if is_secret { "Secret" } else { "ConfigMap" }
}

/// The kinds that are read.
pub(super) const KINDS: [&str; 3] = ["ConfigMap", "Secret", "RuntimeClass"];

/// Reads an object of one of these kinds.
pub(super) fn read(kind: &str, node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<ConfigObject> {
    match kind {
        "ConfigMap" => data(node, false, problems),
        "Secret" => data(node, true, problems),
        _ => runtime_class(node, problems),
    }
}

/// What an object of one of these kinds is called, as far as that can be read.
pub(super) fn called(kind: &str, node: &Cursor<'_>) -> Option<(&'static str, String, String)> {
    let kind = KINDS.into_iter().find(|known| *known == kind)?;
    let (namespace, name) = name(node, &mut Vec::new())?;
    Some((kind, if kind == "RuntimeClass" { String::new() } else { namespace }, name))
}

fn name(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<(String, String)> {
    let Some(metadata) = node.field("metadata") else {
        node.missing("metadata", "must have a name", problems);
        return None;
    };
    let name = required(&metadata, "name", "must be there", problems)?;
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
    version(node, &["node.k8s.io/v1", "node.k8s.io/v1beta1"], problems);
    let (_, name) = name(node, problems)?;
    let handler = required(node, "handler", "must be the runtime's name of a handler", problems)?;
    if !is_dns_label(&handler) {
        node.field("handler").inspect(|at| at.error(DNS_LABEL, problems));
    }
    Some(ConfigObject::RuntimeClass { name, handler })
}

fn data(node: &Cursor<'_>, is_secret: bool, problems: &mut Vec<Violation>) -> Option<ConfigObject> {
    let before = problems.len();
    version(node, &["v1"], problems);
    let (namespace, name) = name(node, problems)?;
    // Credentials are written into ConfigMaps, too, and under fields that are not called as they should be.
    let node = node.clone().secret();
    DATA.check(&node, problems);
    let (mut entries, mut binary) = (BTreeMap::new(), BTreeSet::new());
    let [encoded, plain] = if is_secret { ["data", "stringData"] } else { ["binaryData", "data"] };
    for (field, is_encoded) in [(encoded, true), (plain, false)] {
        let Some(node) = node.field(field) else { continue };
        for (key, text) in node.map_of_texts(problems) {
            let Some(at) = node.field(&key) else { continue };
            let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if key.is_empty() || !key.bytes().all(is_known) || key == "." || key.starts_with("..") {
                at.error(KEY, problems);
            } else if !is_secret && entries.contains_key(&key) {
                at.error("must not be in binaryData as well", problems);
            }
            let content = if is_encoded {
                let packed: String = text.split_ascii_whitespace().collect();
                STANDARD.decode(packed).ok()
            } else {
                Some(text.into_bytes())
            };
            match content {
                Some(content) => {
                    if is_encoded && !is_secret {
                        binary.insert(key.clone());
                    }
                    entries.insert(key, content);
                }
                None => at.error("must be base64", problems),
            }
        }
    }
    (problems.len() == before).then_some(ConfigObject::Data(ConfigData {
        is_secret,
        namespace,
        name,
        entries,
        binary,
    }))
}

impl<'a> ConfigObjects<'a> {
    pub(super) fn add(&mut self, given: &'a ConfigObject) {
        match given {
            ConfigObject::Data(data) => {
                self.data.insert((data.is_secret, data.namespace.as_str(), data.name.as_str()), data);
            }
            ConfigObject::RuntimeClass { name, handler } => {
                self.classes.insert(name, handler);
            }
        }
    }

    /// Something is there that cannot be read.
    pub(super) fn invalid(&mut self, key: (&'a str, &'a str, &'a str)) {
        self.invalid.insert(key);
    }

    /// How often something was asked for that cannot be read.
    pub(super) fn missing(&self) -> usize {
        self.missed.get()
    }

    /// Whether something is there that cannot be read: that it is missing need not be told.
    fn is_invalid(&self, key: (&str, &str, &str)) -> bool {
        let is_invalid = self.invalid.contains(&key);
        self.missed.set(self.missed.get() + usize::from(is_invalid));
        is_invalid
    }

    /// The runtime's name of a class, if there is such a class; empty where it cannot be read.
    pub(super) fn handler(&self, class: &str) -> Option<&'a str> {
        let known = self.classes.get(class).copied();
        known.or_else(|| self.is_invalid(("RuntimeClass", "", class)).then_some(""))
    }

    pub(super) fn data(&self, is_secret: bool, namespace: &str, name: &str) -> Option<&'a ConfigData> {
        self.data.get(&(is_secret, namespace, name)).copied()
    }
}

impl ConfigData {
    /// Whether a key is only for files, as the kubelet has it.
    fn is_for_files(&self, key: &str) -> bool {
        self.binary.contains(key)
    }

    pub(super) fn entry(&self, key: &str) -> Option<&[u8]> {
        self.entries.get(key).map(Vec::as_slice)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(key, content)| (key.as_str(), content.as_slice()))
    }

    /// As variables, which are text.
    pub(super) fn texts(&self) -> StringMap {
        let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
        let of_texts = self.entries().filter(|(key, _)| !self.binary.contains(*key));
        of_texts.map(|(key, content)| (key.to_owned(), text(content))).collect()
    }

    /// The credentials that are in it, as kubectl writes them.
    pub(super) fn credentials(&self) -> Option<Vec<Credential>> {
        let (content, is_new) = match self.entry(".dockerconfigjson") {
            Some(content) => (content, true),
            None => (self.entry(".dockercfg")?, false),
        };
        let config: Value = serde_json::from_slice(content).ok()?;
        let auths = if is_new { config.get("auths")? } else { &config };
        let credential = |(registry, entry): (&String, &Value)| {
            let text = |field: &str| entry[field].as_str().map(str::to_owned);
            let split = || {
                let auth = String::from_utf8(STANDARD.decode(entry["auth"].as_str()?).ok()?).ok()?;
                auth.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
            };
            let (user, password) = text("username").zip(text("password")).or_else(split)?;
            let registry = registry.trim_start_matches("https://").trim_start_matches("http://");
            let (host, path) = registry.split_once('/').unwrap_or((registry, ""));
            // What kubectl and docker write after a host that is meant as a whole.
            let path = path.strip_prefix("v1/").or(path.strip_prefix("v2/")).unwrap_or(path);
            let registry = if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") };
            Some(Credential { registry, user, password })
        };
        Some(auths.as_object()?.iter().filter_map(credential).collect())
    }
}

/// A `ConfigMap` or Secret that is asked for.
pub(super) struct DataRef<'a> {
    name: Cursor<'a>,
    text: String,
    is_secret: bool,
    is_optional: bool,
}

/// What a reference comes to.
pub(super) enum Resolved<'a> {
    /// It is there.
    There(&'a ConfigData),
    /// It may be missing, and is, or it is not known yet whether it is there.
    Missing,
}

impl<'a> DataRef<'a> {
    /// Reads the name at a field, and whether it may be missing.
    pub(super) fn read(
        node: &Cursor<'a>,
        field: &str,
        is_secret: bool,
        problems: &mut Vec<Violation>,
    ) -> Option<Self> {
        let text = required(node, field, "must name it", problems)?;
        let is_optional = crate::manifest::pod_reader::fields::flag(node, "optional", problems);
        Some(Self { name: node.field(field)?, text, is_secret, is_optional })
    }

    /// Looks for it, among those that are known by now.
    pub(super) fn find<'o>(
        &self,
        namespace: &str,
        objects: Option<&ConfigObjects<'o>>,
        problems: &mut Vec<Violation>,
    ) -> Resolved<'o> {
        let Some(objects) = objects else { return Resolved::Missing };
        let found = objects.data(self.is_secret, namespace, &self.text);
        let kind = kind(self.is_secret);
        if found.is_none() && !objects.is_invalid((kind, namespace, &self.text)) && !self.is_optional {
            let reason = format!("must be a {kind} of namespace {namespace} among these files");
            self.name.error(reason, problems);
        }
        found.map_or(Resolved::Missing, Resolved::There)
    }

    /// The content at a key of it, for a file or for a variable.
    pub(super) fn entry<'o>(
        &self,
        found: &Resolved<'o>,
        key: &Cursor<'_>,
        is_file: bool,
        problems: &mut Vec<Violation>,
    ) -> Option<&'o [u8]> {
        let Resolved::There(data) = found else { return None };
        let name = key.text(problems)?;
        let entry = data.entry(&name).filter(|_| is_file || !data.is_for_files(&name));
        if entry.is_none() && !self.is_optional {
            let (kind, keys) = (kind(self.is_secret), data.entries().map(|(key, _)| key));
            let keys = keys.collect::<Vec<_>>().join(", ");
            key.error(format!("must be a key of that {kind}, which has {keys}"), problems);
        }
        entry
    }
}
