//! Remarks about documents that are valid, but probably not what their author meant.

use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::document::{Object, ReadOptions, list_items, root};
use crate::manifest::reader::config_object::KINDS;
use crate::manifest::source::Source;
use crate::manifest::workload::WorkloadKind;
use crate::suggest::did_you_mean;

/// Fields of a pod with containers that have probes.
const CONTAINER_FIELDS: [&str; 2] = ["initContainers", "containers"];

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

/// Maximum difference of lengths between an ignored kind and the kind that is suggested for it. The
/// names of some kinds begin with the name of another one.
const MAX_LENGTH_DIFFERENCE: usize = 3;

/// Returns the remarks about the objects of a document.
pub(super) fn remarks(document: &Value, options: ReadOptions) -> Vec<Violation> {
    let mut remarks = Vec::new();
    let root = root(document, options.level, options.redact);
    // `document` reports errors.
    list_items(&root, None, Source::Manifest, &mut Vec::new(), &mut |object, _| match object {
        Object::Workload { template, .. } => remarks.extend(unknown_ports(&template)),
        Object::Other(kind, node) if !KINDS.contains(&kind.as_str()) => {
            let at = node.field("kind").unwrap_or(node);
            remarks.push(at.remark(&format!("ignored, since it defines no pods{}", similar_kind(&kind))));
        }
        Object::Other(..) => {}
    });
    remarks
}

/// Returns `, did you mean "…"?` with the kind that an ignored kind probably is; empty if none is
/// similar.
fn similar_kind(kind: &str) -> String {
    let workloads = WorkloadKind::ALL.map(WorkloadKind::name);
    let is_close = |known: &&str| known.len().abs_diff(kind.len()) <= MAX_LENGTH_DIFFERENCE;
    let known = workloads.into_iter().chain(KINDS).filter(is_close);
    did_you_mean(kind, known)
}

/// Returns the items of a list; nothing if there is no list. `document` reports another type.
fn items<'a>(node: &Cursor<'a>, field: &str) -> Vec<Cursor<'a>> {
    node.field(field).map(|list| list.list(&mut Vec::new())).unwrap_or_default()
}

/// Returns a remark for each port of a probe or hook that is the name of no port of its container.
/// The API server accepts it, and the attempt fails.
fn unknown_ports(template: &Cursor<'_>) -> Vec<Violation> {
    let Some(spec) = template.field("spec") else { return Vec::new() };
    let mut remarks = Vec::new();
    for container in CONTAINER_FIELDS.into_iter().flat_map(|field| items(&spec, field)) {
        let ports = items(&container, "ports");
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
    fn an_ignored_kind_is_remarked_with_the_kind_that_it_probably_is() {
        for (kind, expected) in [
            (
                "Deploymnet",
                "kind: \"Deploymnet\": ignored, since it defines no pods, did you mean \"Deployment\"?",
            ),
            ("Service", "kind: \"Service\": ignored, since it defines no pods"),
            ("PodTemplate", "kind: \"PodTemplate\": ignored, since it defines no pods"),
        ] {
            assert_eq!(remarks_about(&json!({"kind": kind})), [expected]);
        }
        assert!(remarks_about(&json!({"kind": "ConfigMap"})).is_empty());
    }
}
