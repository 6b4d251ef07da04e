//! Pods that clients have created through the relay, and that are restarted as a kubelet would.
//!
//! ```text
//! calls of clients ──► recorder ──► desired ──► pods ──► pod workers
//!                                      └──► persist ──► state
//! ```

mod desired;
mod persist;
mod recorder;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as corev1;
use tokio::sync::watch;

use super::pod_source::{DesiredPods, PodOwner, PodSource};
use crate::cri::v1::{NamespaceMode, RunPodSandboxRequest};
use crate::cri::{RawCreateContainer, RawRunPodSandbox};
use crate::manifest::pod::{ClientRequest, Container, Pod, PodOrigin, RuntimeHandler, StringMap};
use crate::state::{self, StateError, StateStore};

pub use desired::PodKey;
pub(super) use desired::{CapturedRequest, ClientAction};
use desired::{ClientContainer, ClientPod, ClientStage, DesiredState};
pub(crate) use recorder::{ClientActionRecorder, Restarter};
pub(crate) use store::ClientPodStore;

/// Client pods and their desired state, backed by the state store. Clones share them.
#[derive(Clone, Debug)]
pub struct ClientPods {
    state: StateStore,
    now: watch::Sender<Arc<ClientPodsSnapshot>>,
}

/// Desired state of the client pods at one time, and the pods computed from it.
#[derive(Clone, Debug, Default)]
pub struct ClientPodsSnapshot {
    desired: DesiredState,
    pods: BTreeMap<PodKey, Arc<Pod>>,
}

impl ClientPods {
    /// Restores the client pods of an earlier process. Fails if the stored state is invalid.
    pub fn new(snapshot: &state::Snapshot, state: StateStore) -> Result<Self, StateError> {
        let mut now = ClientPodsSnapshot { desired: persist::read(snapshot)?, pods: BTreeMap::new() };
        for key in now.keys() {
            now.update_pod(&key);
        }
        Ok(Self { state, now: watch::Sender::new(Arc::new(now)) })
    }

    /// Returns a receiver of the client pods.
    #[must_use]
    pub fn pods(&self) -> watch::Receiver<Arc<ClientPodsSnapshot>> {
        self.now.subscribe()
    }

    /// Returns the client pods as a source of the built-in kubelet.
    #[must_use]
    pub(crate) fn source(&self) -> ClientPodSource {
        ClientPodSource(self.pods())
    }

    /// Returns the current client pods.
    #[must_use]
    pub fn snapshot(&self) -> Arc<ClientPodsSnapshot> {
        self.now.borrow().clone()
    }

    /// Applies an action to a pod, stores the result and publishes it.
    pub fn record(&self, key: &PodKey, act: ClientAction) {
        self.now.send_if_modified(|now| {
            let now = Arc::make_mut(now);
            let before = now.desired.pod(key).cloned();
            now.desired.take(key, act);
            let is_changed = before.as_ref() != now.desired.pod(key);
            if is_changed {
                persist::write(&self.state, key, before.as_ref(), now.desired.pod(key));
                now.update_pod(key);
            }
            is_changed
        });
    }
}

/// The pod source of client pods.
#[derive(Debug)]
pub(crate) struct ClientPodSource(watch::Receiver<Arc<ClientPodsSnapshot>>);

impl PodSource for ClientPodSource {
    const OWNER: PodOwner = PodOwner::Clients;

