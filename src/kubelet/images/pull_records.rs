//! Records of pulled images, in the shape of the kubelet's (kubelet:
//! `k8s.io/kubelet/config/v1beta1`: `ImagePulledRecord`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::keyring::{SecretSource, TrackedCredential};

/// An image that was pulled by probeshim, and the credentials that gave access to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImagePulledRecord {
    /// Time of the last change, in RFC 3339.
    pub(super) last_updated_time: String,
    /// The runtime's reference of the image.
    pub(super) image_ref: String,
    /// Credentials by the names of the image, as written in pods, without tag and digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) credential_mapping: BTreeMap<String, ImagePullCredentials>,
}

/// Credentials that gave access to an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImagePullCredentials {
    /// Secrets, sorted by namespace, name and uid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_secrets: Vec<ImagePullSecret>,
    /// Whether all pods of the node have access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_pods_accessible: bool,
}

/// A Secret, and the hash of the credentials for the image in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImagePullSecret {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Always empty: Secrets from manifests have no uid.
    pub(super) uid: String,
    pub(super) credential_hash: String,
}

impl ImagePullSecret {
    /// Returns the Secret of credentials; `None` for credentials of the node.
    pub(super) fn from_credential(tracked: &TrackedCredential) -> Option<Self> {
        let SecretSource { namespace, name } = tracked.source.clone()?;
        Some(Self { namespace, name, uid: String::new(), credential_hash: tracked.hash() })
    }

    pub(super) fn is_same_secret(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
    }
}

impl ImagePullCredentials {
    /// Returns the record of the credentials with which an image was pulled (kubelet:
    /// `images/image_manager.go`: `trackedToImagePullCreds`).
    pub(super) fn from_credential(used: Option<&TrackedCredential>) -> Self {
        match used.and_then(ImagePullSecret::from_credential) {
            Some(secret) => Self { kubernetes_secrets: vec![secret], node_pods_accessible: false },
            None => Self { kubernetes_secrets: Vec::new(), node_pods_accessible: true },
        }
    }

    /// Adds credentials. Returns whether they were new (kubelet:
    /// `images/pullmanager/image_pull_manager.go`: `pulledRecordMergeNewCreds`).
    fn merge(&mut self, new: Self) -> bool {
        if self.node_pods_accessible {
            return false;
        }
        if new.node_pods_accessible {
            *self = new;
            return true;
        }
        let before = self.kubernetes_secrets.clone();
        for secret in new.kubernetes_secrets {
            self.kubernetes_secrets.retain(|known| !known.is_same_secret(&secret));
            self.kubernetes_secrets.push(secret);
        }
        self.kubernetes_secrets.sort();
        self.kubernetes_secrets != before
    }
}

impl ImagePulledRecord {
    /// Creates the record of an image that was pulled with unknown credentials. Access to it is
    /// verified at its next use.
    pub(super) fn new(image_ref: &str, now: Timestamp) -> Self {
        Self {
            last_updated_time: now.to_string(),
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }

    /// Adds credentials for a name. Returns whether they were new.
    pub(super) fn merge(&mut self, name: &str, new: ImagePullCredentials, now: Timestamp) -> bool {
        let is_changed = if let Some(known) = self.credential_mapping.get_mut(name) {
            known.merge(new)
        } else {
            self.credential_mapping.insert(name.to_owned(), new);
            true
        };
        if is_changed {
            self.last_updated_time = now.to_string();
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::images::keyring::tests::credential;

    #[test]
    fn records_of_pulled_images_have_the_shape_of_the_kubelet() {
        let mut record = ImagePulledRecord::new("sha256:1", Timestamp::UNIX_EPOCH);
        let used = credential("user", Some("key"));
        assert!(record.merge("a", ImagePullCredentials::from_credential(Some(&used)), Timestamp::UNIX_EPOCH));
        assert!(record.merge("b", ImagePullCredentials::from_credential(None), Timestamp::UNIX_EPOCH));
        let json = serde_json::to_value(&record).unwrap();
        let expected = serde_json::json!({
            "lastUpdatedTime": "1970-01-01T00:00:00Z",
            "imageRef": "sha256:1",
            "credentialMapping": {
                "a": {"kubernetesSecrets": [
                    {"namespace": "test", "name": "key", "uid": "", "credentialHash": used.hash()}
                ]},
                "b": {"nodePodsAccessible": true}
            }
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<ImagePulledRecord>(json).unwrap(), record);
    }

    /// Kubernetes' `TestPulledRecordMergeNewCreds`.
    #[test]
    fn upstream_test_pulled_record_merge_new_creds() {
        let secret = |name: &str, user: &str| {
            ImagePullCredentials::from_credential(Some(&credential(user, Some(name))))
        };
        let mut known = secret("b", "first");
        assert!(!known.merge(secret("b", "first")), "the same credentials are no change");
        assert!(known.merge(secret("b", "second")), "the Secret has other credentials");
        assert_eq!(known, secret("b", "second"));
        assert!(known.merge(secret("a", "second")));
        let names: Vec<&str> = known.kubernetes_secrets.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let of_node = ImagePullCredentials::from_credential(None);
        assert!(known.merge(of_node.clone()));
        assert_eq!(known, of_node, "Secrets no longer matter");
        assert!(!known.merge(secret("c", "third")));
    }
}
