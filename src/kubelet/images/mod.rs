//! Images of containers: presence checks, pulls, back-off, and verification of the credentials with
//! which images were pulled (kubelet: `pkg/kubelet/images`).

mod keyring;
mod manager;
mod node_credentials;
mod pull_error;
mod pull_manager;
mod pull_records;
mod puller;

pub(super) use keyring::{SecretSource, TrackedCredential};
#[cfg(test)]
pub(super) use manager::IMAGE_GC_PERIOD;
pub(super) use manager::{EnsuredImage, ImageError, ImageManager, ImageRequest};
