//! Lines about pods that have become ready, for which the kubelet records no event.

use std::collections::HashSet;
use std::sync::Arc;

use crate::events::Event;
use crate::kubelet::{PodStatusExt as _, PublishedPod};
use crate::object_ref::PodRef;

/// Reason of the line, which is the name of the condition.
pub(super) const READY: &str = "Ready";

/// The pods that are ready.
#[derive(Debug, Default)]
pub(super) struct ReadyPods(HashSet<String>);

impl ReadyPods {
    /// Returns an event for each pod that has become ready since the last call. It is printed, and
    /// recorded nowhere.
    pub(super) fn update(&mut self, pods: &[PublishedPod]) -> Vec<Event> {
        let is_ready = |pod: &&PublishedPod| {
            pod.removed().is_none() && pod.status().is_some_and(|status| status.is(READY))
        };
        let ready = pods.iter().filter(is_ready);
        let new: Vec<Event> = ready.clone().filter(|pod| !self.0.contains(pod.uid())).map(event).collect();
        self.0 = ready.map(|pod| pod.uid().to_owned()).collect();
        new
    }
}

fn event(pod: &PublishedPod) -> Event {
    let (namespace, name) = pod.names();
    let pod = PodRef {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(pod.uid().to_owned()),
        ..PodRef::default()
    };
    Event::normal(READY, "The pod is ready").for_pod(Arc::new(pod))
}
