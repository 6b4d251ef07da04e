//! A pod as it is played: every value is checked, every default is filled in.

mod reference;
mod security;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as corev1;
use serde_json::Value;

use crate::cri::v1::Protocol;
use crate::cri::{RawCreateContainer, RawRunPodSandbox};
use crate::manifest::quantity::Quantity;
use crate::manifest::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy};

pub(crate) use reference::{DataKind, DataRef, RuntimeHandler};
pub(crate) use security::{CommonSecurity, PodSecurity, Security};
pub(crate) use volume::{
    DownwardApiFile, FileSource, FilesKind, HostPathKind, KeyToPath, PodField, RecursiveReadOnly, Volume,
    VolumeMount, VolumeSource,
};

/// Texts by their names.
pub(crate) type StringMap = BTreeMap<String, String>;

/// Where a pod comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodOrigin {
    /// Somebody has written it.
    Manifest,
    /// It was played before, and nobody wants it any more: all that is known of it is what the runtime tells.
    Orphan,
    /// A client has made it through the relay.
    Client {
        /// With this request; or it is not known with which.
        request: Result<Arc<RawRunPodSandbox>, String>,
        /// The id of the newest sandbox, be it the client's or one of ours.
        newest: Option<Arc<str>>,
    },
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    pub(crate) origin: PodOrigin,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: StringMap,
    pub(crate) annotations: StringMap,
    /// What probes, hooks and restarts are about.
    pub(crate) spec: Arc<PodSpec>,
    /// Its containers: those that run first in their order, then the regular ones.
    pub(crate) containers: Vec<Arc<Container>>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) host: HostNamespaces,
    pub(crate) shares_processes: bool,
    pub(crate) hostname: Option<String>,
    pub(crate) host_aliases: Vec<HostAlias>,
    pub(crate) dns: Dns,
    pub(crate) security: PodSecurity,
    /// Seconds that it may run.
    pub(crate) active_deadline: Option<u32>,
    /// Its deletion, if an API server is deleting it.
    pub(crate) deletion: Option<Deletion>,
    pub(crate) runtime_handler: RuntimeHandler,
    /// Names of the Secrets with credentials for its images.
    pub(crate) pull_secrets: Vec<String>,
    /// Its spec as it was written, for `/pods`.
    pub(crate) written_spec: Arc<corev1::PodSpec>,
}

/// The deletion of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// Seconds that its containers have to end; `None` for those of the spec.
    pub(crate) grace_period: Option<u32>,
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// What probes, hooks and restarts are about.
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
    /// The handler as it was written, for others who stop the container.
    pub(crate) pre_stop: Option<Arc<Value>>,
    /// What is known of it where a client has made it through the relay.
    pub(crate) client_request: Option<ClientRequest>,
    pub(crate) termination_message_path: String,
    /// Where a container that failed has left no message, the end of its log is it.
    pub(crate) fallback_to_logs_on_error: bool,
    pub(crate) streams: StdinSpec,
}

/// What is known of a container that a client has made through the relay.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientRequest {
    pub(crate) request: RawCreateContainer,
    /// The id of the instance that the client has made.
    pub(crate) first: Option<Arc<str>>,
    /// The id of its newest instance, be it the client's or one of ours.
    pub(crate) newest: Option<Arc<str>>,
    /// The last attempt of it that we have made; 0 for none.
    pub(crate) attempt: u32,
    /// Whether it has ended for good.
    pub(crate) has_finished: bool,
}

impl ClientRequest {
    /// Whether another comes from the same call: a client may send the same request again when it replaces something.
    pub(crate) fn is_of_same_call(&self, other: &Self) -> bool {
        self.first == other.first && self.request == other.request
    }
}

/// Which namespaces of its host a pod is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostNamespaces {
    pub(crate) network: bool,
    pub(crate) pid: bool,
    pub(crate) ipc: bool,
}

/// What a container can be told, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StdinSpec {
    pub(crate) stdin: bool,
    pub(crate) stdin_once: bool,
    pub(crate) tty: bool,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullPolicy {
    /// Before each start.
    Always,
    /// Where it is not there.
    IfNotPresent,
    /// It is not.
    Never,
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: VariableValue,
}

/// Where a variable has its value from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VariableValue {
    /// It is written, and may have others in it.
    Literal(String),
    /// It is known of the pod.
    Field(EnvField),
    /// It is one of the container's limits or requests.
    Resource(ResourceField),
    /// The value of a key of a ConfigMap or Secret.
    Key { object: DataRef, key: String },
}

/// Variables from all keys of a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnvFrom {
    pub(crate) prefix: String,
    pub(crate) object: DataRef,
}

/// Something that is known of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EnvField {
    Name,
    Namespace,
    Uid,
    Label(String),
    Annotation(String),
    Labels,
    Annotations,
    NodeName,
    ServiceAccount,
    HostIp,
    HostIps,
    PodIp,
    PodIps,
}

/// A limit or request of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceField {
    /// The container; `None` for the one that asks.
    pub(crate) container: Option<String>,
    pub(crate) is_limit: bool,
    pub(crate) resource: String,
    pub(crate) divisor: Quantity,
}

/// A port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortMapping {
    pub(crate) name: String,
    pub(crate) container: u16,
    pub(crate) host: u16,
    pub(crate) host_ip: String,
    pub(crate) protocol: Protocol,
}

/// What a container may use, by the names of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) requests: BTreeMap<String, Quantity>,
    pub(crate) limits: BTreeMap<String, Quantity>,
}

/// How good the resources are that a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Names of an address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostAlias {
    pub(crate) ip: String,
    pub(crate) names: Vec<String>,
}

