//! The container to which `logs` and `exec` refer.

use std::io::ErrorKind;

use anyhow::anyhow;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;
use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::CliError;
use super::label_selector::LabelSelector;
use super::pod_arg::{NamespaceArg, find_one_pod, owner, pods_with_labels};
use super::query::query_status;
use super::stderr::note;
use crate::admin::Client;
use crate::admin::api::{Status, StatusPod};
use crate::cri::runtime_client;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{self, ListContainersRequest, ListPodSandboxRequest};
use crate::socket::SocketPath;
use crate::suggest::did_you_mean;

/// Annotation with the name of the container to which kubectl refers by default.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Flags that select a container of a pod.
#[derive(Debug, Args)]
pub(super) struct ContainerArgs {
    #[command(flatten)]
    namespace: NamespaceArg,

    /// Name of the container, which may be an init container [default: the annotation
    /// kubectl.kubernetes.io/default-container of the pod, or its first container]
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
}

/// A container of a pod, with all its instances on the node.
#[derive(Debug)]
pub(super) struct TargetContainer {
    pub(super) pod: String,
    pub(super) name: String,
    /// Instances of the container, the oldest first.
    pub(super) instances: Vec<v1::Container>,
    /// Reason for which the container does not run, if it waits for its start.
    pub(super) waiting: Option<String>,
    /// Client of the runtime.
    pub(super) runtime: RuntimeServiceClient<Channel>,
}

/// Socket to which requests about the container are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// The runtime itself.
    Upstream,
    /// The relay, which records the calls.
    Relay,
}

/// Names of the containers of a pod.
#[derive(Debug, Default, PartialEq, Eq)]
struct ContainerNames {
    containers: Vec<String>,
    init: Vec<String>,
    /// Name in the annotation of the pod.
    annotated: Option<String>,
}

/// The containers of the runtime, among which those of pods are found.
struct NodeContainers {
    sandboxes: Vec<v1::PodSandbox>,
    /// All instances of all containers, the oldest first.
    containers: Vec<v1::Container>,
    /// The response of `/pods`, if a prober manages pods.
    managed: Option<Bytes>,
    runtime: RuntimeServiceClient<Channel>,
}

impl ContainerArgs {
    /// Finds the container of the pod with this name, and its instances on the runtime.
    pub(super) async fn find(
        self,
        name: &str,
        client: &Client,
        via: Via,
    ) -> Result<TargetContainer, CliError> {
        let status = query_status(client).await?;
        let (pod, remark) = find_one_pod(&status.pods, name, self.namespace.namespace.as_deref())?;
        if let Some(remark) = remark {
            note(&remark);
        }
        if let Some(removed) = &pod.removed {
            let reason = format!("pod {:?} was removed at {removed}, and its containers with it", owner(pod));
            return Err(anyhow!("{reason}").into());
        }
        NodeContainers::query(client, &status, via).await?.find(pod, self.container)
    }

    /// Finds the container of each pod with these labels.
    pub(super) async fn find_labelled(
        self,
        selector: &LabelSelector,
        client: &Client,
        via: Via,
    ) -> Result<Vec<TargetContainer>, CliError> {
        let (status, namespace) = (query_status(client).await?, self.namespace.namespace.as_deref());
        let pods = pods_with_labels(&status.pods, selector, namespace);
        if pods.is_empty() {
            return Err(anyhow!("no pod has the labels {selector}").into());
        }
        let there = NodeContainers::query(client, &status, via).await?;
        pods.into_iter().map(|pod| there.find(pod, self.container.clone())).collect()
    }
}

