//! Pods that probeshim runs, with all values validated and all defaults filled in.

mod env;
mod hostname;
mod placement;
mod pull_policy;
mod reference;
mod resources;
mod security;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as corev1;
use serde_json::Value;

use crate::cri::v1::Protocol;
use crate::cri::{RawCreateContainer, RawRunPodSandbox};
use crate::manifest::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy};

pub(crate) use env::{EnvField, EnvFrom, ResourceField, Variable, VariableValue};
pub(crate) use hostname::HostnameSpec;
pub(crate) use placement::{NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, Placement};
pub(crate) use pull_policy::PullPolicy;
pub(crate) use reference::{DataKind, DataRef, FileKeyRef, RuntimeHandler};
pub(crate) use resources::{
    Amounts, HUGE_PAGES_PREFIX, Qos, Resources, huge_page_size, is_extended_resource, is_huge_page,
};
pub(crate) use security::{APPARMOR_ANNOTATION, CommonSecurity, PodSecurity, Security};
pub(crate) use volume::{
    DownwardApiFile, EmptyDirMedium, FileSource, FilesKind, HostPathKind, KeyToPath, PodField,
    RecursiveReadOnly, Volume, VolumeMount, VolumeSource,
};

/// Strings by name.
pub(crate) type StringMap = BTreeMap<String, String>;

/// Origin of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodOrigin {
    /// A manifest specifies the pod.
    Manifest,
    /// An earlier probeshim ran the pod, and no source contains it any more. Only the runtime's
    /// data about it are known.
    Orphan,
    /// A client created the pod through the relay.
    Client {
        /// The request that created the sandbox, or the reason why it is not known.
        request: Result<Arc<RawRunPodSandbox>, String>,
        /// Id of the newest sandbox, which the client or probeshim created.
        newest: Option<Arc<str>>,
    },
}

/// A pod that probeshim runs.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a pod")]
pub(crate) struct Pod {
    pub(crate) origin: PodOrigin,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: StringMap,
    pub(crate) annotations: StringMap,
    /// The part of the spec that probes, hooks and restarts depend on.
    pub(crate) spec: Arc<PodSpec>,
    /// Init containers and sidecars in their order, followed by regular containers.
    pub(crate) containers: Vec<Arc<Container>>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) host: HostNamespaces,
    pub(crate) shares_processes: bool,
    /// Whether the pod has a user namespace of its own, instead of that of the host.
    pub(crate) has_user_namespace: bool,
    pub(crate) hostname: HostnameSpec,
    pub(crate) host_aliases: Vec<HostAlias>,
    pub(crate) dns: Dns,
    pub(crate) security: PodSecurity,
    pub(crate) placement: Placement,
    /// Types of the conditions on which the readiness of the pod depends as well.
    pub(crate) readiness_gates: Vec<String>,
    /// Resources that the pod needs beside those of its containers.
    pub(crate) overhead: Option<Amounts>,
    /// Resources that all containers share; `None` if the pod has only those of its containers.
    pub(crate) resources: Option<Resources>,
    /// Maximum duration of the pod in seconds.
    pub(crate) active_deadline: Option<u32>,
    /// Deletion of the pod, if an API server is deleting it.
    pub(crate) deletion: Option<Deletion>,
    pub(crate) runtime_handler: RuntimeHandler,
    /// Whether the pod has the priority class of pods that a node cannot do without.
    pub(crate) is_node_critical: bool,
    /// Whether the controller of a workload has created the pod.
    pub(crate) has_controller: bool,
    /// Names of the Secrets with credentials for pulling images.
    pub(crate) pull_secrets: Vec<String>,
    /// Spec as written, for `/pods`.
    pub(crate) written_spec: Arc<corev1::PodSpec>,
}

/// The deletion of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// Grace period in seconds; `None` for that of the spec.
    pub(crate) grace_period: Option<u32>,
}

