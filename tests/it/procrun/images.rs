//! The image service, in which images are only names.

use probeshim::cri::image_client;
use probeshim::cri::v1::*;
use tonic::Code;

use super::{Runtime, refused};

fn spec(name: &str) -> ImageSpec {
    ImageSpec { image: name.into(), ..Default::default() }
}

#[tokio::test]
async fn every_image_name_exists_except_missing_ones() {
    let runtime = Runtime::start();
    let mut images = image_client(&runtime.socket);
    let status = |name| ImageStatusRequest { image: Some(spec(name)), verbose: false };
    let known = images.image_status(status("some/image:1")).await.unwrap().into_inner().image.unwrap();
    assert!(known.size > 0, "crictl and the kubelet reject images of size 0");
    assert_eq!(known.repo_tags, ["docker.io/some/image:1"]);
    let missing = images.image_status(status("missing.test/image")).await.unwrap().into_inner();
    assert_eq!(missing.image, None);
    let pull = |name| PullImageRequest { image: Some(spec(name)), ..Default::default() };
    let (code, words) = refused(images.pull_image(pull("missing.test/image")).await);
    assert_eq!(code, Code::NotFound);
    assert!(words.starts_with("failed to pull and unpack image \"missing.test/image:latest\""), "{words}");

    // A pulled image is listed by its name and by its id until it is removed.
    let pulled = images.pull_image(pull("some/image:1")).await.unwrap().into_inner().image_ref;
    assert_eq!(pulled, known.id);
    let filter = Some(ImageFilter { image: Some(spec(&known.id)) });
    let listed = images.list_images(ListImagesRequest { filter }).await.unwrap().into_inner().images;
    assert_eq!(listed, [known]);
    images.remove_image(RemoveImageRequest { image: Some(spec("some/image:1")) }).await.unwrap();
    images.remove_image(RemoveImageRequest { image: Some(spec("some/image:1")) }).await.unwrap();
    let mut stream = images.stream_images(StreamImagesRequest::default()).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap(), None);
    let usage = images.image_fs_info(ImageFsInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((usage.image_filesystems.len(), usage.container_filesystems.len()), (1, 1));
    runtime.end().await;
}