/// How names are resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dns {
    /// Whether what the node has counts.
    pub(crate) include_node_config: bool,
    pub(crate) servers: Vec<String>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<String>,
}

/// Credentials for a registry.
#[derive(Clone, PartialEq)]
pub(crate) struct Credential {
    /// A host, which may have patterns in it, its port if it has one, and the beginning of a path if there is one.
    pub(crate) registry: String,
    pub(crate) user: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "credentials for {}", self.registry)
    }
}

impl Pod {
    /// A pod of which nothing is known but its namespace, name and uid.
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
            hostname: None,
            host_aliases: Vec::new(),
            dns: Dns::default(),
            security: PodSecurity::default(),
            active_deadline: None,
            deletion: None,
            runtime_handler: RuntimeHandler::default(),
            pull_secrets: Vec::new(),
            written_spec: Arc::default(),
        }
    }

    /// Whether a client has made it through the relay.
    pub(crate) fn is_client_pod(&self) -> bool {
        matches!(self.origin, PodOrigin::Client { .. })
    }

    /// The same, as far as probes, hooks and restarts are concerned, with what is written of it now.
    pub(crate) fn with_spec(&self, spec: Arc<PodSpec>) -> Self {
        let containers = self.containers.iter().map(|container| match spec.container(&container.name) {
            Some(spec) => Arc::new(Container { spec: spec.clone(), ..(**container).clone() }),
            None => container.clone(),
        });
        // Those who look around stay as long as they like, and do not come back.
        let containers = containers.filter(|container| container.spec.role != ContainerKind::Ephemeral);
        Self { containers: containers.collect(), spec, ..self.clone() }
    }

    /// What tells it apart from others that are played: people who make pods by hand give them any names.
    pub(crate) fn key(&self) -> String {
        if self.origin == PodOrigin::Manifest { self.full_name() } else { self.identity() }
    }

    /// `NAMESPACE/NAME/UID`.
    pub(crate) fn identity(&self) -> String {
        identity(&self.namespace, &self.name, &self.uid)
    }

    /// `NAMESPACE/NAME`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(crate) fn container(&self, name: &str) -> Option<&Arc<Container>> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Those that run before the regular ones.
    pub(crate) fn init_containers(&self) -> impl DoubleEndedIterator<Item = &Arc<Container>> {
        self.containers.iter().filter(|container| container.spec.role != ContainerKind::Regular)
    }

    pub(crate) fn regular_containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.iter().filter(|container| container.spec.role == ContainerKind::Regular)
    }

    /// Returns kind and name of each ConfigMap and Secret that the pod refers to.
    pub(crate) fn data_names(&self) -> impl Iterator<Item = (DataKind, &str)> {
        let of_containers = self.containers.iter().flat_map(|container| container.data_refs());
        let of_volumes = self.volumes.iter().flat_map(|volume| volume.source.data_refs());
        let pull_secrets = self.pull_secrets.iter().map(|name| (DataKind::Secret, name.as_str()));
        of_containers.chain(of_volumes).map(|object| (object.kind, object.name.as_str())).chain(pull_secrets)
    }

    pub(crate) fn restart_policy(&self) -> RestartPolicy {
        self.spec.restart_policy
    }

    /// The id of the newest sandbox, as far as it is known without the runtime.
    pub(crate) fn newest_sandbox(&self) -> Option<&Arc<str>> {
        match &self.origin {
            PodOrigin::Client { newest, .. } => newest.as_ref(),
            PodOrigin::Manifest | PodOrigin::Orphan => None,
        }
    }

    /// Whether a container of which the runtime knows nothing has run, and is not to run again: its owner has started it once.
    pub(crate) fn is_over(&self, container: &Container) -> bool {
        let policy = container.spec.restart_policy.unwrap_or(self.restart_policy());
        container
            .client_request
            .as_ref()
            .is_some_and(|client_request| client_request.has_finished || policy == RestartPolicy::Never)
    }

    /// How good the resources are that it asks for.
    pub(crate) fn qos(&self) -> Qos {
        let all = || self.containers.iter().map(|container| &container.resources);
        let is_requested = |quantity: &Quantity| !quantity.is_zero();
        let counted = |map: &BTreeMap<String, Quantity>| -> Vec<(String, Quantity)> {
            let counts = |(name, quantity): &(&String, &Quantity)| {
                (*name == "cpu" || *name == "memory") && is_requested(quantity)
            };
            map.iter().filter(counts).map(|(name, quantity)| (name.clone(), *quantity)).collect()
        };
        if all().all(|it| counted(&it.requests).is_empty() && counted(&it.limits).is_empty()) {
            return Qos::BestEffort;
        }
        let is_fixed = |it: &Resources| {
            let limits = counted(&it.limits);
            limits.len() == 2 && counted(&it.requests) == limits
        };
        if all().all(is_fixed) { Qos::Guaranteed } else { Qos::Burstable }
    }
}

/// What tells a pod apart from all others that are there, or have been.
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

    /// A container of which nothing is known but what a client has asked for.
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

impl Qos {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

impl PullPolicy {
    pub(crate) const NAMED: [(&'static str, Self); 3] =
        [("Always", Self::Always), ("IfNotPresent", Self::IfNotPresent), ("Never", Self::Never)];

    /// What counts for an image for which nothing is said: one that may be another tomorrow is pulled each time.
    pub(crate) fn default_pull_policy(image: &str) -> Self {
        let name = image.rsplit('/').next().unwrap_or(image);
        let is_latest = !image.contains('@') && name.rsplit_once(':').is_none_or(|(_, tag)| tag == "latest");
        if is_latest { Self::Always } else { Self::IfNotPresent }
    }
}
