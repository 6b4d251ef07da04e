//! Policies for pulling images.

use crate::manifest::image_name::ImageName;

/// Policy for pulling an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullPolicy {
    /// Pulls before each start.
    Always,
    /// Pulls if the image is not present.
    IfNotPresent,
    /// Never pulls.
    Never,
}

impl PullPolicy {
    pub(crate) const NAMED: [(&'static str, Self); 3] =
        [("Always", Self::Always), ("IfNotPresent", Self::IfNotPresent), ("Never", Self::Never)];

    /// Returns the default policy for an image: `Always` if its tag is `latest` or it has neither
    /// tag nor digest, because the image may change, otherwise `IfNotPresent` (Kubernetes:
    /// `pkg/apis/core/v1/defaults.go`: `SetDefaults_Container`).
    pub(crate) fn default_pull_policy(image: &str) -> Self {
        let tag = ImageName::parse(image).ok().and_then(|name| name.tag);
        if tag == Some("latest") { Self::Always } else { Self::IfNotPresent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubernetes' `TestSetDefaultPodSpec`: an image with the tag `latest` is always pulled, even
    /// if it also has a digest.
    #[test]
    fn the_default_pull_policy_follows_from_the_tag_of_the_image() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (image, expected) in [
            ("busybox", PullPolicy::Always),
            ("host:5000/busybox", PullPolicy::Always),
            ("busybox:latest", PullPolicy::Always),
            ("busybox:1", PullPolicy::IfNotPresent),
            (&format!("busybox:latest@{digest}"), PullPolicy::Always),
            (&format!("busybox@{digest}"), PullPolicy::IfNotPresent),
            ("Busybox", PullPolicy::IfNotPresent),
        ] {
            assert_eq!(PullPolicy::default_pull_policy(image), expected, "{image}");
        }
    }
}
