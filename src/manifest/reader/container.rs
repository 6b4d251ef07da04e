//! Reads a container of a pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cri::v1::Protocol;
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{Container, PortMapping, PullPolicy, StdinSpec};
use crate::manifest::reader::env;
use crate::manifest::reader::fields::{FieldSet, check_address, flag, list, pull_policy, text};
use crate::manifest::reader::volume::{self, Volumes};
use crate::manifest::reader::{resources, security, volume_mount};
use crate::manifest::validation::{DNS_LABEL, PORT_NAME, PORT_NUMBER, is_dns_label, is_port_name};
use crate::manifest::{ContainerKind, ContainerSpec, GRACE_PERIOD, Hook, PodSpec};

/// Default path of the termination message.
const MESSAGE_PATH: &str = "/dev/termination-log";

const CONTAINER: FieldSet = FieldSet {
    known: &[
        "name",
        "image",
        "imagePullPolicy",
        "command",
        "args",
        "workingDir",
        "env",
        "envFrom",
        "ports",
        "resources",
        "volumeMounts",
        "securityContext",
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
        "lifecycle",
        "restartPolicy",
        "restartPolicyRules",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "stdin",
        "stdinOnce",
        "tty",
        "resizePolicy",
    ],
    ignored: &[],
    unsupported: &[("volumeDevices", "requires the storage of a cluster")],
};

const LIFECYCLE: FieldSet = FieldSet {
    known: &["postStart", "preStop"],
    ignored: &[],
    unsupported: &[("stopSignal", "the kubelet's feature gate ContainerStopSignals is off")],
};

const PORT: FieldSet = FieldSet {
    known: &["name", "containerPort", "hostPort", "hostIP", "protocol"],
    ignored: &[],
    unsupported: &[],
};

/// Properties of the pod on which its containers depend.
pub(super) struct PodContext<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) volumes: &'a Volumes,
    pub(super) is_host_network: bool,
    /// Whether the pod has its own user namespace.
    pub(super) has_user_namespace: bool,
}

/// Names and host ports that the containers of a pod must not share.
#[derive(Default)]
pub(super) struct UniqueNames {
    names: BTreeSet<String>,
    /// Host ports with their number, address and protocol.
    pub(super) host_ports: BTreeSet<(u16, String, i32)>,
}

/// Reads the fields of a container that are not in `spec`, which has its probes, hooks and
/// restarts.
pub(super) fn read(
    node: &Cursor<'_>,
    spec: Arc<ContainerSpec>,
    around: &PodContext<'_>,
    taken: &mut UniqueNames,
    problems: &mut Vec<Violation>,
) -> Option<Container> {
    CONTAINER.check(node, problems);
    let name = spec.name.clone();
    if let Some(at) = node.field("name") {
        if !is_dns_label(&name) {
            at.error(DNS_LABEL, problems);
        } else if !taken.names.insert(name.clone()) {
            node.duplicate("name", &name, problems);
        }
    }
    match (node.field("image"), &spec.image) {
        (None, _) => node.missing("image", "", problems),
        (Some(at), Some(image)) if image.is_empty() => at.empty("", problems),
        (Some(at), Some(image)) if image.trim() != image => {
            at.error("must not have leading or trailing whitespace", problems);
        }
        _ => {}
    }
    let texts = |field: &str, problems: &mut Vec<Violation>| {
        node.field(field).map(|list| list.string_list(problems)).unwrap_or_default()
    };
    if let Some(lifecycle) = node.field("lifecycle") {
        LIFECYCLE.check(&lifecycle, problems);
        let grace = around.spec.termination_grace_period.unwrap_or(GRACE_PERIOD);
        for (field, hook) in [("postStart", spec.post_start()), ("preStop", spec.pre_stop())] {
            if let (Some(Hook::Sleep(seconds)), Some(at)) = (hook, lifecycle.at(&[field, "sleep", "seconds"]))
                && *seconds > grace
            {
                let limit = format!("terminationGracePeriodSeconds ({grace})");
                at.error(format!("must be non-negative and less than or equal to {limit}"), problems);
            }
        }
    }
    let policy = pull_policy(node, "imagePullPolicy", problems);
    let message_policies = [("File", false), ("FallbackToLogsOnError", true)];
    let message_policy = node.field("terminationMessagePolicy").filter(|policy| policy.value() != "");
    let message_policy = message_policy.and_then(|policy| policy.one_of(&message_policies, problems));
    let security = security::read_container_security(node, around.has_user_namespace, problems);
    let (command, args) = (texts("command", problems), texts("args", problems));
    let (env, env_from) = (env::variables(node, around.spec, problems), env::env_from(node, problems));
    volume::check_env_files(node, around.volumes, problems);
    let ports = ports(node, spec.role, around.is_host_network, taken, problems);
    let resources = resources::of_container(node, problems);
    resources::check_resize_policy(node, around.spec.restart_policy, problems);
    let mounts = volume_mount::mounts(node, around.volumes, security.is_privileged, problems);
    let message_path = text(node, "terminationMessagePath", problems);
    let working_dir = text(node, "workingDir", problems).unwrap_or_default();
    let [stdin, stdin_once, tty] = ["stdin", "stdinOnce", "tty"].map(|field| flag(node, field, problems));
    let image = spec.image.clone()?;
    Some(Container {
        client_request: None,
        pull_policy: policy.unwrap_or_else(|| PullPolicy::default_pull_policy(&image)),
        name,
        image,
        spec,
        command,
        args,
        working_dir,
        env,
        env_from,
        ports,
        resources,
        mounts,
        security,
        pre_stop: node.at(&["lifecycle", "preStop"]).map(|hook| Arc::new(hook.value().clone())),
        termination_message_path: message_path.unwrap_or_else(|| MESSAGE_PATH.to_owned()),
        fallback_to_logs_on_error: message_policy.unwrap_or(false),
        streams: StdinSpec { stdin, stdin_once, tty },
    })
}

