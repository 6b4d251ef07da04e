//! The mounts of a process, with the paths that the kernel writes escaped.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};

/// Returns the mounts of this process, or of the one with an id, in the order in which they were mounted.
pub(super) fn mounts(pid: Option<i32>) -> io::Result<Vec<MountInfo>> {
    let process = pid.map_or_else(Process::myself, Process::new);
    let mounts = process.and_then(|process| process.mountinfo()).map_err(io::Error::other)?;
    Ok(mounts.into_iter().collect())
}

/// Returns the mount points at or below a directory, in the order in which they were mounted.
pub(super) fn mounted_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let points = mounts(None)?.into_iter().map(|mount| unescaped(&mount.mount_point));
    Ok(points.filter(|point| point.starts_with(directory)).collect())
}

/// Reads a path of mountinfo, in which blanks, tabs, newlines and backslashes are octal.
pub(super) fn unescaped(path: &Path) -> PathBuf {
    let mut rest = path.as_os_str().as_bytes();
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
    use super::*;

    #[test]
    fn escaped_paths_of_mountinfo_are_read() {
        for (escaped, plain) in [
            ("/a\\040b", "/a b"),
            ("/a\\134040", "/a\\040"),
            ("/tab\\011", "/tab\t"),
            ("/plain", "/plain"),
            ("/end\\0", "/end\\0"),
        ] {
            assert_eq!(unescaped(Path::new(escaped)), Path::new(plain), "{escaped}");
        }
    }
}
