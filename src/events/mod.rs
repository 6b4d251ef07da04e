//! Events about pods, containers and probeshim itself (client-go: `EventRecorder`).

mod message_key;
pub mod reason;
mod recorder;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) use message_key::message_key;
pub use recorder::EventRecorder;

use crate::object_ref::{ContainerRef, PodRef};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the last occurrence.
    pub time: SystemTime,
    /// Time of the first occurrence.
    pub first_time: SystemTime,
    /// Severity of the event.
    pub severity: EventType,
    /// Reason in one word in `CamelCase`, see [`reason`].
    pub reason: &'static str,
    /// Pod, if the event is about one.
    pub pod: Option<Arc<PodRef>>,
    /// Container, if the event is about one.
    pub container: Option<Arc<ContainerRef>>,
    /// Message. The kubelet's text if the kubelet has the event.
    pub message: String,
    /// Number of occurrences.
    pub count: u64,
}

/// Severity of an event (Kubernetes: the event's `type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The event was expected.
    Normal,
    /// The event needs attention.
    Warning,
}

/// Selects events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only events whose last occurrence was at this time or later.
    pub since: Option<SystemTime>,
    /// Only events about pods of this namespace.
    pub namespace: Option<String>,
    /// Only events about this pod: its name, `NAMESPACE/NAME` or uid.
    pub pod: Option<String>,
    /// Only events of this severity.
    pub severity: Option<EventType>,
    /// Only events with this reason, without regard to case.
    pub reason: Option<String>,
}

impl Event {
    /// Creates a Normal event that has occurred once, now, and is about no pod.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(EventType::Normal, reason, message.into())
    }

    /// Creates a Warning event that has occurred once, now, and is about no pod.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(EventType::Warning, reason, message.into())
    }

    fn new(severity: EventType, reason: &'static str, message: String) -> Self {
        let now = SystemTime::now();
        Self { time: now, first_time: now, severity, reason, pod: None, container: None, message, count: 1 }
    }

    /// Returns the event with a reference to its pod.
    #[must_use]
    pub fn for_pod(self, pod: Arc<PodRef>) -> Self {
        Self { pod: Some(pod), ..self }
    }

    /// Returns the event with references to its container and the container's pod.
    #[must_use]
    pub fn for_container(self, pod: Arc<PodRef>, container: Arc<ContainerRef>) -> Self {
        Self { pod: Some(pod), container: Some(container), ..self }
    }

    /// Returns whether the severity is Warning.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.severity == EventType::Warning
    }

    /// Returns a hash of everything that equal events have in common. Ids and pids in the message
    /// may differ.
    pub(crate) fn event_key(&self) -> u64 {
        let Self { time: _, first_time: _, count: _, severity, reason, pod, container, message } = self;
        let mut hasher = DefaultHasher::new();
        (*severity as u8, reason, pod, container, message_key(message)).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns whether both events are counted together.
    fn same_key(&self, other: &Self) -> bool {
        let Self { time: _, first_time: _, count: _, severity, reason, pod, container, message } = self;
        (*severity, *reason, pod, container, message_key(message))
            == (other.severity, other.reason, &other.pod, &other.container, message_key(&other.message))
    }
}

impl EventFilter {
    /// Returns whether an event passes.
    #[must_use]
    pub fn lets_through(&self, event: &Event) -> bool {
        let Self { since, namespace, pod, severity, reason } = self;
        let its_pod = event.pod.as_deref();
        let its_namespace = its_pod.and_then(|pod| pod.namespace.as_deref());
        since.is_none_or(|since| event.time >= since)
            && namespace.as_deref().is_none_or(|namespace| its_namespace == Some(namespace))
            && pod.as_deref().is_none_or(|name| its_pod.is_some_and(|pod| pod.is_named(name)))
            && severity.is_none_or(|severity| event.severity == severity)
            && reason.as_deref().is_none_or(|reason| event.reason.eq_ignore_ascii_case(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn every_reason_of_events_is_in_the_list_of_all() {
        let constants = include_str!("reason.rs").matches(": &str = ").count();
        assert_eq!(reason::ALL.len(), constants);
    }
}
