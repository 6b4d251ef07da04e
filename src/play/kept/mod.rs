//! Pods that clients have made through the relay, and that are kept alive as a kubelet would.
//!
//! ```text
//! what clients do ──► Ledger ──► pods ──► Play
//!                       └──► State
//! ```

mod ledger;
mod stored;

use std::sync::Arc;

use prost::Message as _;
use tokio::sync::watch;

use super::spec::{Container, Origin, Pod, Texts};
use crate::cri::Authored;
use crate::cri::v1::{CreateContainerRequest, NamespaceMode, RunPodSandboxRequest};
use crate::state::{self, State, StateError};

pub use ledger::{Act, Captured, Key};
use ledger::{Kept, KeptContainer, Ledger, Stage};

/// Knows what clients have made, and what of it is kept alive. It outlives us.
#[derive(Debug)]
pub struct Keeper {
    ledger: Ledger,
    state: State,
    pods: watch::Sender<Arc<KeptPods>>,
}

/// What is kept alive, and what is not.
#[derive(Debug, Default)]
pub struct KeptPods {
    ledger: Ledger,
    pub(super) pods: Vec<Arc<Pod>>,
}

impl Keeper {
    /// Goes on with what was kept before.
    pub fn new(kept: &state::Kept, state: State) -> Result<Self, StateError> {
        let ledger = stored::read(kept)?;
        let pods = watch::Sender::new(Arc::new(KeptPods::of(&ledger)));
        Ok(Self { ledger, state, pods })
    }

    /// What is kept alive, as it changes.
    #[must_use]
    pub fn pods(&self) -> watch::Receiver<Arc<KeptPods>> {
        self.pods.subscribe()
    }

    /// A client has done something with a pod.
    pub fn saw(&mut self, key: &Key, act: Act) {
        let before = self.ledger.pod(key).cloned();
        self.ledger.take(key, act);
        let now = self.ledger.pod(key);
        if before.as_ref() != now {
            stored::write(&self.state, key, before.as_ref(), now);
            self.pods.send_replace(Arc::new(KeptPods::of(&self.ledger)));
        }
    }
}

impl KeptPods {
    fn of(ledger: &Ledger) -> Self {
        let pods = ledger.iter().filter_map(|(key, kept)| pod(key, kept)).map(Arc::new);
        Self { ledger: ledger.clone(), pods: pods.collect() }
    }

    /// Whether the owner of a container has stopped or removed it.
    #[must_use]
    pub fn is_let_go(&self, pod: &Key, container: &str) -> bool {
        self.ledger.pod(pod).is_some_and(|kept| kept.is_let_go(container))
    }

    /// Why a container of a pod is not started again when it ends, if it is not.
    #[must_use]
    pub fn obstacle(&self, pod: &Key, container: &str) -> Option<String> {
        match self.ledger.pod(pod) {
            Some(kept) => kept.obstacle(container).map(str::to_owned),
            None => Some("its RunPodSandbox and CreateContainer were not seen".to_owned()),
        }
    }
}

/// A pod with those of its containers that are kept alive, if there are any.
fn pod(key: &Key, kept: &Kept) -> Option<Pod> {
    let containers: Vec<Arc<Container>> =
        kept.containers.iter().filter_map(container).map(Arc::new).collect();
    let Key { namespace, name, uid } = key.clone();
    let origin = kept.sandbox.clone().and_then(|request| {
        Authored::sandbox(&request).map_err(|error| format!("its RunPodSandbox cannot be read: {error}"))
    });
    let asked = kept.sandbox.as_deref().ok().and_then(|request| RunPodSandboxRequest::decode(request).ok());
    let RunPodSandboxRequest { config, runtime_handler } = asked.unwrap_or_default();
    let config = config.unwrap_or_default();
    let namespaces =
        config.linux.and_then(|linux| linux.security_context).and_then(|it| it.namespace_options);
    let mut pod = Pod::bare([namespace, name, uid], Origin::Relay(origin));
    pod.host.network = namespaces.is_some_and(|options| options.network() == NamespaceMode::Node);
    pod.labels = config.labels.into_iter().collect::<Texts>();
    pod.annotations = config.annotations.into_iter().collect::<Texts>();
    (pod.runtime_handler, pod.containers) = (runtime_handler, containers);
    (!pod.containers.is_empty()).then_some(pod)
}

fn container(kept: &KeptContainer) -> Option<Container> {
    let request = kept.request.as_deref().ok().filter(|_| kept.stage == Stage::Started)?;
    let image = CreateContainerRequest::decode(request).ok()?.config?.image.unwrap_or_default();
    let authored = Authored::container(request).ok()?;
    Some(Container::authored(kept.name.clone(), image.image, authored, kept.attempt))
}
