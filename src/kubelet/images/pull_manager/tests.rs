use std::convert::Infallible;
use std::path::Path;

use super::*;
use crate::kubelet::images::keyring::tests::credential;

const IMAGE: &str = "registry.test/private:1";
const IMAGE_REF: &str = "sha256:1";

fn open(dir: &Path) -> PullManager {
    let (state, snapshot) = StateStore::open(dir).unwrap();
    PullManager::restore(&snapshot, state).unwrap()
}

/// Returns whether a pod with these credentials must pull the image.
fn must_pull(manager: &PullManager, image: &str, credentials: &[TrackedCredential]) -> bool {
    let found: Result<bool, Infallible> =
        manager.must_attempt_pull(image, IMAGE_REF, || Ok(credentials.to_vec()));
    found.unwrap()
}

fn image(id: &str, tag: &str) -> Image {
    Image { id: id.to_owned(), repo_tags: vec![tag.to_owned()], ..Image::default() }
}

#[tokio::test]
async fn an_image_that_was_not_pulled_here_is_accessible_to_all_pods() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    assert!(!must_pull(&manager, IMAGE, &[]));
    let intent = manager.record_pull_intent(IMAGE).await;
    assert!(must_pull(&manager, IMAGE, &[]), "it is being pulled");
    drop(intent);
    assert!(!must_pull(&manager, IMAGE, &[]), "the pull has failed");
}

#[tokio::test]
async fn an_image_pulled_without_secret_is_accessible_to_all_pods_by_the_same_name() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    manager.record_pull_intent(IMAGE).await.succeed(IMAGE_REF, Some(&credential("node", None)));
    assert!(!must_pull(&manager, IMAGE, &[]));
    assert!(!must_pull(&manager, "registry.test/private:2", &[]), "the tag does not matter");
    assert!(must_pull(&manager, "other.test/private:1", &[]), "another registry may have the same image");
}

#[tokio::test]
async fn an_image_pulled_with_a_secret_is_accessible_with_its_credentials_or_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    manager.record_pull_intent(IMAGE).await.succeed(IMAGE_REF, Some(&credential("first", Some("a"))));
    assert!(must_pull(&manager, IMAGE, &[]));
    assert!(must_pull(&manager, IMAGE, &[credential("other", Some("b"))]));
    assert!(
        must_pull(&manager, IMAGE, &[credential("first", None)]),
        "credentials of the node are no Secret"
    );
    assert!(!must_pull(&manager, IMAGE, &[credential("first", Some("a"))]));
    assert!(!must_pull(&manager, IMAGE, &[credential("x", Some("z")), credential("first", Some("b"))]));
    assert!(!must_pull(&manager, IMAGE, &[credential("second", Some("a"))]), "the Secret has changed");
    assert!(!must_pull(&manager, IMAGE, &[credential("second", Some("c"))]), "and counts from then on");
}

#[tokio::test]
async fn records_of_pulled_images_survive_a_restart_until_the_image_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    manager.record_pull_intent(IMAGE).await.succeed(IMAGE_REF, Some(&credential("first", Some("a"))));
    manager.state.close().await.unwrap();
    drop(manager);
    let manager = open(dir.path());
    manager.initialize(async { Ok(vec![image(IMAGE_REF, IMAGE)]) }).await.unwrap();
    assert!(must_pull(&manager, IMAGE, &[]));
    assert!(!must_pull(&manager, IMAGE, &[credential("first", Some("b"))]));
    manager.state.close().await.unwrap();
    drop(manager);
    let manager = open(dir.path());
    manager.initialize(async { Ok(vec![image("sha256:2", "other:1")]) }).await.unwrap();
    assert!(!must_pull(&manager, IMAGE, &[]), "an image with the same id is a new one");
}

/// Kubernetes' `TestNewCachedPullManager`: `initialize`.
#[tokio::test]
async fn an_image_of_an_interrupted_pull_is_accessible_only_after_another_pull() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    let intent = manager.record_pull_intent(IMAGE).await;
    manager.state.close().await.unwrap();
    drop(intent);
    drop(manager);
    let manager = open(dir.path());
    assert!(must_pull(&manager, IMAGE, &[]), "the intent is on disk");
    let failed = manager.initialize(async { Err(Status::unavailable("down")) }).await;
    assert!(failed.is_err());
    manager.initialize(async { Ok(vec![image(IMAGE_REF, IMAGE)]) }).await.unwrap();
    assert!(must_pull(&manager, IMAGE, &[]));
    assert!(must_pull(&manager, IMAGE, &[credential("first", Some("a"))]));
    manager.record_pull_intent(IMAGE).await.succeed(IMAGE_REF, None);
    assert!(!must_pull(&manager, IMAGE, &[]));
}
