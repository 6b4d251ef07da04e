//! Images, which are only names.

use hyper_util::rt::TokioIo;
use probeshim::cri::v1::image_service_client::ImageServiceClient;
use probeshim::cri::v1::*;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{Runtime, refused};

fn client(runtime: &Runtime) -> ImageServiceClient<Channel> {
    let path = runtime.socket.as_path().to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    ImageServiceClient::new(Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector))
}

fn spec(name: &str) -> ImageSpec {
    ImageSpec { image: name.into(), ..Default::default() }
}

#[tokio::test]
async fn every_name_is_known_but_for_those_that_are_missing() {
    let runtime = Runtime::start();
    let mut images = client(&runtime);
    let status = |name| ImageStatusRequest { image: Some(spec(name)), verbose: false };
    let known = images.image_status(status("some/image:1")).await.unwrap().into_inner().image.unwrap();
    assert_eq!(known.repo_tags, ["docker.io/some/image:1"]);
    let missing = images.image_status(status("missing.test/image")).await.unwrap().into_inner();
    assert_eq!(missing.image, None);
    let pull = |name| PullImageRequest { image: Some(spec(name)), ..Default::default() };
    let (code, words) = refused(images.pull_image(pull("missing.test/image")).await);
    assert_eq!(code, Code::NotFound);
    assert!(words.starts_with("failed to pull and unpack image \"missing.test/image:latest\""), "{words}");

    // What was pulled is in the list, by its name and by its id, until it is removed.
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
