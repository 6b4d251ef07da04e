//! Sandboxes and containers in the inventory.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::label_map::LabelMap;
use crate::cri::{ContainerObservation, SandboxObservation, v1};
use crate::object_ref::{ContainerRef, PodRef};

/// Prefixes of the annotations that the inventory keeps.
const KEPT_ANNOTATIONS: [&str; 5] = [
    "probeshim.io/",
    "io.kubernetes.container.",
    "io.kubernetes.pod.",
    "kubernetes.io/config.",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Maximum number of bytes of annotations kept for one sandbox or container. Kubernetes allows 256
/// KiB; the annotations that probeshim reads are shorter.
const MAX_ANNOTATION_BYTES: usize = 64 << 10;

/// Source of an observation. An object has the source of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The request and response of a client's call.
    Call,
    /// An event of the runtime.
    Event,
    /// A list that probeshim requested.
    List,
    /// A status that probeshim requested.
    Inspect,
}

impl Source {
    /// Returns the name of the source.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Event => "event",
            Self::List => "list",
            Self::Inspect => "inspect",
        }
    }
}

/// A sandbox in the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Id of the sandbox.
    pub id: Arc<str>,
    /// The sandbox's pod, as calls name it.
    pub pod: Arc<PodRef>,
    /// Attempt in the CRI metadata of the sandbox.
    pub attempt: u32,
    /// Whether the sandbox is ready.
    pub is_ready: bool,
    /// Time of creation in nanoseconds since 1970; 0 if unknown.
    pub created_at: i64,
    /// Labels of the pod.
    pub labels: LabelMap,
    /// Annotations of the pod that probeshim reads.
    pub annotations: LabelMap,
    /// IP addresses of the sandbox, the primary one first; empty if unknown.
    pub addresses: Vec<String>,
    /// Whether the sandbox uses the network of the host, if known.
    pub is_host_network: Option<bool>,
    /// Source of the last change.
    pub source: Source,
    /// Time at which the sandbox was first observed.
    pub seen: Instant,
}

/// A container in the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Id of the container.
    pub id: Arc<str>,
    /// Id, name and attempt of the container, as calls name it.
    pub container_ref: Arc<ContainerRef>,
    /// Id of the sandbox, if known.
    pub sandbox: Option<Arc<str>>,
    /// State of the container.
    pub state: v1::ContainerState,
    /// Exit code and reason of an exited container, if known. The reason is the runtime's, and may
    /// be empty.
    pub exit: Option<(i32, String)>,
    /// Time of creation in nanoseconds since 1970; 0 if unknown.
    pub created_at: i64,
    /// Time of the start in nanoseconds since 1970; 0 if unknown.
    pub started_at: i64,
    /// Requested image.
    pub image: String,
    /// Labels of the container.
    pub labels: LabelMap,
    /// Annotations of the container that probeshim reads.
    pub annotations: LabelMap,
    /// Source of the last change.
    pub source: Source,
    /// Time at which the container was first observed.
    pub seen: Instant,
}

impl Sandbox {
    /// Creates a sandbox without any properties except its id.
    pub(super) fn new(id: &str, source: Source, seen: Instant) -> Self {
        Self {
            id: id.into(),
            pod: Arc::new(PodRef { id: Some(id.to_owned()), ..PodRef::default() }),
            attempt: 0,
            is_ready: true,
            created_at: 0,
            labels: LabelMap::default(),
            annotations: LabelMap::default(),
            addresses: Vec::new(),
            is_host_network: None,
            source,
            seen,
        }
    }

    /// Creates the future sandbox of a pod. Its id is not known yet.
    #[must_use]
    pub fn pending(pod: PodRef, labels: LabelMap, annotations: LabelMap, now: Instant) -> Self {
        Self { pod: Arc::new(pod), labels, annotations, ..Self::new("", Source::Call, now) }
    }

    /// Returns whether the runtime has yet to report the addresses of the sandbox. A sandbox in the
    /// host's network has none.
    #[must_use]
    pub fn lacks_addresses(&self) -> bool {
        self.addresses.is_empty() && self.is_host_network != Some(true)
    }

    /// Returns a copy with an observation applied; `None` if the observation changes nothing.
    pub(super) fn with(&self, fact: &SandboxObservation, source: Source) -> Option<Self> {
        let mut next = CopyOnWrite::new(self);
        if let Some(metadata) = &fact.metadata {
            let pod = &self.pod;
            let known = [&pod.namespace, &pod.name, &pod.uid].map(Option::as_deref);
            if known != [&metadata.namespace, &metadata.name, &metadata.uid].map(|name| Some(name.as_str())) {
                next.get().pod = Arc::new(PodRef {
                    id: pod.id.clone(),
                    namespace: Some(metadata.namespace.clone()),
                    name: Some(metadata.name.clone()),
                    uid: Some(metadata.uid.clone()),
                });
            }
            next.set(&self.attempt, metadata.attempt, |sandbox| &mut sandbox.attempt);
        }
        // A sandbox that has stopped does not run again.
        if fact.is_ready == Some(false) {
            next.set(&self.is_ready, false, |sandbox| &mut sandbox.is_ready);
        }
        if let Some(created_at) = fact.created_at.filter(|at| *at != 0) {
            next.set(&self.created_at, created_at, |sandbox| &mut sandbox.created_at);
        }
        if let Some(labels) = fact.labels.as_ref().filter(|labels| !self.labels.is(labels)) {
            next.get().labels = labels.iter().collect();
        }
        if let Some(annotations) = &fact.annotations {
            next.set(&self.annotations, retained_annotations(annotations), |sandbox| {
                &mut sandbox.annotations
            });
        }
        if let Some(addresses) = fact.addresses.as_ref().filter(|addresses| !addresses.is_empty()) {
            next.set(&self.addresses, addresses.clone(), |sandbox| &mut sandbox.addresses);
        }
        if fact.is_host_network.is_some() {
            next.set(&self.is_host_network, fact.is_host_network, |sandbox| &mut sandbox.is_host_network);
        }
        next.changed.map(|next| Self { source, ..next })
    }
}