fn ports(
    container: &Cursor<'_>,
    role: ContainerKind,
    is_host_network: bool,
    taken: &mut UniqueNames,
    problems: &mut Vec<Violation>,
) -> Vec<PortMapping> {
    let (mut ports, mut names) = (Vec::new(), BTreeSet::new());
    for node in list(container, "ports", &mut Vec::new()) {
        PORT.check(&node, problems);
        if !node.value().is_object() {
            continue;
        }
        let Some(number) = node.field("containerPort") else {
            node.missing("containerPort", "", problems);
            continue;
        };
        let Some(number) = number.value().as_u64().and_then(|number| u16::try_from(number).ok()) else {
            continue;
        };
        let name = node.field("name").and_then(|name| name.value().as_str()).unwrap_or_default().to_owned();
        if let Some(at) = node.field("name").filter(|_| !name.is_empty()) {
            if !is_port_name(&name) {
                at.error(PORT_NAME, problems);
            } else if !names.insert(name.clone()) {
                node.duplicate("name", &name, problems);
            }
        }
        let at = node.field("hostPort").filter(|port| port.value() != 0);
        let host = at.as_ref().and_then(|port| port.number(1..=65_535, PORT_NUMBER, problems));
        // Kubernetes compares only the ports of regular containers.
        let must_match = is_host_network && role == ContainerKind::Regular;
        if let Some(at) = at.filter(|_| must_match && host.is_some_and(|host: u16| host != number)) {
            at.error("must match `containerPort` when `hostNetwork` is true", problems);
        }
        let protocols = [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp), ("SCTP", Protocol::Sctp)];
        let protocol = node.field("protocol").filter(|protocol| protocol.value() != "");
        let protocol = protocol.and_then(|protocol| protocol.one_of(&protocols, problems));
        // In the network of the host, each container port is a host port.
        let host = host.unwrap_or(if is_host_network { number } else { 0 });
        let (host_ip, protocol) =
            (address(&node, problems).unwrap_or_default(), protocol.unwrap_or(Protocol::Tcp));
        if host != 0 && !taken.host_ports.insert((host, host_ip.clone(), protocol.into())) {
            let port = format!("{}/{host_ip}/{host}", protocol.as_str_name());
            node.duplicate("hostPort", &port, problems);
        }
        ports.push(PortMapping { name, container: number, host, host_ip, protocol });
    }
    ports
}

/// Reads the `hostIP` of a port.
fn address(port: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<String> {
    let text = text(port, "hostIP", problems)?;
    check_address(&port.field("hostIP")?, problems);
    Some(text)
}
