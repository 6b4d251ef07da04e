//! Remarks about documents that are valid, but probably not what their author meant.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::document::{
    CONTAINER_FIELDS, Document, DocumentKind, IgnoredObject, Object, Purpose, ReadOptions, list_items, root,
};
use crate::manifest::object_identity::DEFAULT_NAMESPACE;
use crate::manifest::probe_hints;
use crate::manifest::reader::config_object::KINDS;
use crate::manifest::source::Source;
use crate::manifest::workload::WorkloadKind;
use crate::suggest::did_you_mean;

/// Paths of ports in a container that can be names: of probes, and of hooks.
const PROBE_PORTS: [[&str; 3]; 6] = [
    ["startupProbe", "httpGet", "port"],
    ["startupProbe", "tcpSocket", "port"],
    ["readinessProbe", "httpGet", "port"],
    ["readinessProbe", "tcpSocket", "port"],
    ["livenessProbe", "httpGet", "port"],
    ["livenessProbe", "tcpSocket", "port"],
];
const HOOK_PORTS: [[&str; 4]; 2] =
    [["lifecycle", "postStart", "httpGet", "port"], ["lifecycle", "preStop", "httpGet", "port"]];

/// Kind of the objects whose namespace is shown also if they name none. Objects of some other kinds
/// have no namespace.
const SERVICE: &str = "Service";

/// Remark about services.
const NO_SERVICES: &str = "there is no service network; `probeshim pods -o wide` shows the addresses of pods";

/// Maximum difference of lengths between an ignored kind and the kind that is suggested for it. The
/// names of some kinds begin with the name of another one.
const MAX_LENGTH_DIFFERENCE: usize = 3;

/// Remark about the mode of a grpc probe (KEP-4939).
const GRPC_MODE: &str = "Kubernetes 1.36 drops this field and probes without TLS; 1.37 drops it without its gate GRPCContainerProbeTLS";

/// Returns the remarks about the objects of a document.
pub(super) fn remarks(document: &Value, options: ReadOptions) -> Vec<Violation> {
    let mut remarks = Vec::new();
    let root = root(document, options.level, options.redact);
    // `document` reports errors.
    list_items(&root, None, Source::Manifest, &mut Vec::new(), &mut |object, _| {
        if let Object::Workload { template, .. } = object {
            remarks.extend(unknown_ports(&template));
            remarks.extend(grpc_modes(&template));
            if options.purpose == Purpose::Check {
                remarks.extend(probe_hints::hints(&template));
            }
        }
    });
    remarks
}

/// Returns the remarks about ignored objects: one for each kind that probably is misspelt, or whose
/// objects create pods, and one with the numbers of all others.
pub(super) fn ignored_objects<'a>(documents: impl Iterator<Item = &'a Document>) -> Vec<String> {
    let mut kinds: BTreeMap<&str, IgnoredKind<'_>> = BTreeMap::new();
    for document in documents {
        let DocumentKind::Ignored(object) = &document.kind else { continue };
        kinds
            .entry(&object.kind)
            .or_insert_with(|| IgnoredKind { first: (document, object), count: 0 })
            .count += 1;
    }
    let is_special =
        |kind: &&IgnoredKind<'_>| kind.first.1.has_template || !similar_kind(&kind.first.1.kind).is_empty();
    let mut remarks: Vec<String> = kinds.values().filter(is_special).map(IgnoredKind::remark).collect();
    let others: Vec<&IgnoredKind<'_>> = kinds.values().filter(|kind| !is_special(kind)).collect();
    remarks.extend(match others.as_slice() {
        [] => None,
        [one] => Some(one.remark()),
        several => Some(several_ignored(several)),
    });
    remarks
}

/// The ignored objects of a kind.
struct IgnoredKind<'a> {
    first: (&'a Document, &'a IgnoredObject),
    count: usize,
}

