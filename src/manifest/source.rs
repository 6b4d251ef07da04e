//! Who says what is probed or executed.

use crate::manifest::cursor::Level;

/// Where something is written, in the order in which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A rule of the configuration.
    Config,
    /// An annotation of the pod for probeshim.
    Annotation,
    /// A file that `--manifests` names.
    Manifest,
    /// What the kubelet tells of its pods.
    Kubelet,
    /// What kubectl left in an annotation of the pod when it was applied.
    LastApplied,
    /// What the kubelet left in an annotation of the container.
    KubeletAnnotation,
}

impl Source {
    const ALL: [Self; 6] = [
        Self::Config,
        Self::Annotation,
        Self::Manifest,
        Self::Kubelet,
        Self::LastApplied,
        Self::KubeletAnnotation,
    ];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Annotation => "annotation",
            Self::Manifest => "manifest",
            Self::Kubelet => "kubelet",
            Self::LastApplied => "last-applied",
            Self::KubeletAnnotation => "kubelet-annotation",
        }
    }

    /// Returns how much is required of what stands there: a person wrote it for probeshim to read, or others did, who may be newer.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Config | Self::Annotation | Self::Manifest => Level::Strict,
            Self::Kubelet | Self::LastApplied | Self::KubeletAnnotation => Level::Lenient,
        }
    }
}
