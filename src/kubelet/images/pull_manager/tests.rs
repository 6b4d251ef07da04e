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

#[tokio::test]
async fn only_records_older_than_the_list_of_images_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    let pull = async |image: &str, image_ref: &str| {
        manager.record_pull_intent(image).await.succeed(image_ref, Some(&credential("first", Some("a"))));
    };
    let empty = async { Ok(Vec::new()) };
    manager.initialize(empty).await.unwrap();
    let refs = || {
        let mut refs: Vec<String> = manager.lock().pulled.keys().cloned().collect();
        refs.sort();
        refs
    };
    for (image, image_ref) in [("a:1", "listed"), ("b:1", "pulled again"), ("c:1", "gone")] {
        pull(image, image_ref).await;
    }
    let list = async {
        pull("b:1", "pulled again").await;
        pull("d:1", "new").await;
        Ok(vec![image("listed", "a:1")])
    };
    manager.prune_unknown_records(list).await.unwrap();
    assert_eq!(refs(), ["listed", "new", "pulled again"]);
    let failed = manager.prune_unknown_records(async { Err(Status::unavailable("down")) }).await;
    assert!(failed.is_err() && refs().len() == 3);
    manager.prune_unknown_records(async { Ok(vec![image("listed", "a:1")]) }).await.unwrap();
    assert_eq!(refs(), ["listed"]);
    manager.state.close().await.unwrap();
    let (_, snapshot) = {
        drop(manager);
        StateStore::open(dir.path()).unwrap()
    };
    assert_eq!(snapshot.entries::<ImagePulledRecord>(StateTable::PulledImages).unwrap().len(), 1);
}

/// The images are listed again if the first list has failed, and the pull continues meanwhile.
#[tokio::test]
async fn an_image_that_is_pulled_while_the_images_are_first_listed_keeps_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let manager = open(dir.path());
    let intent = manager.record_pull_intent(IMAGE).await;
    let list = async {
        intent.succeed(IMAGE_REF, Some(&credential("first", Some("a"))));
        Ok(Vec::new())
    };
    manager.initialize(list).await.unwrap();
    assert!(must_pull(&manager, IMAGE, &[]));
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
