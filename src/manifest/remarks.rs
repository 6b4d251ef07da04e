//! Remarks about documents that are valid, but probably not what their author meant.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::document::{
    CONTAINER_FIELDS, DEFAULT_NAMESPACE, Document, DocumentKind, Object, ReadOptions, list_items, root,
};
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
        }
    });
    remarks
}

/// Returns a remark for each kind of ignored objects, with the first object of the kind.
pub(super) fn ignored_objects<'a>(documents: impl Iterator<Item = &'a Document>) -> Vec<String> {
    let mut kinds: BTreeMap<&str, (String, usize)> = BTreeMap::new();
    for document in documents {
        let DocumentKind::Ignored { kind, namespace, name } = &document.kind else { continue };
        let first = || format!("{}: {}", document.at, described(kind, namespace, name));
        kinds.entry(kind).or_insert_with(|| (first(), 0)).1 += 1;
    }
    let remark = |(kind, (first, count)): (&str, (String, usize))| {
        let subject = match count {
            1 => format!("{first} is"),
            count => format!("{first} and {} more are", count - 1),
        };
        format!("{subject} ignored: {}", ignore_reason(kind))
    };
    kinds.into_iter().map(remark).collect()
}

/// Returns the kind and name of an object, with its namespace if it is known.
fn described(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        _ if name.is_empty() => kind.to_owned(),
        "" if kind == SERVICE => format!("{kind} {DEFAULT_NAMESPACE}/{name}"),
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn ignore_reason(kind: &str) -> String {
    match kind {
        SERVICE => {
            "there is no service network; `probeshim pods -o wide` shows the addresses of pods".to_owned()
        }
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
    fn the_first_ignored_object_of_each_kind_is_remarked() {
        let document = |line: u32, kind: &str, namespace: &str, name: &str| Document {
            at: format!("web.yaml:{line}"),
            kind: DocumentKind::Ignored {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
        };
        let documents = [
            document(1, "Service", "", "web"),
            document(5, "Deploymnet", "shop", "web"),
            document(9, "Service", "shop", "db"),
            document(12, "Namespace", "", "shop"),
            document(15, "Service", "shop", "cache"),
        ];
        let expected = [
            "web.yaml:5: Deploymnet shop/web is ignored: the kind defines no pods, did you mean \"Deployment\"?",
            "web.yaml:12: Namespace shop is ignored: the kind defines no pods",
            "web.yaml:1: Service default/web and 2 more are ignored: there is no service network; \
             `probeshim pods -o wide` shows the addresses of pods",
        ];
        assert_eq!(ignored_objects(documents.iter()), expected);
    }
}