impl NodeContainers {
    /// Queries the sandboxes and containers of the runtime.
    async fn query(client: &Client, status: &Status, via: Via) -> Result<Self, CliError> {
        let socket = lookup_socket(&status.upstream.socket, &status.listen).await?;
        let mut lists = runtime_client(&socket);
        let runtime = match via {
            Via::Upstream => lists.clone(),
            Via::Relay => runtime_client(&parse_socket(&status.listen)?),
        };
        let failed = |status: tonic::Status| anyhow!("{socket}: {}", status.message());
        let sandboxes = lists.list_pod_sandbox(ListPodSandboxRequest::default()).await.map_err(failed)?;
        let containers = lists.list_containers(ListContainersRequest::default()).await.map_err(failed)?;
        let mut containers = containers.into_inner().containers;
        containers.sort_by_key(|container| container.created_at);
        let managed = client.pods().await.ok();
        Ok(Self { sandboxes: sandboxes.into_inner().items, containers, managed, runtime })
    }

    /// Finds a container of a pod. Without a name, kubectl's default is chosen.
    fn find(&self, pod: &StatusPod, container: Option<String>) -> Result<TargetContainer, CliError> {
        let sandboxes: Vec<_> = self.sandboxes.iter().filter(|it| is_of_pod(it, pod)).cloned().collect();
        let is_of_sandbox =
            |it: &&v1::Container| sandboxes.iter().any(|sandbox| sandbox.id == it.pod_sandbox_id);
        let mut instances: Vec<_> = self.containers.iter().filter(is_of_sandbox).cloned().collect();
        let names = self.managed.as_ref().and_then(|pods| ContainerNames::from_managed(pods, pod));
        let names = names.unwrap_or_else(|| ContainerNames::from_runtime(&sandboxes, &instances));
        let (name, remark) = names.choose(container, &owner(pod)).map_err(CliError::Usage)?;
        if let Some(remark) = remark {
            note(&remark);
        }
        instances.retain(|instance| name_of(instance) == name);
        let known = pod.containers.iter().find(|known| known.name.as_deref() == Some(&name));
        let waiting = known.filter(|known| known.state == "waiting");
        let waiting = waiting.map(|known| known.reason.clone().unwrap_or_default());
        Ok(TargetContainer { pod: owner(pod), name, instances, waiting, runtime: self.runtime.clone() })
    }
}

fn parse_socket(uri: &str) -> Result<SocketPath, CliError> {
    SocketPath::parse(uri).map_err(CliError::from_display)
}

/// Returns the socket on which the container is looked up: that of the runtime, because the lookup
/// is no call of a client and the relay records calls. Returns the relay's socket if the runtime's
/// is unknown or not accessible.
async fn lookup_socket(upstream: &str, listen: &str) -> Result<SocketPath, CliError> {
    let Ok(upstream) = parse_socket(upstream) else { return parse_socket(listen) };
    match UnixStream::connect(upstream.as_path()).await.map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound | ErrorKind::PermissionDenied) => parse_socket(listen),
        // The calls of a lookup report any other error.
        _ => Ok(upstream),
    }
}

impl TargetContainer {
    /// Returns the error for a container that has not started yet, in the words of the kubelet.
    pub(super) fn not_started(&self) -> CliError {
        let Self { pod, name, waiting, .. } = self;
        let reason = waiting.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("ContainerCreating");
        anyhow!("container {name:?} in pod {pod:?} is waiting to start: {reason}").into()
    }
}

impl ContainerNames {
    /// Reads the names of a managed pod from the response of `/pods`.
    fn from_managed(pods: &[u8], pod: &StatusPod) -> Option<Self> {
        let pods: Value = serde_json::from_slice(pods).ok()?;
        let uid = pod.uid.as_deref()?;
        let found = pods["items"].as_array()?.iter().find(|item| item["metadata"]["uid"] == uid)?;
        let names = |field: &str| -> Vec<String> {
            let list = found["spec"][field].as_array().into_iter().flatten();
            list.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
        };
        let annotated = found["metadata"]["annotations"][DEFAULT_CONTAINER].as_str().map(str::to_owned);
        Some(Self { containers: names("containers"), init: names("initContainers"), annotated })
    }

    /// Returns the names of the containers on the runtime, in the order of their creation. Which of
    /// them are init containers is not known.
    fn from_runtime(sandboxes: &[v1::PodSandbox], containers: &[v1::Container]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for name in containers.iter().map(name_of) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        let annotated = sandboxes.iter().find_map(|sandbox| sandbox.annotations.get(DEFAULT_CONTAINER));
        Self { containers: names, init: Vec::new(), annotated: annotated.cloned() }
    }

