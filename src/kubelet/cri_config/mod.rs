//! A pod → what the runtime is asked for, as the kubelet asks (section 5.8 of what it does).

mod annotations;
mod env;
mod resources;
mod security;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::node::{MAX_DNS_NAMESERVERS, NodeInfo};
use crate::cri::labels;
use crate::cri::v1::{
    ContainerConfig, ContainerMetadata, DnsConfig, Image, ImageSpec, KeyValue, LinuxContainerConfig,
    LinuxPodSandboxConfig, Mount, PodSandboxConfig, PodSandboxMetadata, PortMapping,
};
use crate::manifest::pod::{Container, Dns, Pod, StringMap};

pub(super) use annotations::hash;
pub(super) use env::{EnvFacts, field, resource, variables};

/// The longest name of a host.
const MAX_HOSTNAME_LEN: usize = 63;

/// Where it is noted when a pod was seen first.
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";

/// What is known of a container only when it is created. It has no `Debug`: variables may be those of a Secret.
pub(super) struct ContainerInputs<'a> {
    pub(super) attempt: u32,
    /// What the runtime calls its image.
    pub(super) image: &'a str,
    /// What the runtime knows of it.
    pub(super) image_status: Option<&'a Image>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) mounts: Vec<Mount>,
}

/// What the runtime is asked for to be the sandbox of a pod that was seen at a time.
pub(super) fn sandbox(pod: &Pod, node: &NodeInfo, attempt: u32, seen: &str) -> PodSandboxConfig {
    let ports = pod.regular_containers().flat_map(|container| &container.ports);
    let port = |port: &crate::manifest::pod::PortMapping| PortMapping {
        protocol: port.protocol.into(),
        container_port: port.container.into(),
        host_port: port.host.into(),
        host_ip: port.host_ip.clone(),
    };
    let mut labels: HashMap<String, String> = string_map(&pod.labels);
    labels.extend(labels::sandbox_labels(&pod.name, &pod.namespace, &pod.uid));
    labels.insert(labels::STATE_LABEL.to_owned(), node.state.clone());
    let mut annotations = string_map(&pod.annotations);
    annotations.insert(CONFIG_SEEN.to_owned(), seen.to_owned());
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            attempt,
        }),
        hostname: if pod.host.network { String::new() } else { hostname(pod) },
        log_directory: log_dir(pod, &node.logs).display().to_string(),
        dns_config: Some(dns(&pod.dns, &node.dns)),
        port_mappings: ports.map(port).collect(),
        labels,
        annotations,
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: String::new(),
            security_context: Some(security::sandbox_security(pod)),
            sysctls: string_map(&pod.security.sysctls),
            overhead: Some(resources::none()),
            resources: Some(resources::pod_resources(pod)),
        }),
        windows: None,
    }
}

/// What the runtime is asked for to be a container.
pub(super) fn container(
    pod: &Pod,
    container: &Container,
    node: &NodeInfo,
    inputs: ContainerInputs<'_>,
) -> ContainerConfig {
    let ContainerInputs { attempt, image, image_status, variables, mounts } = inputs;
    let sandbox = labels::sandbox_labels(&pod.name, &pod.namespace, &pod.uid);
    let known: HashMap<String, String> = variables.iter().cloned().collect();
    let envs = variables.into_iter().map(|(key, value)| KeyValue { key, value: value.into_bytes() });
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(ImageSpec {
            image: image.to_owned(),
            user_specified_image: container.image.clone(),
            ..ImageSpec::default()
        }),
        command: crate::probe::expand(&container.command, &known),
        args: crate::probe::expand(&container.args, &known),
        working_dir: container.working_dir.clone(),
        envs: envs.collect(),
        mounts,
        labels: labels::container_labels(&container.name, &sandbox),
        annotations: annotations::container_annotations(pod, container, attempt),
        log_path: log_path(container, attempt),
        stdin: container.streams.stdin,
        stdin_once: container.streams.stdin_once,
        tty: container.streams.tty,
        linux: Some(LinuxContainerConfig {
            resources: Some(resources::container_resources(pod, container, node)),
            security_context: Some(security::container_security(pod, container, image_status)),
        }),
        ..ContainerConfig::default()
    }
}

/// The folder of a pod's logs.
pub(super) fn log_dir(pod: &Pod, logs: &Path) -> PathBuf {
    logs.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
}

/// Where the log of a container is below that.
fn log_path(container: &Container, attempt: u32) -> String {
    format!("{}/{attempt}.log", container.name)
}

/// What a pod calls itself.
pub(super) fn hostname(pod: &Pod) -> String {
    let name = pod.hostname.as_deref().unwrap_or(&pod.name);
    let end = name.len().min(MAX_HOSTNAME_LEN);
    // Names of Kubernetes are ASCII.
    let cut = name.get(..end).unwrap_or(name);
    if cut.len() < name.len() { cut.trim_end_matches(['-', '.']).to_owned() } else { cut.to_owned() }
}

/// What the pod says beside what the node says, where that counts.
fn dns(pod: &Dns, node: &Dns) -> DnsConfig {
    let mut dns = if pod.include_node_config { node.clone() } else { Dns::default() };
    let add = |all: &mut Vec<String>, more: &[String]| {
        for one in more {
            if !all.contains(one) {
                all.push(one.clone());
            }
        }
    };
    add(&mut dns.servers, &pod.servers);
    dns.servers.truncate(MAX_DNS_NAMESERVERS);
    add(&mut dns.searches, &pod.searches);
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    dns.options.retain(|known| !pod.options.iter().any(|more| name(more) == name(known)));
    dns.options.extend(pod.options.iter().cloned());
    DnsConfig { servers: dns.servers, searches: dns.searches, options: dns.options }
}

fn string_map(texts: &StringMap) -> HashMap<String, String> {
    texts.iter().map(|(key, text)| (key.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests;