impl IgnoredKind<'_> {
    fn remark(&self) -> String {
        let (document, object) = self.first;
        let first = format!("{}: {}", document.at, described(object));
        let subject = match self.count {
            1 => format!("{first} is"),
            count => format!("{first} and {} more are", count - 1),
        };
        if object.has_template {
            return format!("{subject} left out: the kind creates pods, and is not supported");
        }
        format!("{subject} ignored: {}", ignore_reason(&object.kind))
    }
}

/// Returns the remark about objects of several kinds, the most frequent kind first.
fn several_ignored(kinds: &[&IgnoredKind<'_>]) -> String {
    let mut counts: Vec<(usize, &str)> =
        kinds.iter().map(|kind| (kind.count, short_kind(&kind.first.1.kind))).collect();
    counts.sort_by(|(one, a), (other, b)| other.cmp(one).then(a.cmp(b)));
    let total: usize = counts.iter().map(|(count, _)| count).sum();
    let counts: Vec<String> = counts.iter().map(|(count, kind)| format!("{count} {kind}")).collect();
    let first = kinds.iter().map(|kind| &kind.first.0.at).next().map_or("", String::as_str);
    let service = kinds.iter().any(|kind| kind.first.1.kind == SERVICE);
    let service = if service { format!("; {NO_SERVICES}") } else { String::new() };
    format!("{first}: {total} objects of other kinds are ignored: {}{service}", counts.join(", "))
}

/// Returns a kind without its group, unless a kind of Kubernetes has the same name.
fn short_kind(kind: &str) -> &str {
    let short = kind.split('.').next().unwrap_or(kind);
    let is_taken = short == SERVICE || WorkloadKind::named(short).is_some() || KINDS.contains(&short);
    if is_taken { kind } else { short }
}

/// Returns the kind and name of an object, with its namespace if it is known.
fn described(object: &IgnoredObject) -> String {
    let IgnoredObject { kind, namespace, name, .. } = object;
    match namespace.as_str() {
        _ if name.is_empty() => kind.clone(),
        "" if kind == SERVICE => format!("{kind} {DEFAULT_NAMESPACE}/{name}"),
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn ignore_reason(kind: &str) -> String {
    match kind {
        SERVICE => NO_SERVICES.to_owned(),
        _ => format!("the kind defines no pods{}", similar_kind(kind)),
    }
}

/// Returns `, did you mean "…"?` with the kind that an ignored kind probably is; empty if none is
/// similar.
fn similar_kind(kind: &str) -> String {
    let workloads = WorkloadKind::ALL.map(WorkloadKind::name);
    let is_close = |known: &&str| known.len().abs_diff(kind.len()) <= MAX_LENGTH_DIFFERENCE;
    let known = workloads.into_iter().chain(KINDS).filter(is_close);
    did_you_mean(kind, known)
}

/// Returns a remark for each port of a probe or hook that is the name of no port of its container.
/// The API server accepts it, and the attempt fails.
fn unknown_ports(template: &Cursor<'_>) -> Vec<Violation> {
    let mut remarks = Vec::new();
    for container in CONTAINER_FIELDS.into_iter().flat_map(|field| template.items(&["spec", field])) {
        let ports = container.items(&["ports"]);
        let names: Vec<&str> = ports.iter().filter_map(|port| port.value()["name"].as_str()).collect();
        let probes = PROBE_PORTS.iter().map(<[_; 3]>::as_slice);
        for path in probes.chain(HOOK_PORTS.iter().map(<[_; 4]>::as_slice)) {
            let Some(port) = container.at(path) else { continue };
            let Some(name) = port.value().as_str().filter(|name| !names.contains(name)) else { continue };
            remarks.push(port.remark(&unknown_port(name, &names)));
        }
    }
    remarks
}

/// Returns a remark for each grpc probe with a mode.
fn grpc_modes(template: &Cursor<'_>) -> Vec<Violation> {
    let containers = CONTAINER_FIELDS.into_iter().flat_map(|field| template.items(&["spec", field]));
    let modes = containers.flat_map(|container| {
        ["startupProbe", "livenessProbe", "readinessProbe"]
            .into_iter()
            .filter_map(move |probe| container.at(&[probe, "grpc", "mode"]))
    });
    modes.map(|mode| mode.remark(GRPC_MODE)).collect()
}

/// Returns the remark about a port, with the error of the kubelet (`pkg/probe/util.go`:
/// `ResolveContainerPort`).
fn unknown_port(name: &str, names: &[&str]) -> String {
    let hint = did_you_mean(name, names.iter().copied());
    let hint = if hint.is_empty() { "; " } else { &format!("{hint} ") };
    format!(
        "no port of the container has this name{hint}each attempt fails with \"strconv.Atoi: parsing \\\"{name}\\\": invalid syntax\""
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remarks_about(document: &Value) -> Vec<String> {
        remarks(document, ReadOptions::default()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_named_port_of_a_probe_or_hook_that_no_container_port_has_is_remarked() {
        let probe = |port: &str| json!({"httpGet": {"port": port}});
        let document = json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {
            "containers": [{
                "name": "main",
                "ports": [{"name": "web", "containerPort": 80}],
                "livenessProbe": probe("web"),
                "readinessProbe": probe("wep"),
                "lifecycle": {"preStop": {"httpGet": {"port": "admin"}}},
            }],
        }}}});
        let [probe, hook] = &remarks_about(&document)[..] else { panic!() };
        let begin = "spec.template.spec.containers[0].readinessProbe.httpGet.port: \"wep\": no port of the container has this name, did you mean \"web\"? each attempt fails with";
        assert!(probe.starts_with(begin), "{probe}");
        let begin = "spec.template.spec.containers[0].lifecycle.preStop.httpGet.port: \"admin\": no port";
        assert!(hook.starts_with(begin), "{hook}");
    }

    #[test]
    fn the_mode_of_a_grpc_probe_is_remarked() {
        let document = json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{
            "name": "main", "livenessProbe": {"grpc": {"port": 1, "mode": "TLS"}}, "readinessProbe": {"grpc": {"port": 1}},
        }]}});
        let [mode] = &remarks_about(&document)[..] else { panic!() };
        let begin = "spec.containers[0].livenessProbe.grpc.mode: \"TLS\": Kubernetes 1.36 drops this field";
        assert!(mode.starts_with(begin), "{mode}");
    }

    #[test]
    fn ignored_objects_are_remarked_with_their_numbers() {
        let document = |line: u32, kind: &str, namespace: &str, name: &str| Document {
            at: format!("web.yaml:{line}"),
            kind: DocumentKind::Ignored(IgnoredObject {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                has_template: kind.starts_with("Rollout"),
            }),
        };
        let documents = [
            document(1, "Service", "", "web"),
            document(5, "Deploymnet", "shop", "web"),
            document(9, "Service", "shop", "db"),
            document(12, "Namespace", "", "shop"),
            document(15, "Service", "shop", "cache"),
            document(18, "Rollout.argoproj.io", "shop", "web"),
            document(21, "Rollout.argoproj.io", "shop", "db"),
        ];
        let expected = [
            "web.yaml:5: Deploymnet shop/web is ignored: the kind defines no pods, did you mean \"Deployment\"?",
            "web.yaml:18: Rollout.argoproj.io shop/web and 1 more are left out: the kind creates pods, and is not supported",
            "web.yaml:12: 4 objects of other kinds are ignored: 3 Service, 1 Namespace; there is no \
             service network; `probeshim pods -o wide` shows the addresses of pods",
        ];
        assert_eq!(ignored_objects(documents.iter()), expected);
        let expected = "web.yaml:1: Service default/web is ignored: there is no service network; \
                        `probeshim pods -o wide` shows the addresses of pods";
        assert_eq!(ignored_objects(documents[..1].iter()), [expected]);
    }
}
