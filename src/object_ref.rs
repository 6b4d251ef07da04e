//! References to pods and containers in calls, events and records.

/// A reference to a pod. Fields that its source does not contain are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRef {
    /// The sandbox's id.
    pub id: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The pod's name.
    pub name: Option<String>,
    /// The pod's uid.
    pub uid: Option<String>,
}

/// A reference to a container. Fields that its source does not contain are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContainerRef {
    /// The container's id.
    pub id: Option<String>,
    /// The container's name in its pod.
    pub name: Option<String>,
    /// The attempt of the container in its CRI metadata.
    pub attempt: Option<u32>,
}

/// Returns `NAMESPACE/POD`, or the pod if the namespace is empty.
#[must_use]
pub fn pod_name(namespace: &str, pod: &str) -> String {
    if namespace.is_empty() { pod.to_owned() } else { format!("{namespace}/{pod}") }
}

/// Minimum length of a prefix of an id that is matched. A shorter text is rather a name.
const MIN_ID_PREFIX: usize = 4;

impl PodRef {
    /// Returns whether a text refers to the pod: its name, `NAMESPACE/NAME`, its uid, or a prefix
    /// of its sandbox's id of at least four characters.
    #[must_use]
    pub fn is_named(&self, text: &str) -> bool {
        let is = |name: &Option<String>| name.as_deref() == Some(text);
        let is_whole_name = || {
            let (namespace, name) = text.split_once('/')?;
            Some(self.namespace.as_deref()? == namespace && self.name.as_deref()? == name)
        };
        is(&self.name)
            || is(&self.uid)
            || is_whole_name().unwrap_or(false)
            || has_prefix(self.id.as_deref(), text)
    }
}

impl ContainerRef {
    /// Returns whether a text refers to the container: its name, or a prefix of its id of at least
    /// four characters.
    #[must_use]
    pub fn is_named(&self, text: &str) -> bool {
        self.name.as_deref() == Some(text) || has_prefix(self.id.as_deref(), text)
    }
}

fn has_prefix(id: Option<&str>, text: &str) -> bool {
    text.len() >= MIN_ID_PREFIX && id.is_some_and(|id| id.starts_with(text))
}
