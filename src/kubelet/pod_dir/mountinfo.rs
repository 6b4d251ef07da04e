//! Mounts of a process, as the kernel lists them in `/proc/PID/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A mount. Its paths may contain any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountEntry {
    /// Directory of the filesystem that is the root of the mount.
    pub(super) root: PathBuf,
    /// Mount point.
    pub(super) point: PathBuf,
    /// Peer group to which mounts on this mount propagate.
    pub(super) shared: Option<u32>,
    /// Peer group from which this mount, a slave, receives mounts.
    pub(super) master: Option<u32>,
}

/// Returns the mounts of this process, or of the process `pid`, in the order in which they were
/// mounted.
pub(super) fn mounts(pid: Option<i32>) -> io::Result<Vec<MountEntry>> {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let text = fs::read(format!("/proc/{process}/mountinfo"))?;
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(MountEntry::from_line).collect()
}

/// Returns the mount points at or below a directory, in the order in which they were mounted.
pub(super) fn mounted_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let points = mounts(None)?.into_iter().map(|mount| mount.point);
    Ok(points.filter(|point| point.starts_with(directory)).collect())
}

impl MountEntry {
    /// Parses a line, such as `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw`.
    pub(super) fn from_line(line: &[u8]) -> io::Result<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let mut path = || fields.next().map(unescape).ok_or(io::ErrorKind::InvalidData);
        let (root, point) = (path()?, path()?);
        let mut mount = Self { root, point, shared: None, master: None };
        for field in fields.skip(1).take_while(|field| *field != b"-") {
            let Ok(field) = std::str::from_utf8(field) else { continue };
            match field.split_once(':') {
                Some(("shared", group)) => mount.shared = group.parse().ok(),
                Some(("master", group)) => mount.master = group.parse().ok(),
                _ => {}
            }
        }
        Ok(mount)
    }
}

/// Decodes a path of `mountinfo`, in which spaces, tabs, newlines and backslashes are octal
/// escapes.
fn unescape(path: &[u8]) -> PathBuf {
    let mut rest = path;
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| byte == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use fixtures::skip::skip;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;
    use crate::kubelet::pod_dir::tests::may_mount;

    #[test]
    fn escaped_paths_in_mountinfo_are_decoded() {
        for (escaped, plain) in [
            ("/a\\040b", "/a b"),
            ("/a\\134040", "/a\\040"),
            ("/tab\\011", "/tab\t"),
            ("/plain", "/plain"),
            ("/end\\0", "/end\\0"),
        ] {
            assert_eq!(unescape(escaped.as_bytes()), Path::new(plain), "{escaped}");
        }
    }

    #[test]
    fn peer_groups_in_mountinfo_are_parsed_and_lines_without_paths_are_errors() {
        let read = |line: &str| MountEntry::from_line(line.as_bytes());
        let found = read("3 2 8:1 /r /p rw shared:7 master:12 unbindable - ext4 /dev/a rw,shared:9").unwrap();
        assert_eq!((found.root.to_str(), found.point.to_str()), (Some("/r"), Some("/p")));
        assert_eq!((found.shared, found.master), (Some(7), Some(12)));
        let found = read("3 2 8:1 / / rw - ext4 /dev/a rw,shared:9").unwrap();
        assert_eq!((found.shared, found.master), (None, None));
        assert!(read("3 2 8:1 /r").is_err() && read("x").is_err());
    }

    /// A mount point that is not UTF-8 must not hide the other mounts: a removal would delete what
    /// is mounted.
    #[test]
    fn a_mount_point_that_is_not_utf_8_is_found() {
        if !may_mount() {
            return skip("mounts take the right to mount");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let point = path.join(OsStr::from_bytes(b"\xff \\\xfe"));
        fs::create_dir(&point).unwrap();
        mount("tmpfs", &point, "tmpfs", MountFlags::empty(), c"size=4096").unwrap();
        let found = mounted_below(&path);
        unmount(&point, UnmountFlags::NOFOLLOW).unwrap();
        assert_eq!(found.unwrap(), [point]);
    }
}