    fn desired(&mut self) -> DesiredPods {
        DesiredPods { pods: self.0.borrow_and_update().all(), ..DesiredPods::default() }
    }

    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl ClientPodsSnapshot {
    /// Returns the keys of all pods, including those without a container to restart.
    #[must_use]
    pub fn keys(&self) -> Vec<PodKey> {
        self.desired.iter().map(|(key, _)| key.clone()).collect()
    }

    /// Returns the pods with at least one container to restart.
    pub(super) fn all(&self) -> Vec<Arc<Pod>> {
        self.pods.values().cloned().collect()
    }

    /// Computes a pod again from its desired state.
    fn update_pod(&mut self, key: &PodKey) {
        match self.desired.pod(key).and_then(|client_pod| pod(key, client_pod)) {
            Some(pod) => drop(self.pods.insert(key.clone(), Arc::new(pod))),
            None => drop(self.pods.remove(key)),
        }
    }

    /// Returns the id of the newest sandbox of a pod, if it is known.
    #[must_use]
    pub fn newest_sandbox(&self, pod: &PodKey) -> Option<&str> {
        self.desired.pod(pod)?.sandbox_id.as_deref()
    }

    /// Returns the id of the newest instance of a container, if it is known.
    #[must_use]
    pub fn newest(&self, pod: &PodKey, container: &str) -> Option<&str> {
        self.desired.pod(pod)?.newest(container)?.id.as_deref()
    }

    /// Whether a client has created a container and was not seen to start it.
    #[must_use]
    pub fn is_created_only(&self, pod: &PodKey, container: &str) -> bool {
        let known = self.desired.pod(pod).and_then(|client_pod| client_pod.newest(container));
        known.is_some_and(|known| known.stage == ClientStage::Created)
    }

    /// Whether a client has stopped or removed a container.
    #[must_use]
    pub fn is_released(&self, pod: &PodKey, container: &str) -> bool {
        self.desired.pod(pod).is_some_and(|client_pod| client_pod.is_released(container))
    }

    /// Returns the reason why a container is not restarted when it ends; `None` if it is restarted.
    #[must_use]
    pub fn obstacle(&self, pod: &PodKey, container: &str) -> Option<String> {
        match self.desired.pod(pod) {
            Some(client_pod) => client_pod.not_restartable_reason(container).map(str::to_owned),
            None => Some("its RunPodSandbox and CreateContainer were not seen".to_owned()),
        }
    }
}

/// Returns a pod with the containers to restart; `None` if there are none.
fn pod(key: &PodKey, client_pod: &ClientPod) -> Option<Pod> {
    let containers: Vec<Arc<Container>> =
        client_pod.containers.iter().filter_map(container).map(Arc::new).collect();
    let PodKey { namespace, name, uid } = key.clone();
    let origin = client_pod.sandbox.clone().and_then(|request| {
        let read = RawRunPodSandbox::read(&request.0);
        read.map(Arc::new).map_err(|error| format!("its RunPodSandbox cannot be read: {error}"))
    });
    let decoded = origin.as_ref().map(|authored| authored.decoded().clone());
    let newest = client_pod.sandbox_id.as_deref().map(Arc::from);
    let RunPodSandboxRequest { config, runtime_handler } = decoded.unwrap_or_default();
    let config = config.unwrap_or_default();
    let namespaces =
        config.linux.and_then(|linux| linux.security_context).and_then(|it| it.namespace_options);
    let mut pod = Pod::identity_only([namespace, name, uid], PodOrigin::Client { request: origin, newest });
    pod.host.network = namespaces.is_some_and(|options| options.network() == NamespaceMode::Node);
    pod.labels = config.labels.into_iter().collect::<StringMap>();
    pod.annotations = config.annotations.into_iter().collect::<StringMap>();
    let written = containers.iter().map(|it| corev1::Container {
        name: it.name.clone(),
        image: Some(it.image.clone()),
        ..corev1::Container::default()
    });
    pod.written_spec =
        Arc::new(corev1::PodSpec { containers: written.collect(), ..corev1::PodSpec::default() });
    pod.runtime_handler = RuntimeHandler::Named(runtime_handler);
    pod.containers = containers;
    (!pod.containers.is_empty()).then_some(pod)
}

fn container(client_container: &ClientContainer) -> Option<Container> {
    let request = client_container.request.as_ref().ok().filter(|_| client_container.is_restartable())?;
    let authored = RawCreateContainer::read(&request.0).ok()?;
    let image = authored.decoded().config.as_ref()?.image.clone().unwrap_or_default();
    let [first, newest] =
        [&client_container.first, &client_container.id].map(|id| id.as_deref().map(Arc::from));
    let (attempt, has_finished) = (client_container.attempt, client_container.stage == ClientStage::Finished);
    let client_request = ClientRequest { request: authored, first, newest, attempt, has_finished };
    Some(Container::from_client(client_container.name.clone(), image.image, client_request))
}
