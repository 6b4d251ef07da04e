//! Where volumes are, and what is at paths of the host.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{HostError, at, make};
use crate::play::spec::{FilesKind, HostPathKind};

/// What the kubelet calls the folders of volumes with files.
pub(super) fn folder(kind: FilesKind) -> &'static str {
    match kind {
        FilesKind::ConfigMap => "kubernetes.io~configmap",
        FilesKind::Secret => "kubernetes.io~secret",
        FilesKind::DownwardApi => "kubernetes.io~downward-api",
        FilesKind::Projected => "kubernetes.io~projected",
    }
}

/// Looks at what is at a path of the host; makes what may be made.
pub(super) fn host_path(path: &Path, kind: HostPathKind) -> Result<(), HostError> {
    match kind {
        HostPathKind::DirectoryOrCreate if !path.exists() => return make(path, 0o755),
        HostPathKind::FileOrCreate if !path.exists() => {
            return File::create(path).map(drop).map_err(at(path));
        }
        _ => {}
    }
    let found = fs::metadata(path).ok().map(|found| found.file_type());
    let is = |what: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(what);
    let (is_right, expected) = match kind {
        HostPathKind::Any => (true, ""),
        HostPathKind::DirectoryOrCreate | HostPathKind::Directory => (is(fs::FileType::is_dir), "directory"),
        HostPathKind::FileOrCreate | HostPathKind::File => (is(fs::FileType::is_file), "file"),
        HostPathKind::Socket => (is(FileTypeExt::is_socket), "socket file"),
        HostPathKind::CharDevice => (is(FileTypeExt::is_char_device), "character device"),
        HostPathKind::BlockDevice => (is(FileTypeExt::is_block_device), "block device"),
    };
    if is_right { Ok(()) } else { Err(HostError::OtherKind { path: path.to_owned(), expected }) }
}

/// A path below a volume, which is made where it is not there. It may not lead out of it, whatever links there are.
pub(super) fn below(volume: &Path, sub_path: &str) -> Result<PathBuf, HostError> {
    let outside = || HostError::Outside(sub_path.to_owned());
    if sub_path.starts_with('/') || sub_path.split('/').any(|part| part == "..") {
        return Err(outside());
    }
    let whole = volume.canonicalize().map_err(at(volume))?;
    let (mut path, mut left) = (whole.clone(), sub_path.split('/').filter(|part| !part.is_empty()));
    // What is there may be a link; what is not is made where links are none any more.
    for part in left.by_ref() {
        let next = path.join(part);
        if !next.exists() {
            path = next;
            break;
        }
        path = next.canonicalize().map_err(at(&next))?;
        if !path.starts_with(&whole) {
            return Err(outside());
        }
    }
    // Whoever may write to the volume may write there.
    let mode = fs::metadata(&whole).map_err(at(&whole))?.permissions().mode() & 0o7777;
    if !path.exists() {
        make(&path, mode)?;
    }
    for part in left {
        path.push(part);
        make(&path, mode)?;
    }
    Ok(path)
}
