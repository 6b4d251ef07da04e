//! Lookups below a directory, with links of every kind on the path.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fixtures::skip::skip;
use rustix::fs::{RenameFlags, renameat_with};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::*;
use crate::kubelet::pod_dir::tests::may_mount;

/// Creates a directory with links, next to a directory that no link may reach.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let volume = path.join("volume");
    fs::create_dir_all(volume.join("inner/deep")).unwrap();
    fs::create_dir_all(path.join("outside/deep")).unwrap();
    fs::write(volume.join("inner/file"), "x").unwrap();
    for (target, name) in [
        ("inner", "in"),
        ("../inner/deep", "inner/up"),
        ("../outside", "relative"),
        ("inner/../../outside", "winding"),
        ("nowhere", "dangling"),
        ("../nowhere", "dangling-out"),
        ("loop", "loop"),
        ("in/file", "chain"),
        ("/", "root"),
    ] {
        symlink(target, volume.join(name)).unwrap();
    }
    symlink(path.join("outside"), volume.join("absolute")).unwrap();
    symlink(volume.join("inner"), volume.join("absolute-in")).unwrap();
    (dir, volume)
}

#[test]
fn links_are_followed_below_a_directory_but_not_out_of_it_on_any_kernel() {
    let (_dir, volume) = tree();
    let dir = trusted(&volume).unwrap();
    let by_kernel = |path: &str, flags, links| open(&dir, Path::new(path), flags, links);
    let by_steps = |path: &str, flags, links| walk(dir.as_fd(), Path::new(path), flags, links);
    let identity = |opened: io::Result<OwnedFd>| {
        let found = opened.map(|opened| fs::metadata(descriptor_path(&opened)).unwrap());
        found.map(|found| (found.dev(), found.ino())).map_err(|error| error.raw_os_error().unwrap())
    };
    for (path, followed, refused) in [
        ("inner", Ok("inner"), Ok("inner")),
        ("./inner//deep/", Ok("inner/deep"), Ok("inner/deep")),
        ("inner/../inner", Ok("inner"), Ok("inner")),
        ("", Ok(""), Ok("")),
        ("in", Ok("inner"), Err(Errno::LOOP)),
        ("in/file", Ok("inner/file"), Err(Errno::LOOP)),
        ("chain", Ok("inner/file"), Err(Errno::LOOP)),
        ("inner/up", Ok("inner/deep"), Err(Errno::LOOP)),
        ("..", Err(Errno::XDEV), Err(Errno::XDEV)),
        ("inner/../../outside", Err(Errno::XDEV), Err(Errno::XDEV)),
        ("/inner", Err(Errno::XDEV), Err(Errno::XDEV)),
        ("relative", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("relative/deep", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("winding", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("absolute/deep", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("absolute-in", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("root", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("dangling", Err(Errno::NOENT), Err(Errno::LOOP)),
        ("dangling-out", Err(Errno::XDEV), Err(Errno::LOOP)),
        ("loop", Err(Errno::LOOP), Err(Errno::LOOP)),
        ("absent/deep", Err(Errno::NOENT), Err(Errno::NOENT)),
        ("inner/file/deep", Err(Errno::NOTDIR), Err(Errno::NOTDIR)),
    ] {
        for (links, expected) in [(Links::Follow, followed), (Links::Refuse, refused)] {
            let expected = expected.map(|path| fs::metadata(volume.join(path)).unwrap());
            let expected = expected.map(|found| (found.dev(), found.ino())).map_err(Errno::raw_os_error);
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            assert_eq!(identity(by_kernel(path, flags, links)), expected, "openat2: {path:?} {links:?}");
            assert_eq!(identity(by_steps(path, flags, links)), expected, "walk: {path:?} {links:?}");
        }
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    for opened in [by_kernel("chain", flags, Links::Follow), by_steps("chain", flags, Links::Follow)] {
        assert_eq!(io::read_to_string(File::from(opened.unwrap())).unwrap(), "x");
    }
    for opened in [
        by_kernel("inner/file", flags | OFlags::DIRECTORY, Links::Follow),
        by_steps("inner/file", flags | OFlags::DIRECTORY, Links::Follow),
    ] {
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(Errno::NOTDIR.raw_os_error()));
    }
}

#[test]
fn missing_directories_are_created_through_links_but_not_through_dangling_links() {
    let (temp, volume) = tree();
    let dir = trusted(&volume).unwrap();
    let make = |path: &str| open_or_make(&dir, Path::new(path), 0o2775, Links::Follow);
    for (path, made) in [
        ("new", "new"),
        ("in/new/deeper", "inner/new/deeper"),
        ("inner/up/new", "inner/deep/new"),
        ("inner/file", "inner/file"),
    ] {
        let found = make(path).unwrap();
        let found = fs::metadata(descriptor_path(&found)).unwrap();
        let expected = fs::metadata(volume.join(made)).unwrap();
        assert_eq!((found.dev(), found.ino()), (expected.dev(), expected.ino()), "{path}");
    }
    for made in ["new", "inner/new", "inner/new/deeper"] {
        assert_eq!(fs::metadata(volume.join(made)).unwrap().mode() & 0o7777, 0o2775, "whatever the umask");
    }
    for (path, expected) in [
        ("dangling", Errno::EXIST),
        ("dangling/new", Errno::EXIST),
        ("dangling-out", Errno::XDEV),
        ("relative/new", Errno::XDEV),
        ("absolute/new", Errno::XDEV),
        ("inner/file/new", Errno::NOTDIR),
    ] {
        let error = make(path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(expected.raw_os_error()), "{path}: {error}");
    }
    let mut there: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, ["outside", "volume"]);
    assert_eq!(fs::read_dir(temp.path().join("outside")).unwrap().count(), 1);
    assert!(!volume.join("nowhere").exists());
}

#[test]
fn only_single_path_components_are_entry_names() {
    let temp = tempfile::tempdir().unwrap();
    let dir: BorrowedFd<'_> = rustix::fs::CWD;
    for wrong in ["", ".", "..", "a/b", "a/", "/a", "./a"] {
        assert!(!is_name(OsStr::new(wrong)), "{wrong:?}");
        assert!(
            make(dir, OsStr::new(wrong), 0o755).is_err()
                && write_file(dir, OsStr::new(wrong), b"", 0o644).is_err()
        );
    }
    let dir = trusted(temp.path()).unwrap();
    symlink("elsewhere", temp.path().join("link")).unwrap();
    assert!(write_file(&dir, OsStr::new("link"), b"", 0o644).is_err(), "a link is not written through");
    write_file(&dir, OsStr::new("..data"), b"1", 0o604).unwrap();
    write_file(&dir, OsStr::new("..data"), b"2", 0o600).unwrap();
    assert_eq!(fs::read(temp.path().join("..data")).unwrap(), b"2");
    assert_eq!(fs::metadata(temp.path().join("..data")).unwrap().mode() & 0o777, 0o600);
    assert!(!temp.path().join("elsewhere").exists());
}

#[test]
fn a_lookup_disturbed_by_renames_is_retried_and_then_done_step_by_step() {
    let opens = || Ok(OwnedFd::from(File::open("/").unwrap()));
    for (answers, calls, is_found) in [
        (&[][..], 1, Some(true)),
        (&[Errno::AGAIN, Errno::INTR, Errno::AGAIN][..], 4, Some(true)),
        (&[Errno::AGAIN, Errno::NOENT], 2, Some(false)),
        (&[Errno::XDEV], 1, Some(false)),
        (&[Errno::NOSYS], 1, None),
        (&[Errno::PERM], 1, None),
        (&[Errno::AGAIN; 64], 64, None),
    ] {
        let mut called = 0;
        let opened = try_openat2(|| {
            called += 1;
            answers.get(called - 1).map_or_else(opens, |error| Err(*error))
        });
        assert_eq!((called, opened.map(|opened| opened.is_ok())), (calls, is_found), "{answers:?}");
    }
}

/// Number of lookups during renames. On a single processor possibly none of them is disturbed;
/// `a_lookup_disturbed_by_renames_is_retried_and_then_done_step_by_step` covers disturbed lookups
/// with simulated results of the kernel.
const LOOKUPS: usize = 300;

/// The kernel refuses to look up a path with `..` if anything on the machine was renamed meanwhile.
#[test]
fn a_link_upwards_is_followed_while_directories_are_renamed() {
    let (_dir, volume) = tree();
    for name in ["a", "other", "links"] {
        fs::create_dir_all(volume.join(name).join("b")).unwrap();
    }
    symlink("../a/b".to_owned() + &"/../b".repeat(500), volume.join("links/x")).unwrap();
    let dir = trusted(&volume).unwrap();
    let identity = |opened: &OwnedFd| fs::metadata(descriptor_path(opened)).unwrap().ino();
    let allowed = ["a/b", "other/b"].map(|name| fs::metadata(volume.join(name)).unwrap().ino());
    let (over, path) = (AtomicBool::new(false), Path::new("links/x"));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(&dir, "a", &dir, "other", RenameFlags::EXCHANGE).unwrap();
            }
        });
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..LOOKUPS {
                for opened in [
                    open(&dir, path, OFlags::PATH, Links::Follow).unwrap(),
                    walk(dir.as_fd(), path, OFlags::PATH, Links::Follow).unwrap(),
                ] {
                    assert!(allowed.contains(&identity(&opened)));
                }
            }
        }));
        over.store(true, Ordering::Relaxed);
        looked.unwrap();
    });
}

#[test]
fn a_mount_on_an_entry_is_not_opened_on_any_kernel() {
    if !may_mount() {
        return skip("mounts take the right to mount");
    }
    let (_dir, volume) = tree();
    let (dir, point) = (trusted(&volume).unwrap(), volume.join("point"));
    fs::create_dir(&point).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let ways = |name: &str| {
        let by_id = open_with_mount_id(dir.as_fd(), OsStr::new(name), flags | OFlags::NOFOLLOW);
        [open_on_same_mount(&dir, OsStr::new(name), flags), by_id]
            .map(|opened| opened.map(drop).map_err(|error| error.raw_os_error().unwrap()))
    };
    assert_eq!(ways("point"), [Ok(()), Ok(())]);
    assert!(ways("in").iter().all(Result::is_err), "a link is not followed");
    mount_bind(volume.join("inner"), &point).unwrap();
    let opened = ways("point");
    unmount(&point, UnmountFlags::NOFOLLOW).unwrap();
    assert_eq!(opened, [Err(Errno::XDEV.raw_os_error()), Err(Errno::XDEV.raw_os_error())]);
}
