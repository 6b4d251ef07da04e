//! A sandbox and a container, as they are known.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::label_map::LabelMap;
use crate::cri::{ContainerObservation, SandboxObservation, v1};
use crate::object_ref::{ContainerRef, PodRef};

/// Annotations that are kept; others are for others.
const KEPT_ANNOTATIONS: [&str; 5] = [
    "probeshim.io/",
    "io.kubernetes.container.",
    "io.kubernetes.pod.",
    "kubernetes.io/config.",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Bytes that are kept of the annotations of one sandbox or container. Kubernetes allows 256 KiB; what matters here is shorter.
const MAX_ANNOTATION_BYTES: usize = 64 << 10;

/// Where something is known from. The latest to have said something new counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A client's call, and what was answered.
    Call,
    /// An event of the runtime's.
    Event,
    /// Our own list.
    List,
    /// The runtime's answer to a status call of our own.
    Inspect,
}

impl Source {
    /// Its name.
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

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: Arc<str>,
    /// The pod that it is made for, as calls name it.
    pub pod: Arc<PodRef>,
    /// How often a sandbox for this pod had been made before.
    pub attempt: u32,
    /// Whether it runs.
    pub is_ready: bool,
    /// In nanoseconds since 1970; 0 where it is not known yet.
    pub created_at: i64,
    /// The pod's labels.
    pub labels: LabelMap,
    /// Those of the pod's annotations that matter here.
    pub annotations: LabelMap,
    /// Its addresses, the first one first; empty where they are not known.
    pub addresses: Vec<String>,
    /// Whether it is in the network of its host, where that is known.
    pub is_host_network: Option<bool>,
    /// Who said so.
    pub source: Source,
    /// When it was seen first.
    pub seen: Instant,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: Arc<str>,
    /// Its name and attempt, as calls name it.
    pub container_ref: Arc<ContainerRef>,
    /// Its sandbox, where it is known.
    pub sandbox: Option<Arc<str>>,
    /// How far it has come.
    pub state: v1::ContainerState,
    /// Once it has exited: with which code, and the runtime's word for it, as far as they are known.
    pub exit: Option<(i32, String)>,
    /// In nanoseconds since 1970; 0 where it is not known yet.
    pub created_at: i64,
    /// When it was started, in nanoseconds since 1970; 0 where it is not known.
    pub started_at: i64,
    /// The image that was asked for.
    pub image: String,
    /// Its labels.
    pub labels: LabelMap,
    /// Those of its annotations that matter here.
    pub annotations: LabelMap,
    /// Who said so.
    pub source: Source,
    /// When it was seen first.
    pub seen: Instant,
}

impl Sandbox {
    /// A sandbox of which nothing is known but that it is there.
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

    /// The sandbox that a pod is about to have; its id is not known yet.
    #[must_use]
    pub fn pending(pod: PodRef, labels: LabelMap, annotations: LabelMap, now: Instant) -> Self {
        Self { pod: Arc::new(pod), labels, annotations, ..Self::new("", Source::Call, now) }
    }

    /// The same with what a message tells, if that is anything new.
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
    /// A container of which nothing is known but that it is there.
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

    /// The same with what a message tells, if that is anything new.
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
        // What is older than what is known may come later. No container goes back: created, running, exited.
        if let Some(state) = fact.state.filter(|state| order(*state) > order(self.state)) {
            next.set(&self.state, state, |container| &mut container.state);
        }
        // An event tells the code alone.
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

/// A copy that is made only where something is different: most of what is told is known.
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

/// How far a container in this state has come. What the runtime does not know is no news.
fn order(state: v1::ContainerState) -> u8 {
    match state {
        v1::ContainerState::ContainerUnknown => 0,
        v1::ContainerState::ContainerCreated => 1,
        v1::ContainerState::ContainerRunning => 2,
        v1::ContainerState::ContainerExited => 3,
    }
}

/// Those annotations that matter here, as many as there is room for.
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