/// A container of a pod that probeshim runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// The part of the spec that probes, hooks and restarts depend on.
    pub(crate) spec: Arc<ContainerSpec>,
    pub(crate) image: String,
    pub(crate) pull_policy: PullPolicy,
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) working_dir: String,
    pub(crate) env: Vec<Variable>,
    pub(crate) env_from: Vec<EnvFrom>,
    pub(crate) ports: Vec<PortMapping>,
    pub(crate) resources: Resources,
    pub(crate) mounts: Vec<VolumeMount>,
    pub(crate) security: Security,
    /// `PreStop` handler as written, for an annotation that other programs read when they stop the
    /// container.
    pub(crate) pre_stop: Option<Arc<Value>>,
    /// Request of the client; `None` unless the pod is a client pod.
    pub(crate) client_request: Option<ClientRequest>,
    pub(crate) termination_message_path: String,
    /// Whether the end of the log becomes the termination message if the container fails without a
    /// message.
    pub(crate) fallback_to_logs_on_error: bool,
    pub(crate) streams: StdinSpec,
}

/// The request for a container of a client pod, and its instances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientRequest {
    pub(crate) request: RawCreateContainer,
    /// Id of the instance that the client created.
    pub(crate) first: Option<Arc<str>>,
    /// Id of the newest instance, which the client or probeshim created.
    pub(crate) newest: Option<Arc<str>>,
    /// Last attempt that probeshim created; 0 for none.
    pub(crate) attempt: u32,
    /// Whether the container has ended permanently.
    pub(crate) has_finished: bool,
}

impl ClientRequest {
    /// Returns whether `other` comes from the same call. The request alone does not identify a
    /// call, because a client that replaces a container may send an equal request.
    pub(crate) fn is_of_same_call(&self, other: &Self) -> bool {
        self.first == other.first && self.request == other.request
    }
}

/// Namespaces that a pod shares with the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostNamespaces {
    pub(crate) network: bool,
    pub(crate) pid: bool,
    pub(crate) ipc: bool,
}

/// Settings for the standard input of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StdinSpec {
    pub(crate) stdin: bool,
    pub(crate) stdin_once: bool,
    pub(crate) tty: bool,
}

/// A port mapping of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortMapping {
    pub(crate) name: String,
    pub(crate) container: u16,
    pub(crate) host: u16,
    pub(crate) host_ip: String,
    pub(crate) protocol: Protocol,
}

/// An address and its host names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostAlias {
    pub(crate) ip: String,
    pub(crate) names: Vec<String>,
}

/// DNS configuration of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dns {
    /// Whether the configuration of the node is included.
    pub(crate) include_node_config: bool,
    pub(crate) servers: Vec<String>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<String>,
}

/// Credentials for a registry.
#[derive(Clone, PartialEq)]
pub(crate) struct Credential {
    /// Host, which may contain patterns, followed by `:PORT` and `/PATH` prefix if given.
    pub(crate) registry: String,
    pub(crate) user: String,
    pub(crate) password: String,
    /// E-mail address of the user, which only identifies the credentials.
    pub(crate) email: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "credentials for {}", self.registry)
    }
}

impl Pod {
    /// Returns a pod of which only namespace, name and uid are known.
    pub(crate) fn identity_only([namespace, name, uid]: [String; 3], origin: PodOrigin) -> Self {
        Self {
            origin,
            namespace,
            name,
            uid,
            labels: StringMap::new(),
            annotations: StringMap::new(),
            spec: Arc::default(),
            containers: Vec::new(),
            volumes: Vec::new(),
            host: HostNamespaces::default(),
            shares_processes: false,
            has_user_namespace: false,
            hostname: HostnameSpec::default(),
            host_aliases: Vec::new(),
            dns: Dns::default(),
            security: PodSecurity::default(),
            placement: Placement::default(),
            readiness_gates: Vec::new(),
            overhead: None,
            resources: None,
            active_deadline: None,
            deletion: None,
            runtime_handler: RuntimeHandler::default(),
            is_node_critical: false,
            has_controller: false,
            pull_secrets: Vec::new(),
            written_spec: Arc::default(),
        }
    }

    /// Returns whether a client created the pod through the relay.
    pub(crate) fn is_client_pod(&self) -> bool {
        matches!(self.origin, PodOrigin::Client { .. })
    }

    /// Returns the pod with another spec for probes, hooks and restarts.
    pub(crate) fn with_spec(&self, spec: Arc<PodSpec>) -> Self {
        let containers = self.containers.iter().map(|container| match spec.container(&container.name) {
            Some(spec) => Arc::new(Container { spec: spec.clone(), ..(**container).clone() }),
            None => container.clone(),
        });
        // Ephemeral containers are not managed and not restarted.
        let containers = containers.filter(|container| container.spec.role != ContainerKind::Ephemeral);
        Self { containers: containers.collect(), spec, ..self.clone() }
    }

