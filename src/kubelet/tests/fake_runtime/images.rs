//! Images of the runtime in memory.

use std::collections::{BTreeMap, HashSet};

use prost::Message as _;
use tonic::{Code, Status};

use crate::cri::v1::{
    Image, ImageStatusRequest, ImageStatusResponse, ListImagesResponse, PullImageRequest, PullImageResponse,
};

/// Images of the runtime in memory. All images are present, except those that a test has to pull.
#[derive(Debug, Default)]
pub(in crate::kubelet::tests) struct FakeImages {
    /// Complete names of the images that are not on the node.
    pub(in crate::kubelet::tests) missing: HashSet<String>,
    /// Code and message with which pulls of these images fail.
    pub(in crate::kubelet::tests) pull_errors: BTreeMap<String, (Code, String)>,
    /// Error of `ImageStatus`.
    pub(in crate::kubelet::tests) status_error: Option<(Code, String)>,
    /// Names of images that are pulled only with this user.
    pub(in crate::kubelet::tests) private: BTreeMap<String, String>,
    /// Requests for pulls, in order.
    pub(in crate::kubelet::tests) pulls: Vec<PullImageRequest>,
    /// Number of lists of images.
    pub(in crate::kubelet::tests) lists: usize,
    pub(super) pulls_in_flight: usize,
    /// Highest number of pulls at the same time.
    pub(in crate::kubelet::tests) max_pulls_in_flight: usize,
}

impl FakeImages {
    pub(super) fn start_pull(&mut self, request: &PullImageRequest) {
        self.pulls.push(request.clone());
        self.pulls_in_flight += 1;
        self.max_pulls_in_flight = self.max_pulls_in_flight.max(self.pulls_in_flight);
    }

    pub(super) fn end_pull(&mut self, request: PullImageRequest) -> Result<Vec<u8>, Status> {
        self.pulls_in_flight -= 1;
        let name = request.image.map(|image| image.image).unwrap_or_default();
        if let Some((code, message)) = self.pull_errors.get(&name) {
            return Err(Status::new(*code, message.clone()));
        }
        if let Some(user) = self.private.get(&name)
            && request.auth.is_none_or(|auth| auth.username != *user)
        {
            return Err(Status::unknown("authorization failed"));
        }
        self.missing.remove(&name);
        Ok(PullImageResponse { image_ref: id(&name) }.encode_to_vec())
    }

    pub(super) fn status(&self, request: ImageStatusRequest) -> Result<Vec<u8>, Status> {
        if let Some((code, message)) = &self.status_error {
            return Err(Status::new(*code, message.clone()));
        }
        let name = request.image.map(|image| image.image).unwrap_or_default();
        let image = Image { id: id(&name), size: 7, ..Image::default() };
        let image = Some(image).filter(|_| !self.missing.contains(&name));
        Ok(ImageStatusResponse { image, ..ImageStatusResponse::default() }.encode_to_vec())
    }

    /// Returns an empty list.
    pub(super) fn list(&mut self) -> Vec<u8> {
        self.lists += 1;
        ListImagesResponse::default().encode_to_vec()
    }
}

fn id(name: &str) -> String {
    format!("id of {name}")
}
