//! Tracks which images probeshim has pulled and with which credentials, so that only pods that have
//! such credentials use them (kubelet: `images/pullmanager/image_pull_manager.go`).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::OnceCell;
use tonic::Status;

use super::keyring::TrackedCredential;
use super::pull_records::{ImagePullCredentials, ImagePullSecret, ImagePulledRecord};
use crate::cri::v1::Image;
use crate::manifest::image_name::without_tag_and_digest;
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Number of Secrets of an image from which on a check adds no further ones.
const MAX_SECRETS_ADDED_BY_CHECKS: usize = 100;

/// The records of pulled images and of pulls in flight. They are kept in the state store, and
/// survive restarts.
#[derive(Debug)]
pub(super) struct PullManager {
    records: Mutex<PullRecords>,
    state: StateStore,
    is_initialized: OnceCell<()>,
}

#[derive(Debug, Default)]
struct PullRecords {
    /// Records by the runtime's references of images.
    pulled: HashMap<String, ImagePulledRecord>,
    /// Numbers of pulls in flight by names of images. It is 0 for a pull that an earlier process
    /// did not finish.
    intents: HashMap<String, usize>,
    /// References of images that were recorded since the last list of images was requested, which
    /// may lack them.
    recorded_since_list: HashSet<String>,
}

/// A pull in flight. The intent ends when this value is dropped.
#[derive(Debug)]
pub(super) struct PullIntent<'a> {
    manager: &'a PullManager,
    image: &'a str,
}

impl PullManager {
    /// Restores the records of an earlier process.
    pub(super) fn restore(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let pulled = snapshot.entries(StateTable::PulledImages)?.into_iter().collect();
        let intents = snapshot.entries::<()>(StateTable::PullIntents)?;
        let intents = intents.into_iter().map(|(image, ())| (image, 0)).collect();
        let records = Mutex::new(PullRecords { pulled, intents, recorded_since_list: HashSet::new() });
        Ok(Self { records, state, is_initialized: OnceCell::new() })
    }

    /// Compares the records of an earlier process with the images on the node, once. Records of
    /// images that are gone are removed. An image that was being pulled when the process ended
    /// counts as pulled with unknown credentials.
    pub(super) async fn initialize(
        &self,
        list_images: impl Future<Output = Result<Vec<Image>, Status>>,
    ) -> Result<(), Status> {
        let initialize = async || {
            self.lock().recorded_since_list.clear();
            list_images.await.map(|images| {
                self.adopt_unfinished(&images);
                self.retain_listed(&images);
            })
        };
        self.is_initialized.get_or_try_init(initialize).await.copied()
    }

    fn adopt_unfinished(&self, images: &[Image]) {
        let mut records = self.lock();
        for image in images {
            for name in image.repo_digests.iter().chain(&image.repo_tags) {
                if records.intents.get(name) == Some(&0) {
                    let record = || ImagePulledRecord::new(&image.id, Timestamp::now());
                    let record = records.pulled.entry(image.id.clone()).or_insert_with(record);
                    self.state.upsert(StateTable::PulledImages, &image.id, record);
                    records.intents.remove(name);
                    self.state.remove(StateTable::PullIntents, name);
                }
            }
        }
    }

    /// Removes the records of images that are not on the node. Lists the images only if there are
    /// records. Must be called only after `initialize` has succeeded, and one call after the other.
    pub(super) async fn prune_unknown_records(
        &self,
        list_images: impl Future<Output = Result<Vec<Image>, Status>>,
    ) -> Result<(), Status> {
        {
            let mut records = self.lock();
            if records.pulled.is_empty() {
                return Ok(());
            }
            records.recorded_since_list.clear();
        }
        list_images.await.map(|images| self.retain_listed(&images))
    }