    /// Returns the name of the container, and a remark if it was chosen among several. The messages
    /// are kubectl's.
    fn choose(&self, wanted: Option<String>, pod: &str) -> Result<(String, Option<String>), String> {
        let all = || self.containers.iter().chain(&self.init).map(String::as_str);
        if let Some(wanted) = wanted {
            if all().any(|known| known == wanted) {
                return Ok((wanted, None));
            }
            let hint = did_you_mean(&wanted, all());
            let names = all().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "container {wanted} is not valid for pod {pod}{hint}; the containers are {names}"
            ));
        }
        if let Some(name) = self.annotated.as_ref().filter(|name| all().any(|known| known == *name)) {
            return Ok((name.clone(), None));
        }
        let Some(first) = self.containers.first().or(self.init.first()) else {
            return Err(format!("pod {pod} has no containers"));
        };
        let init = self.init.iter().map(|name| format!("{name} (init)"));
        let names: Vec<String> = self.containers.iter().cloned().chain(init).collect();
        let remark = format!("Defaulted container {first:?} out of: {}", names.join(", "));
        Ok((first.clone(), (names.len() > 1).then_some(remark)))
    }
}

fn name_of(container: &v1::Container) -> &str {
    container.metadata.as_ref().map_or("", |metadata| &metadata.name)
}

/// Returns whether a sandbox is one of the pod, which can have several.
fn is_of_pod(sandbox: &v1::PodSandbox, pod: &StatusPod) -> bool {
    let Some(metadata) = &sandbox.metadata else { return false };
    [&metadata.namespace, &metadata.name, &metadata.uid].into_iter().map(Some).eq([
        pod.namespace.as_ref(),
        pod.name.as_ref(),
        pod.uid.as_ref(),
    ])
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_container_is_looked_up_on_the_relay_if_the_runtime_is_not_accessible() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| format!("unix://{}", dir.path().join(name).display());
        let listen = |name: &str| UnixListener::bind(dir.path().join(name)).unwrap();
        let _runtime = listen("runtime.sock");
        drop(listen("stopped.sock"));
        let relay = at("relay.sock");
        for (upstream, expected) in [
            (at("runtime.sock"), at("runtime.sock")),
            (at("stopped.sock"), at("stopped.sock")),
            (at("missing.sock"), relay.clone()),
            (String::new(), relay.clone()),
        ] {
            let found = lookup_socket(&upstream, &relay).await.unwrap_or_else(|_| panic!("{upstream}"));
            assert_eq!(found, parse_socket(&expected).unwrap_or_else(|_| panic!("{expected}")));
        }
    }

    #[test]
    fn the_container_is_chosen_as_by_kubectl() {
        let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let one = ContainerNames { containers: texts(&["main"]), ..ContainerNames::default() };
        assert_eq!(one.choose(None, "a/web").unwrap(), ("main".to_owned(), None));
        let more =
            ContainerNames { init: texts(&["setup"]), containers: texts(&["main", "side"]), annotated: None };
        let remark = "Defaulted container \"main\" out of: main, side, setup (init)".to_owned();
        assert_eq!(more.choose(None, "a/web").unwrap(), ("main".to_owned(), Some(remark)));
        assert_eq!(more.choose(Some("setup".to_owned()), "a/web").unwrap().0, "setup");
        let error = more.choose(Some("sied".to_owned()), "a/web").unwrap_err();
        let expected = "container sied is not valid for pod a/web, did you mean \"side\"?; the containers are main, side, setup";
        assert_eq!(error, expected);
        let annotated = ContainerNames { annotated: Some("side".to_owned()), ..more };
        assert_eq!(annotated.choose(None, "a/web").unwrap(), ("side".to_owned(), None));
        assert!(ContainerNames::default().choose(None, "a/web").is_err());
    }
}
