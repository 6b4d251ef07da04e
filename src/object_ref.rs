//! References to pods and containers, as calls, events and records name them.

/// A reference to a pod. What its source does not tell is `None`.
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

/// A reference to a container. What its source does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContainerRef {
    /// Its id.
    pub id: Option<String>,
    /// Its name in the pod.
    pub name: Option<String>,
    /// How often the container of this name had been created before.
    pub attempt: Option<u32>,
}