    /// Removes the records of images that are not in a list, except those that were recorded after
    /// the list was requested (kubelet: `PruneUnknownRecords`, which compares times instead, and
    /// so forgets an image that is pulled again with the same credentials meanwhile).
    fn retain_listed(&self, images: &[Image]) {
        let listed: HashSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        let PullRecords { pulled, recorded_since_list, .. } = &mut *self.lock();
        pulled.retain(|image_ref, _| {
            let is_known = listed.contains(image_ref.as_str()) || recorded_since_list.contains(image_ref);
            if !is_known {
                self.state.remove(StateTable::PulledImages, image_ref);
            }
            is_known
        });
    }

    /// Records that an image is about to be pulled, and waits until the record is on disk (kubelet:
    /// `RecordPullIntent`).
    pub(super) async fn record_pull_intent<'a>(&'a self, image: &'a str) -> PullIntent<'a> {
        *self.lock().intents.entry(image.to_owned()).or_default() += 1;
        let intent = PullIntent { manager: self, image };
        self.state.upsert(StateTable::PullIntents, image, &());
        self.state.flush().await;
        intent
    }

    /// Returns whether a pod has to pull an image that is on the node, because its credentials may
    /// not give access to it (kubelet: `MustAttemptImagePull`, with the policy
    /// `NeverVerifyPreloadedImages`). `credentials` returns the pod's credentials for the image, if
    /// they matter.
    pub(super) fn must_attempt_pull<E>(
        &self,
        image: &str,
        image_ref: &str,
        credentials: impl FnOnce() -> Result<Vec<TrackedCredential>, E>,
    ) -> Result<bool, E> {
        let known = {
            let records = self.lock();
            let Some(record) = records.pulled.get(image_ref) else {
                return Ok(records.intents.contains_key(image));
            };
            record.credential_mapping.get(without_tag_and_digest(image)).cloned()
        };
        let Some(known) = known else { return Ok(true) };
        if known.node_pods_accessible {
            return Ok(false);
        }
        let secrets = credentials()?;
        let secrets = secrets.iter().filter_map(ImagePullSecret::from_credential);
        let Some(secret) = find_matching(secrets, &known.kubernetes_secrets) else { return Ok(true) };
        if known.kubernetes_secrets.len() < MAX_SECRETS_ADDED_BY_CHECKS {
            let new = ImagePullCredentials { kubernetes_secrets: vec![secret], node_pods_accessible: false };
            self.record_access(image, image_ref, new);
        }
        Ok(false)
    }

    /// Records credentials that give access to an image.
    fn record_access(&self, image: &str, image_ref: &str, credentials: ImagePullCredentials) {
        let now = Timestamp::now();
        let mut records = self.lock();
        records.recorded_since_list.insert(image_ref.to_owned());
        let record = || ImagePulledRecord::new(image_ref, now);
        let record = records.pulled.entry(image_ref.to_owned()).or_insert_with(record);
        if record.merge(without_tag_and_digest(image), credentials, now) {
            self.state.upsert(StateTable::PulledImages, image_ref, record);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PullRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PullIntent<'_> {
    /// Records that the image was pulled with these credentials, or without (kubelet:
    /// `RecordImagePulled`).
    pub(super) fn succeed(self, image_ref: &str, used: Option<&TrackedCredential>) {
        let credentials = ImagePullCredentials::from_credential(used);
        self.manager.record_access(self.image, image_ref, credentials);
    }
}

impl Drop for PullIntent<'_> {
    /// Removes the intent, unless another pull of the image is in flight.
    fn drop(&mut self) {
        let mut records = self.manager.lock();
        let left = records.intents.get_mut(self.image).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            records.intents.remove(self.image);
            self.manager.state.remove(StateTable::PullIntents, self.image);
        }
    }
}

/// Returns the first Secret with known credentials, or whose earlier credentials are known.
fn find_matching(
    mut secrets: impl Iterator<Item = ImagePullSecret>,
    known: &[ImagePullSecret],
) -> Option<ImagePullSecret> {
    let matches = |secret: &ImagePullSecret, known: &ImagePullSecret| {
        secret.credential_hash == known.credential_hash || secret.is_same_secret(known)
    };
    secrets.find(|secret| known.iter().any(|known| matches(secret, known)))
}

#[cfg(test)]
mod tests;
