//! Numbers of equal events of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::events::{Event, reason};
use crate::object_ref::{ContainerRef, PodRef};

/// Maximum number of different events that are counted.
const MAX_EVENTS: usize = 4_096;

/// Numbers of equal events, by container since its last start.
#[derive(Debug, Default)]
pub(super) struct Repetitions(BTreeMap<EventSubject, BTreeMap<(&'static str, String), u64>>);

/// Namespace and name of a pod, and the name of a container.
type EventSubject = [Option<String>; 3];

impl Repetitions {
    /// Counts an event. Returns the number of equal events, including this one.
    pub(super) fn count(&mut self, event: &Event, message: &str) -> u64 {
        let subject = subject(event.pod.as_ref(), event.container.as_ref());
        if event.reason == reason::STARTED {
            self.0.remove(&subject);
        }
        if self.0.values().map(BTreeMap::len).sum::<usize>() >= MAX_EVENTS {
            self.0.clear();
        }
        let count = self.0.entry(subject).or_default().entry((event.reason, message.to_owned())).or_default();
        *count += 1;
        *count
    }
}

fn subject(pod: Option<&Arc<PodRef>>, container: Option<&Arc<ContainerRef>>) -> EventSubject {
    let pod = |name: fn(&PodRef) -> &Option<String>| pod.and_then(|pod| name(pod).clone());
    let container = container.and_then(|container| container.name.clone());
    [pod(|pod| &pod.namespace), pod(|pod| &pod.name), container]
}