    /// Returns the key that distinguishes the pod from other managed pods: `NAMESPACE/NAME` for a
    /// pod from a manifest, else the identity, because clients may create pods with equal names.
    pub(crate) fn key(&self) -> String {
        if self.origin == PodOrigin::Manifest { self.full_name() } else { self.identity() }
    }

    /// Returns `NAMESPACE/NAME/UID`.
    pub(crate) fn identity(&self) -> String {
        identity(&self.namespace, &self.name, &self.uid)
    }

    /// Returns `NAMESPACE/NAME`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(crate) fn container(&self, name: &str) -> Option<&Arc<Container>> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Returns init containers and sidecars.
    pub(crate) fn init_containers(&self) -> impl DoubleEndedIterator<Item = &Arc<Container>> {
        self.containers.iter().filter(|container| container.spec.role != ContainerKind::Regular)
    }

    pub(crate) fn regular_containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.iter().filter(|container| container.spec.role == ContainerKind::Regular)
    }

    /// Returns name, image and pull policy of each image volume.
    pub(crate) fn image_volumes(&self) -> impl Iterator<Item = (&str, &str, PullPolicy)> {
        self.volumes.iter().filter_map(|volume| match &volume.source {
            VolumeSource::Image { reference, policy } => {
                Some((volume.name.as_str(), reference.as_str(), *policy))
            }
            _ => None,
        })
    }

    /// Returns kind and name of each ConfigMap and Secret to which the pod refers.
    pub(crate) fn data_names(&self) -> impl Iterator<Item = (DataKind, &str)> {
        let of_containers = self.containers.iter().flat_map(|container| container.data_refs());
        let of_volumes = self.volumes.iter().flat_map(|volume| volume.source.data_refs());
        let pull_secrets = self.pull_secrets.iter().map(|name| (DataKind::Secret, name.as_str()));
        of_containers.chain(of_volumes).map(|object| (object.kind, object.name.as_str())).chain(pull_secrets)
    }

    pub(crate) fn restart_policy(&self) -> RestartPolicy {
        self.spec.restart_policy
    }

    /// Returns the id of the newest sandbox that is known without a query to the runtime.
    pub(crate) fn newest_sandbox(&self) -> Option<&Arc<str>> {
        match &self.origin {
            PodOrigin::Client { newest, .. } => newest.as_ref(),
            PodOrigin::Manifest | PodOrigin::Orphan => None,
        }
    }

    /// Returns whether a container without instances in the runtime has run before and is not
    /// restarted. This applies to client pods only: the client has started the container once.
    pub(crate) fn is_over(&self, container: &Container) -> bool {
        let policy = container.spec.restart_policy.unwrap_or(self.restart_policy());
        container
            .client_request
            .as_ref()
            .is_some_and(|client_request| client_request.has_finished || policy == RestartPolicy::Never)
    }
}

/// Returns `NAMESPACE/NAME/UID`, which distinguishes a pod from all other present and past pods.
pub(crate) fn identity(namespace: &str, name: &str, uid: &str) -> String {
    format!("{namespace}/{name}/{uid}")
}

impl Container {
    /// Returns the references to ConfigMaps and Secrets in its variables.
    fn data_refs(&self) -> impl Iterator<Item = &DataRef> {
        let variables = self.env.iter().filter_map(|variable| match &variable.value {
            VariableValue::Key { object, .. } => Some(object),
            _ => None,
        });
        self.env_from.iter().map(|from| &from.object).chain(variables)
    }

    /// Returns a container of which only the client's request is known.
    pub(crate) fn from_client(name: String, image: String, client_request: ClientRequest) -> Self {
        Self {
            spec: Arc::new(ContainerSpec::named(&name)),
            name,
            image,
            pull_policy: PullPolicy::IfNotPresent,
            command: Vec::new(),
            args: Vec::new(),
            working_dir: String::new(),
            env: Vec::new(),
            env_from: Vec::new(),
            ports: Vec::new(),
            resources: Resources::default(),
            mounts: Vec::new(),
            security: Security::default(),
            pre_stop: None,
            client_request: Some(client_request),
            termination_message_path: String::new(),
            fallback_to_logs_on_error: false,
            streams: StdinSpec::default(),
        }
    }
}
