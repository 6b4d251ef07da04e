//! Images. An image is only a name: all names exist from the start, and no image has content.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

use super::error::CriError;
use crate::cri::v1;
use crate::hex::hex;

/// Prefix of the names of images that do not exist, for tests.
const MISSING: &str = "missing.test/";

/// Prefix of an image's id.
const DIGEST: &str = "sha256:";

/// User that images name if procrun itself runs as root. Containers run as the user of procrun.
const OTHER_USER: u32 = 65_534;

/// An image, which consists of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// Id: the SHA-256 digest of the name.
    pub(super) id: String,
    /// Complete name, with registry and tag or digest.
    pub(super) name: String,
}

/// Images that clients have pulled or used.
#[derive(Debug, Default)]
pub(super) struct Images {
    used: Mutex<BTreeMap<String, Arc<Image>>>,
    /// Images that `ImageStatus` has returned. Clients may use their ids as names.
    listed: Mutex<BTreeMap<String, Arc<Image>>>,
}

impl Image {
    fn from_name(name: &str) -> Self {
        let name = normalize(name);
        let id = format!("{DIGEST}{}", hex(&Sha256::digest(&name)));
        Self { id, name }
    }

    /// Returns the image as a message of the CRI.
    pub(super) fn to_cri(&self) -> v1::Image {
        let (tags, digests) = if self.name.contains('@') {
            (Vec::new(), vec![self.name.clone()])
        } else {
            (vec![self.name.clone()], Vec::new())
        };
        v1::Image {
            id: self.id.clone(),
            repo_tags: tags,
            repo_digests: digests,
            // The kubelet's CRI client (cri-client/pkg/remote_image.go) and crictl reject size 0.
            size: self.name.len() as u64,
            // A kubelet refuses `runAsNonRoot` for an image without a user.
            uid: Some(v1::Int64Value { value: user() }),
            spec: Some(v1::ImageSpec { image: self.name.clone(), ..v1::ImageSpec::default() }),
            ..v1::Image::default()
        }
    }
}

/// Returns the user that images name.
pub(super) fn user() -> i64 {
    let user = rustix::process::geteuid();
    if user.is_root() { OTHER_USER.into() } else { user.as_raw().into() }
}

impl Images {
    /// Returns the image of this name or id. Fails if there is none.
    pub(super) fn resolve(&self, name: &str) -> Result<Arc<Image>, CriError> {
        if name.is_empty() {
            return Err(CriError::unknown("ambiguous digest string"));
        }
        self.find(name).ok_or_else(CriError::not_found)
    }

    /// Returns the image of this name or id, if there can be one. From then on the id resolves to
    /// the name.
    pub(super) fn status(&self, name: &str) -> Option<Arc<Image>> {
        let image = self.find(name)?;
        self.listed_images().insert(image.id.clone(), image.clone());
        Some(image)
    }

    /// Adds an image to the list.
    pub(super) fn remember(&self, image: &Arc<Image>) {
        self.known().entry(image.id.clone()).or_insert_with(|| image.clone());
    }

    /// Pulls an image, which takes no time.
    pub(super) fn pull(&self, name: &str) -> Result<Arc<Image>, CriError> {
        let image = self.resolve(name).map_err(|refusal| {
            let name = normalize(name);
            let (pull, resolve) = (
                format!("failed to pull and unpack image {name:?}"),
                format!("failed to resolve reference {name:?}"),
            );
            refusal.with_path(&[&pull, &resolve, &name])
        })?;
        self.remember(&image);
        Ok(image)
    }

    /// Returns the image of this name, id or unique prefix of an id, if there can be one.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Image>> {
        if name.is_empty() || name.starts_with(MISSING) {
            return None;
        }
        let digits = name.strip_prefix(DIGEST).unwrap_or(name);
        if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let known = self.known();
            let mut found = known.values().filter(|image| image.id[DIGEST.len()..].starts_with(digits));
            if let (Some(image), None) = (found.next(), found.next()) {
                return Some(image.clone());
            }
        }
        if name.starts_with(DIGEST) {
            // A name cannot be computed from its digest.
            return self.listed_images().get(name).cloned();
        }
        let named = Image::from_name(name);
        let known = self.known().get(&named.id).cloned();
        Some(known.unwrap_or_else(|| Arc::new(named)))
    }

    /// Returns the listed images. A filter that is not empty selects the image of this name or id.
    pub(super) fn list(&self, filter: &str) -> Vec<Arc<Image>> {
        let wanted = self.find(filter);
        let known = self.known();
        let is_wanted = |image: &&Arc<Image>| filter.is_empty() || wanted.as_ref() == Some(*image);
        known.values().filter(is_wanted).cloned().collect()
    }

    /// Removes an image from the list.
    pub(super) fn remove(&self, name: &str) {
        if let Some(image) = self.find(name) {
            self.known().remove(&image.id);
        }
    }

    fn listed_images(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Image>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Image>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the complete name: `docker.io/library/busybox:latest` for `busybox`.
fn normalize(name: &str) -> String {
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let with_registry = match name.split_once('/') {
        Some((first, _)) if is_registry(first) => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    };
    let last = with_registry.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { with_registry } else { with_registry + ":latest" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_get_their_default_registry_and_tag() {
        for (name, made) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("someone/thing", "docker.io/someone/thing:latest"),
            ("localhost/thing", "localhost/thing:latest"),
            ("registry.test:5000/thing", "registry.test:5000/thing:latest"),
            ("registry.test/a/b@sha256:00", "registry.test/a/b@sha256:00"),
        ] {
            assert_eq!(normalize(name), made);
        }
    }

    #[test]
    fn an_image_is_found_by_any_form_of_its_name_and_by_its_id() {
        let images = Images::default();
        let pulled = images.pull("busybox").unwrap();
        assert_eq!(images.find("docker.io/library/busybox:latest").as_ref(), Some(&pulled));
        for id in
            [&pulled.id, &pulled.id[..20], &pulled.id["sha256:".len()..], &pulled.id["sha256:".len()..20]]
        {
            assert_eq!(images.find(id).as_ref(), Some(&pulled), "{id}");
        }
        assert_eq!(images.list("busybox"), std::slice::from_ref(&pulled));
        images.remove("library/busybox");
        assert_eq!((images.list(""), images.find(&pulled.id)), (Vec::new(), None));
    }

    #[test]
    fn a_pull_of_a_missing_image_fails_with_containerds_message() {
        let refused = Images::default().pull("missing.test/a").unwrap_err().to_string();
        let name = "missing.test/a:latest";
        assert_eq!(
            refused,
            format!(
                "failed to pull and unpack image {name:?}: failed to resolve reference {name:?}: {name}: not found"
            )
        );
    }
}
