//! Source of a probe or hook: the place in which it is specified.

use crate::manifest::cursor::Level;

/// Source of a probe or hook, in order of precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A rule of the configuration.
    Config,
    /// An annotation of the pod for probeshim.
    Annotation,
    /// A file that `--manifests` names.
    #[default]
    Manifest,
    /// `/pods` of the kubelet that the configuration names.
    Kubelet,
    /// The API server that the configuration names.
    ApiServer,
    /// The read-only port of the local kubelet, which was found. It gives names only.
    ReadOnlyPort,
    /// The static pods of the local kubelet, which were found. They give names only.
    StaticPods,
    /// The annotation `kubectl.kubernetes.io/last-applied-configuration` of the pod.
    LastApplied,
    /// An annotation of the container that the kubelet wrote.
    KubeletAnnotation,
}

impl Source {
    const ALL: [Self; 9] = [
        Self::Config,
        Self::Annotation,
        Self::Manifest,
        Self::Kubelet,
        Self::ApiServer,
        Self::ReadOnlyPort,
        Self::StaticPods,
        Self::LastApplied,
        Self::KubeletAnnotation,
    ];

    /// Returns the source with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// Returns the name of the source.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Annotation => "annotation",
            Self::Manifest => "manifest",
            Self::Kubelet => "kubelet",
            Self::ApiServer => "api-server",
            Self::ReadOnlyPort => "read-only-port",
            Self::StaticPods => "static-pods",
            Self::LastApplied => "last-applied",
            Self::KubeletAnnotation => "kubelet-annotation",
        }
    }

    /// Returns whether the source was found, without configuration, beside the local kubelet.
    pub(crate) fn is_found(self) -> bool {
        matches!(self, Self::ReadOnlyPort | Self::StaticPods)
    }

    /// Returns how strictly documents of this source are read. A person writes the strict ones for
    /// probeshim. Other programs, which may be newer than probeshim, write the lenient ones.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Config | Self::Annotation | Self::Manifest => Level::Strict,
            _ => Level::Lenient,
        }
    }

    /// Returns whether documents of this source are objects of a server, whose lists have another
    /// order each time.
    pub(crate) fn is_server(self) -> bool {
        matches!(self, Self::Kubelet | Self::ApiServer | Self::ReadOnlyPort)
    }
}
