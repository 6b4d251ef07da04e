//! Images that are pulled although they are on the node.

use super::Kubelet;
use crate::cri::v1::{ImageSpec, ImageStatusRequest};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};
use crate::manifest::pod::PullPolicy;
use crate::object_ref::PodRef;

impl Kubelet {
    /// Returns the image of a container that is always pulled, if the image is on the node. Without
    /// a registry such a pull fails, although the container could start.
    pub async fn needlessly_pulled(&self, pod: &PodRef, container: &str) -> Option<String> {
        let pod = self.pod_workers.update(pod, |worker| worker.pod.borrow().clone())?;
        let container = pod.container(container)?;
        if container.pull_policy != PullPolicy::Always {
            return None;
        }
        let image = ImageSpec { image: container.image.clone(), ..ImageSpec::default() };
        let request = ImageStatusRequest { image: Some(image), verbose: false };
        let mut images = self.context.runtime.images.clone();
        let status = with_timeout(RUNTIME_REQUEST_TIMEOUT, images.image_status(request)).await.ok()?;
        status.image.map(|_| container.image.clone())
    }
}
