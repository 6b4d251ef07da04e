//! Owner and mode of the runtime's socket. The socket of probeshim has the same, so that exactly
//! the users of the runtime may connect.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use super::paths::Paths;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::socket::SocketPath;

/// Permission bits of the group.
const GROUP_BITS: u32 = 0o070;

/// Owner and mode of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketAccess {
    /// The user.
    pub(super) uid: u32,
    /// The group.
    pub(super) gid: u32,
    /// The permission bits.
    pub(super) mode: u32,
}

impl SocketAccess {
    /// Access for root only.
    pub(super) const ROOT: Self = Self { uid: 0, gid: 0, mode: 0o600 };

    /// Reads owner and mode of a socket. Returns `None` if there is none.
    pub(super) fn of_socket(paths: &Paths, socket: &SocketPath) -> Option<Self> {
        let meta = fs::metadata(paths.at(socket.as_path())).ok()?;
        let mode = meta.permissions().mode() & 0o777;
        meta.file_type().is_socket().then(|| Self { uid: meta.uid(), gid: meta.gid(), mode })
    }

    /// Returns the access that a unit can give: systemd refuses ids without a name. Without the
    /// user's name the owner is root, and without the group's name the group has no access.
    pub(super) fn with_names(self, paths: &Paths) -> Self {
        let uid = if has_name(paths, "/etc/passwd", self.uid) { self.uid } else { 0 };
        if has_name(paths, "/etc/group", self.gid) {
            Self { uid, ..self }
        } else {
            Self { uid, gid: 0, mode: self.mode & !GROUP_BITS }
        }
    }

    /// Returns the directives of a socket unit.
    pub(super) fn directives(self) -> String {
        let Self { uid, gid, mode } = self;
        let user = if uid == 0 { String::new() } else { format!("SocketUser={uid}\n") };
        let group = if gid == 0 { String::new() } else { format!("SocketGroup={gid}\n") };
        format!("{user}{group}SocketMode={mode:04o}\n")
    }

    /// Gives the access to a socket that exists, as systemd does when it opens one.
    pub(super) fn apply(self, path: &Path) -> io::Result<()> {
        // The previous group never gets permissions of the next one.
        fs::set_permissions(path, Permissions::from_mode(self.mode & 0o600))?;
        chown(path, Some(self.uid), Some(self.gid))?;
        fs::set_permissions(path, Permissions::from_mode(self.mode))
    }
}

/// Returns whether an id has a line in a file such as `/etc/passwd`. Root always has a name.
fn has_name(paths: &Paths, file: &str, id: u32) -> bool {
    let text = read_to_string(&paths.at(file), MAX_SMALL_FILE_BYTES).unwrap_or_default();
    let mut ids = text.lines().filter_map(|line| line.split(':').nth(2)?.parse::<u32>().ok());
    id == 0 || ids.any(|known| known == id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_owner_and_mode_of_a_socket_are_read_and_given_to_another() {
        let root = tempfile::tempdir().unwrap();
        let [runtime, ours] = ["runtime.sock", "ours.sock"].map(|name| root.path().join(name));
        let _listeners = [&runtime, &ours].map(|path| UnixListener::bind(path).unwrap());
        fs::set_permissions(&runtime, Permissions::from_mode(0o620)).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let paths = Paths::below(root.path());
        let read = |path: &str| SocketAccess::of_socket(&paths, &SocketPath::parse(path).unwrap());
        let access = read("/runtime.sock").unwrap();
        assert_eq!((access.uid, access.mode), (rustix::process::geteuid().as_raw(), 0o620));
        access.apply(&ours).unwrap();
        assert_eq!(read("/ours.sock"), Some(access));
        assert_eq!((read("/none.sock"), read("/file")), (None, None));
    }

    #[test]
    fn a_unit_names_an_owner_other_than_root_and_leaves_out_ids_without_a_name() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nruntime:x:7:8::/:/bin/sh\n")
            .unwrap();
        fs::write(root.path().join("etc/group"), "root:x:0:\ncontainerd:x:9:\n").unwrap();
        let paths = Paths::below(root.path());
        for (uid, gid, directives) in [
            (0, 0, "SocketMode=0660\n"),
            (0, 9, "SocketGroup=9\nSocketMode=0660\n"),
            (7, 9, "SocketUser=7\nSocketGroup=9\nSocketMode=0660\n"),
            (6, 9, "SocketGroup=9\nSocketMode=0660\n"),
            (7, 10, "SocketUser=7\nSocketMode=0600\n"),
        ] {
            let access = SocketAccess { uid, gid, mode: 0o660 }.with_names(&paths);
            assert_eq!(access.directives(), directives, "{uid}:{gid}");
        }
    }
}
