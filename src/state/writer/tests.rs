//! Changes that are not on disk are reported, written again, and not lost.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

fn change(key: &str) -> Message {
    Message::Change(StateTable::Pods, key.to_owned(), Some(b"1".to_vec()))
}

fn values(keys: &[&str]) -> Vec<(StateTable, String, Vec<u8>)> {
    keys.iter().map(|key| (StateTable::Pods, (*key).to_owned(), b"1".to_vec())).collect()
}

#[test]
fn failed_state_writes_are_kept_reported_and_retried() {
    let place = tempfile::tempdir().unwrap();
    let [dir, away] = ["state", "away"].map(|name| place.path().join(name));
    let (mut file, _) = StateFile::open(&dir).unwrap();
    file.give_up();
    let (troubles, mut trouble) = watch::channel(None);
    let mut writer = StateWriter::new(file, troubles);
    fs::rename(&dir, &away).unwrap();
    fs::write(&dir, "").unwrap();
    writer.take(change("a"));
    writer.save();
    let error = trouble.borrow_and_update().clone().unwrap();
    assert!(error.contains("Not a directory"), "{error}");
    writer.save();
    assert!(!trouble.has_changed().unwrap(), "the error is reported once");
    fs::remove_file(&dir).unwrap();
    fs::rename(&away, &dir).unwrap();
    writer.take(change("b"));
    writer.save();
    assert_eq!(*trouble.borrow_and_update(), None);
    drop(writer);
    assert_eq!(StateFile::open(&dir).unwrap().1, values(&["a", "b"]));
}

#[test]
fn a_removed_state_file_is_written_again_with_its_content() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("state");
    let (file, _) = StateFile::open(&dir).unwrap();
    let (troubles, trouble) = watch::channel(None);
    let mut writer = StateWriter::new(file, troubles);
    writer.take(change("a"));
    writer.save();
    fs::remove_dir_all(&dir).unwrap();
    writer.save();
    assert!(dir.join("state.redb").exists(), "also where nothing has changed");
    fs::remove_file(dir.join("state.redb")).unwrap();
    writer.take(change("b"));
    writer.save();
    // The file is also written again after a failure of the database.
    writer.file.give_up();
    fs::remove_file(dir.join("state.redb")).unwrap();
    writer.take(change("c"));
    writer.save();
    assert_eq!(*trouble.borrow(), None);
    drop(writer);
    assert_eq!(StateFile::open(&dir).unwrap().1, values(&["a", "b", "c"]));
}

/// A file system in memory. It is unmounted when dropped.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn the_content_of_a_removed_state_file_is_kept_until_it_is_written_again() {
    let place = tempfile::tempdir().unwrap();
    let disk = Disk(place.path().to_owned());
    if mount("tmpfs", &disk.0, "tmpfs", MountFlags::empty(), c"size=64m").is_err() {
        return fixtures::skip::skip("mounts take the right to mount");
    }
    let (empty, dir, filler) = (disk.0.join("empty"), disk.0.join("state"), disk.0.join("filler"));
    StateFile::open(&empty).unwrap().0.close().unwrap();
    let size = |dir: &Path| fs::metadata(dir.join("state.redb")).unwrap().blocks() * 512;
    let (file, _) = StateFile::open(&dir).unwrap();
    let (troubles, trouble) = watch::channel(None);
    let mut writer = StateWriter::new(file, troubles);
    let large = vec![0; 1 << 20];
    for key in ["a", "b", "c", "d"] {
        writer.take(Message::Change(StateTable::Pods, key.to_owned(), Some(large.clone())));
    }
    writer.save();
    assert_eq!(*trouble.borrow(), None);
    // The file system has room for a file without values, and not for the values.
    let room = size(&empty) + (1 << 20);
    assert!(size(&dir) > room, "{} is too small", size(&dir));
    let free = statvfs(&disk.0).unwrap();
    let filling = free.f_bavail * free.f_frsize - room;
    fs::write(&filler, vec![0; usize::try_from(filling).unwrap()]).unwrap();
    fs::remove_file(dir.join("state.redb")).unwrap();
    for _ in 0..3 {
        writer.save();
        let error = trouble.borrow().clone().unwrap();
        assert!(error.contains("No space left on device"), "{error}");
        assert!(!dir.join("state.new").exists(), "what cannot be used takes no room");
    }
    fs::remove_file(&filler).unwrap();
    writer.save();
    assert_eq!(*trouble.borrow(), None);
    drop(writer);
    let (_file, values) = StateFile::open(&dir).unwrap();
    assert_eq!(values.len(), 4);
    assert!(values.iter().all(|(.., value)| *value == large));
}

#[test]
fn a_file_that_replaced_the_state_file_is_left_unchanged() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state.redb");
    let (file, _) = StateFile::open(place.path()).unwrap();
    let (troubles, trouble) = watch::channel(None);
    let mut writer = StateWriter::new(file, troubles);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    writer.take(Message::Change(StateTable::Pods, "a".to_owned(), None));
    writer.save();
    let error = trouble.borrow().clone().unwrap();
    assert!(error.contains("state.redb has been replaced by another file"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}
