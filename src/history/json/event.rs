//! JSON of events.

use serde::{Deserialize, Serialize};

use super::time;
use crate::events::{self, EventType};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct Event {
    pub time: String,
    /// `Normal` or `Warning`.
    pub r#type: String,
    pub reason: String,
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub container: Option<String>,
    pub message: String,
    pub count: u64,
    /// Time of the first occurrence; null from a probeshim that does not report it.
    #[serde(rename = "firstTime", default)]
    pub first_time: Option<String>,
    /// Unique id of the pod, which differs between pods of one name; absent if it is unknown.
    #[serde(rename = "podUid", default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

impl From<&events::Event> for Event {
    fn from(event: &events::Event) -> Self {
        let pod = event.pod.as_deref();
        let severity = match event.severity {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        Self {
            time: time(event.time),
            r#type: severity.to_owned(),
            reason: event.reason.to_owned(),
            namespace: pod.and_then(|pod| pod.namespace.clone()),
            pod: pod.and_then(|pod| pod.name.clone()),
            container: event.container.as_deref().and_then(|container| container.name.clone()),
            message: event.message.clone(),
            count: event.count,
            first_time: Some(time(event.first_time)),
            pod_uid: pod.and_then(|pod| pod.uid.clone()),
        }
    }
}
