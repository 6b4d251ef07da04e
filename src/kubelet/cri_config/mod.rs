//! Converts a pod to the CRI configurations of its sandbox and containers, as the kubelet does
//! (kubelet: `kuberuntime/kuberuntime_sandbox.go`, `kuberuntime_container.go`).

mod annotations;
mod cgroup;
mod dns;
mod env;
mod hostname;
mod pod_resources;
mod ports;
mod resources;
mod security;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::node::NodeInfo;
use crate::cri::labels;
use crate::cri::v1::{
    CgroupDriver, ContainerConfig, ContainerMetadata, Image, ImageSpec, KeyValue, LinuxContainerConfig,
    LinuxPodSandboxConfig, Mount, PodSandboxConfig, PodSandboxMetadata, UserNamespace,
};
use crate::kubelet::user_namespaces::host_namespace;
use crate::manifest::pod::{Container, Dns, Pod, StringMap};

pub(super) use annotations::hash;
#[cfg(test)]
pub(super) use env::no_file;
pub(super) use env::{EnvFacts, Variables, field, resource, texts, variables};
pub(super) use hostname::{FqdnTooLong, host_names};
pub(super) use pod_resources::memory_limit;

/// Annotation with the time at which the kubelet saw the pod first.
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";

/// Inputs that are known only when a container is created. The type has no `Debug`, because
/// variables may come from a Secret.
pub(super) struct ContainerInputs<'a> {
    pub(super) attempt: u32,
    /// Reference of the image in the runtime.
    pub(super) image: &'a str,
    /// Status of the image in the runtime.
    pub(super) image_status: Option<&'a Image>,
    pub(super) variables: env::Variables,
    pub(super) mounts: Vec<Mount>,
    /// User namespace of the pod.
    pub(super) user_namespace: UserNamespace,
}

/// Inputs that are known only when a sandbox is created.
pub(super) struct SandboxInputs<'a> {
    pub(super) attempt: u32,
    /// Resolver configuration of the node.
    pub(super) node_dns: &'a Dns,
    /// Time at which the pod was seen first.
    pub(super) seen: &'a str,
    /// Driver by which the runtime creates control groups.
    pub(super) cgroup_driver: CgroupDriver,
    /// User namespace of the pod.
    pub(super) user_namespace: UserNamespace,
}

/// Returns the configuration of a sandbox (kubelet: `generatePodSandboxConfig`).
pub(super) fn sandbox(
    pod: &Pod,
    node: &NodeInfo,
    inputs: &SandboxInputs<'_>,
) -> Result<PodSandboxConfig, FqdnTooLong> {
    let &SandboxInputs { attempt, node_dns, seen, cgroup_driver, ref user_namespace } = inputs;
    let mut labels: HashMap<String, String> = string_map(&pod.labels);
    labels.extend(labels::sandbox_labels(&pod.name, &pod.namespace, &pod.uid));
    labels.insert(labels::STATE_LABEL.to_owned(), node.state.clone());
    let mut annotations = string_map(&pod.annotations);
    annotations.insert(CONFIG_SEEN.to_owned(), seen.to_owned());
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            attempt,
        }),
        hostname: if pod.host.network { String::new() } else { hostname::kernel_hostname(pod)? },
        log_directory: log_dir(pod, &node.logs).display().to_string(),
        dns_config: Some(dns::dns(&pod.dns, node_dns)),
        port_mappings: pod
            .regular_containers()
            .flat_map(|container| ports::mappings(&container.ports))
            .collect(),
        labels,
        annotations,
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: cgroup::parent(cgroup_driver),
            security_context: Some(security::sandbox_security(pod, user_namespace.clone())),
            sysctls: pod.security.sysctls.iter().cloned().collect(),
            overhead: Some(resources::overhead(pod, node)),
            resources: Some(resources::pod_resources(pod, node)),
        }),
        windows: None,
    })
}

/// Returns the user namespace in the configuration of a sandbox.
pub(super) fn user_namespace(config: &PodSandboxConfig) -> UserNamespace {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.as_ref());
    options.and_then(|options| options.userns_options.clone()).unwrap_or_else(host_namespace)
}

/// Returns the configuration of a container (kubelet: `generateContainerConfig`).
pub(super) fn container(
    pod: &Pod,
    container: &Container,
    node: &NodeInfo,
    inputs: ContainerInputs<'_>,
) -> ContainerConfig {
    let ContainerInputs { attempt, image, image_status, variables, mut mounts, user_namespace } = inputs;
    for mount in &mut mounts {
        mount.uid_mappings.clone_from(&user_namespace.uids);
        mount.gid_mappings.clone_from(&user_namespace.gids);
    }
    let sandbox = labels::sandbox_labels(&pod.name, &pod.namespace, &pod.uid);
    let known = texts(&variables);
    let envs = variables.into_iter().map(|(key, value)| KeyValue { key, value });
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
            security_context: Some(security::container_security(
                pod,
                container,
                node,
                image_status,
                user_namespace,
            )),
        }),
        ..ContainerConfig::default()
    }
}

/// Returns the directory of a pod's logs.
pub(super) fn log_dir(pod: &Pod, logs: &Path) -> PathBuf {
    logs.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
}

/// Returns the path of a container's log below the log directory of its pod.
fn log_path(container: &Container, attempt: u32) -> String {
    format!("{}/{attempt}.log", container.name)
}

fn string_map(texts: &StringMap) -> HashMap<String, String> {
    texts.iter().map(|(key, text)| (key.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests;
