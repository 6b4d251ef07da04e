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