impl Container {
    /// Creates a container without any properties except its id.
    pub(super) fn new(id: &str, source: Source, seen: Instant) -> Self {
        Self {
            id: id.into(),
            container_ref: Arc::new(ContainerRef { id: Some(id.to_owned()), ..ContainerRef::default() }),
            sandbox: None,
            state: v1::ContainerState::ContainerCreated,
            exit: None,
            created_at: 0,
            started_at: 0,
            image: String::new(),
            labels: LabelMap::default(),
            annotations: LabelMap::default(),
            source,
            seen,
        }
    }

    /// Returns a copy with an observation applied; `None` if the observation changes nothing.
    pub(super) fn with(&self, fact: &ContainerObservation, source: Source) -> Option<Self> {
        let mut next = CopyOnWrite::new(self);
        if let Some(metadata) = &fact.metadata
            && (self.container_ref.name.as_deref(), self.container_ref.attempt)
                != (Some(&metadata.name), Some(metadata.attempt))
        {
            next.get().container_ref = Arc::new(ContainerRef {
                id: self.container_ref.id.clone(),
                name: Some(metadata.name.clone()),
                attempt: Some(metadata.attempt),
            });
        }
        if let Some(sandbox) =
            fact.sandbox.as_deref().filter(|sandbox| Some(*sandbox) != self.sandbox.as_deref())
        {
            next.get().sandbox = Some(sandbox.into());
        }
        // An older observation may arrive later, so the state only advances: created, running,
        // exited.
        if let Some(state) = fact.state.filter(|state| order(*state) > order(self.state)) {
            next.set(&self.state, state, |container| &mut container.state);
        }
        // An event of containerd reports the exit code without a reason.
        let is_known = |(code, reason): &(i32, String)| {
            reason.is_empty() && self.exit.as_ref().is_some_and(|(known, _)| known == code)
        };
        if fact.exit.as_ref().is_some_and(|exit| !is_known(exit)) {
            next.set(&self.exit, fact.exit.clone(), |container| &mut container.exit);
        }
        if let Some(created_at) = fact.created_at.filter(|at| *at != 0) {
            next.set(&self.created_at, created_at, |container| &mut container.created_at);
        }
        if let Some(started_at) = fact.started_at.filter(|at| *at != 0) {
            next.set(&self.started_at, started_at, |container| &mut container.started_at);
        }
        if let Some(image) = fact.image.as_ref().filter(|image| **image != self.image) {
            next.get().image.clone_from(image);
        }
        if let Some(labels) = fact.labels.as_ref().filter(|labels| !self.labels.is(labels)) {
            next.get().labels = labels.iter().collect();
        }
        if let Some(annotations) = &fact.annotations {
            next.set(&self.annotations, retained_annotations(annotations), |container| {
                &mut container.annotations
            });
        }
        next.changed.map(|next| Self { source, ..next })
    }
}

/// A copy that is made at the first change: most observations change nothing.
struct CopyOnWrite<'a, T> {
    known: &'a T,
    changed: Option<T>,
}

impl<'a, T: Clone> CopyOnWrite<'a, T> {
    fn new(known: &'a T) -> Self {
        Self { known, changed: None }
    }

    fn get(&mut self) -> &mut T {
        self.changed.get_or_insert_with(|| self.known.clone())
    }

    fn set<V: PartialEq>(&mut self, known: &V, observed: V, field: fn(&mut T) -> &mut V) {
        if *known != observed {
            *field(self.get()) = observed;
        }
    }
}

/// Returns the rank of a state. A state that is unknown to the runtime ranks lowest.
fn order(state: v1::ContainerState) -> u8 {
    match state {
        v1::ContainerState::ContainerUnknown => 0,
        v1::ContainerState::ContainerCreated => 1,
        v1::ContainerState::ContainerRunning => 2,
        v1::ContainerState::ContainerExited => 3,
    }
}

/// Returns the annotations that probeshim reads, the shortest first, up to the limit of bytes.
fn retained_annotations(annotations: &HashMap<String, String>) -> LabelMap {
    let matters = |key: &str| KEPT_ANNOTATIONS.iter().any(|kept| key.starts_with(kept));
    let mut kept: Vec<_> = annotations.iter().filter(|(key, _)| matters(key)).collect();
    kept.sort_by_key(|(_, value)| value.len());
    let mut room = MAX_ANNOTATION_BYTES;
    let fits = |(key, value): &(&String, &String)| {
        let left = room.checked_sub(key.len() + value.len());
        room = left.unwrap_or(0);
        left.is_some()
    };
    kept.into_iter().take_while(fits).collect()
}
