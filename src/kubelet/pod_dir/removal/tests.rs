//! Removal of trees with links, mount points and great depth.

use std::fs;
use std::os::unix::fs::symlink;

use fixtures::skip::skip;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::super::beneath::{make, trusted};
use super::*;
use crate::kubelet::pod_dir::tests::{limited, may_mount};

#[test]
fn removal_of_a_tree_does_not_follow_links() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, host) = (dir.path().join("tree"), dir.path().join("host"));
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "host").unwrap();
    for (target, link) in
        [(host.clone(), "a/dir"), (host.join("file"), "a/b/file"), ("..".into(), "a/b/c/up")]
    {
        symlink(target, tree.join(link)).unwrap();
    }
    symlink(&host, dir.path().join("link")).unwrap();
    let parent = trusted(dir.path()).unwrap();
    for name in ["tree", "link", "absent"] {
        remove(&parent, OsStr::new(name)).unwrap();
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["host"]);
    assert_eq!(fs::read(host.join("file")).unwrap(), b"host");
    for wrong in ["", ".", "..", "a/b", "/"] {
        assert!(remove(&parent, OsStr::new(wrong)).is_err(), "{wrong:?}");
    }
}

/// A container can create a tree that is deeper than the number of descriptors, or than the length
/// of a path.
#[test]
fn a_tree_of_any_depth_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let parent = trusted(dir.path()).unwrap();
    let mut deepest = make(&parent, OsStr::new("tree"), 0o755).unwrap();
    for _ in 0..5_000 {
        make(&deepest, OsStr::new("beside"), 0o755).unwrap();
        deepest = make(&deepest, OsStr::new("d"), 0o755).unwrap();
    }
    remove(&parent, OsStr::new("tree")).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The paths of the directories at the bottom are 125 KiB long each, and 625 MiB in total.
#[test]
fn removal_of_a_tree_does_not_store_the_paths_of_its_directories() {
    let tree = OsStr::new("tree");
    if let Some(directory) = limited::directory() {
        return remove(trusted(&directory).unwrap(), tree).unwrap();
    }
    let long = |number: usize| OsString::from(format!("{number:0>255}"));
    let dir = tempfile::tempdir().unwrap();
    let mut deepest = make(trusted(dir.path()).unwrap(), tree, 0o755).unwrap();
    for number in 0..500 {
        deepest = make(&deepest, &long(number), 0o755).unwrap();
    }
    for number in 0..5_000 {
        let bottom = make(&deepest, &long(number), 0o755).unwrap();
        make(&bottom, OsStr::new("content"), 0o755).unwrap();
    }
    let test = concat!(module_path!(), "::removal_of_a_tree_does_not_store_the_paths_of_its_directories");
    limited::run(test, "-d 131072", dir.path());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn removal_of_a_tree_does_not_remove_files_on_mounts() {
    if !may_mount() {
        return skip("mounts take the right to mount");
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, host) = (dir.path().join("tree"), dir.path().join("host"));
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "host").unwrap();
    let parent = trusted(dir.path()).unwrap();
    for (source, point) in
        [("host", "a/b/point"), ("host", "point"), ("host/file", "a/b/file"), ("host/file", "file")]
    {
        let (source, point) = (dir.path().join(source), tree.join(point));
        if source.is_dir() {
            fs::create_dir_all(&point).unwrap();
        } else {
            fs::create_dir_all(point.parent().unwrap()).unwrap();
            fs::write(&point, "").unwrap();
        }
        mount_bind(&source, &point).unwrap();
        let error = remove(&parent, OsStr::new("tree")).unwrap_err();
        let is_reported = error.to_string().contains("is a mount point; mounted files are not removed");
        // The directories above the mount point may have been moved, and the mount point with them.
        let name = point.file_name().unwrap();
        let points = super::super::mountinfo::mounted_below(&dir.path().canonicalize().unwrap()).unwrap();
        assert_eq!(points.len(), 1, "{points:?}");
        assert!(is_reported && points[0].ends_with(name), "{error}: {points:?}");
        assert_eq!(fs::read(host.join("file")).unwrap(), b"host", "{error}");
        unmount(&points[0], UnmountFlags::NOFOLLOW).unwrap();
        remove(&parent, OsStr::new("tree")).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read(host.join("file")).unwrap(), b"host");
    }
}
