//! Who says what is probed or executed.

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

    /// Whether a person wrote it for probeshim to read, who is told of fields that nobody knows. What comes from elsewhere may be newer
    /// than we are.
    pub(crate) fn is_user_authored(self) -> bool {
        matches!(self, Self::Config | Self::Annotation | Self::Manifest)
    }
}
