//! Other files in place of a socket or its lock: they are refused and not changed.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use probeshim::socket::{BindError, BindMode, SocketPath, bind};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Content of a file that must not be changed.
const PRECIOUS: &str = "precious";

/// Creates a directory that contains a precious file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), PRECIOUS).unwrap();
    folder
}

fn refused(folder: &Path) -> BindError {
    bind(&SocketPath::new(&folder.join("a.sock")).unwrap(), BindMode::OwnerOnly)
        .expect_err("the socket was claimed")
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn a_link_or_a_fifo_in_place_of_a_socket_is_refused_and_kept() {
    type Put = fn(&Path);
    let stale = |path: &Path| drop(UnixListener::bind(path).unwrap());
    let cases: [(&str, Put); 4] = [
        ("a link to a file", |folder| symlink("file", folder.join("a.sock")).unwrap()),
        ("a link to nothing", |folder| symlink("nothing", folder.join("a.sock")).unwrap()),
        ("a link to a stale socket", |folder| symlink("stale", folder.join("a.sock")).unwrap()),
        ("a FIFO", |folder| fifo(&folder.join("a.sock"))),
    ];
    for (what, put) in cases {
        let folder = folder();
        stale(&folder.path().join("stale"));
        put(folder.path());
        let kind = fs::symlink_metadata(folder.path().join("a.sock")).unwrap().file_type();
        assert!(matches!(refused(folder.path()), BindError::NotASocket(_)), "{what}");
        assert_eq!(fs::symlink_metadata(folder.path().join("a.sock")).unwrap().file_type(), kind, "{what}");
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), PRECIOUS, "{what}");
        assert!(fs::metadata(folder.path().join("stale")).unwrap().file_type().is_socket(), "{what}");
        assert!(
            !folder.path().join("nothing").exists() && !folder.path().join("a.sock.lock").exists(),
            "{what}"
        );
    }
}

#[test]
fn a_lock_that_is_a_link_or_not_a_regular_file_is_refused_and_kept() {
    type Put = fn(&Path);
    let cases: [(&str, Put); 4] = [
        ("a hard link", |folder| fs::hard_link(folder.join("file"), folder.join("a.sock.lock")).unwrap()),
        ("a link to a file", |folder| symlink("file", folder.join("a.sock.lock")).unwrap()),
        ("a FIFO", |folder| fifo(&folder.join("a.sock.lock"))),
        ("a folder", |folder| fs::create_dir(folder.join("a.sock.lock")).unwrap()),
    ];
    for (what, put) in cases {
        let folder = folder();
        put(folder.path());
        let told = refused(folder.path()).to_string();
        assert!(told.contains("a.sock.lock"), "{what}: {told}");
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), PRECIOUS, "{what}");
        assert!(folder.path().join("a.sock.lock").symlink_metadata().is_ok(), "{what}: the file was removed");
        assert!(!folder.path().join("a.sock").exists(), "{what}");
    }
}
