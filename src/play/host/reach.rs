//! Whether what we mount is seen by the runtime, which may be in another mount namespace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, MountOptFields};
use tokio::net::UnixStream;

use super::mountinfo::{mounts, unescaped};

/// Returns why a mount below a directory would not be seen by the process that listens on a socket. Returns `None` where it would be, and where
/// that cannot be told: the process may be in another pid namespace.
pub(in crate::play) async fn obstacle(socket: &Path, directory: &Path) -> io::Result<Option<String>> {
    let peer = UnixStream::connect(socket).await?.peer_cred()?;
    let Some(pid) = peer.pid().filter(|pid| *pid > 0) else { return Ok(None) };
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt"));
    let (Ok(own), Ok(theirs)) = (namespace("self"), namespace(&pid.to_string())) else { return Ok(None) };
    if own == theirs {
        return Ok(None);
    }
    let (Ok(own), Ok(theirs)) = (mounts(None), mounts(Some(pid))) else { return Ok(None) };
    let reason = not_propagated(&own, &theirs, directory);
    Ok(reason.map(|reason| {
        format!(
            "the runtime (pid {pid}) is in another mount namespace, and {reason}; run probeshim in the mount namespace of the runtime \
             (for systemd: without PrivateMounts=, PrivateTmp=, ProtectSystem= and the like), or have --state on a mount that is shared with it"
        )
    }))
}

/// Why a mount that is made below a directory does not come to other mounts, if it does not.
fn not_propagated(own: &[MountInfo], theirs: &[MountInfo], directory: &Path) -> Option<String> {
    let shown = directory.display();
    let Some(ours) = covering(own, directory) else { return Some(format!("no mount holds {shown}")) };
    let Some(group) = group(ours) else {
        return Some(format!(
            "the mount at {}, which holds {shown}, is not shared",
            ours.mount_point.display()
        ));
    };
    let gets = |mount: &MountInfo| {
        let is_member = |field: &MountOptFields| matches!(field, MountOptFields::Shared(id) | MountOptFields::Master(id) if *id == group);
        // Peers show the same part of their filesystem, though perhaps from another root on.
        in_filesystem(mount, directory) == in_filesystem(ours, directory)
            && mount.opt_fields.iter().any(is_member)
    };
    let is_seen = covering(theirs, directory).is_some_and(gets);
    (!is_seen).then(|| format!("its mount that holds {shown} receives no mounts from ours"))
}

/// The mount on which a path lies: the last one with the longest mount point.
fn covering<'a>(mounts: &'a [MountInfo], path: &Path) -> Option<&'a MountInfo> {
    let length = |mount: &MountInfo| unescaped(&mount.mount_point).components().count();
    let holds = |mount: &&MountInfo| path.starts_with(unescaped(&mount.mount_point));
    mounts.iter().filter(holds).max_by_key(|mount| length(mount))
}

/// Where a path that lies on a mount is in its filesystem.
fn in_filesystem(mount: &MountInfo, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(unescaped(&mount.mount_point)).ok()?;
    Some(unescaped(Path::new(&mount.root)).join(below))
}

/// Peer group to which a mount passes on what is mounted on it.
fn group(mount: &MountInfo) -> Option<u32> {
    mount.opt_fields.iter().find_map(|field| match field {
        MountOptFields::Shared(id) => Some(*id),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "1 0 8:1 / / rw shared:1 - ext4 /dev/a rw";
    const INNER: &str = "2 0 0:30 / / rw shared:20 - overlay o rw";
    const STATE: &str = "2 1 8:2 / /var/lib/state rw shared:7 - ext4 /dev/b rw";

    #[test]
    fn mounts_reach_the_runtime_only_through_a_peer_group() {
        for (own, theirs, is_seen) in [
            (&[ROOT][..], &[ROOT][..], true),
            (&[ROOT, STATE], &[ROOT, STATE], true),
            // A slave gets what is mounted on its master.
            (&[ROOT], &["9 0 8:1 / / rw master:1 - ext4 /dev/a rw"], true),
            (&["1 0 8:1 / / rw master:1 - ext4 /dev/a rw"], &[ROOT], false),
            (&["1 0 8:1 / / rw - ext4 /dev/a rw"], &[ROOT], false),
            (&[ROOT], &["9 0 8:1 / / rw shared:2 - ext4 /dev/a rw"], false),
            // The runtime has something else mounted over the directory.
            (&[ROOT], &[ROOT, "3 1 8:3 / /var/lib rw shared:9 - tmpfs t rw"], false),
            (&[ROOT, STATE], &[ROOT], false),
            // A container of ours has the directory of the host, with what is mounted there.
            (&[INNER, "3 2 8:1 /var/lib/state /var/lib/state rw shared:1 - ext4 /dev/a rw"], &[ROOT], true),
            (&[INNER, "3 2 8:1 /var/lib/state /var/lib/state rw - ext4 /dev/a rw"], &[ROOT], false),
            (&[INNER, "3 2 8:1 /srv/state /var/lib/state rw shared:1 - ext4 /dev/a rw"], &[ROOT], false),
            (
                &[INNER, "3 2 8:1 /var/lib/state /var/lib/state rw shared:1 - ext4 /dev/a rw"],
                &[ROOT, STATE],
                false,
            ),
            // Another mount with a similar name holds nothing of it.
            (&[ROOT], &[ROOT, "3 1 8:3 / /var/lib/stat rw shared:9 - tmpfs t rw"], true),
        ] {
            let [own, theirs] = [own, theirs].map(|lines| -> Vec<MountInfo> {
                lines.iter().map(|line| MountInfo::from_line(line).unwrap()).collect()
            });
            let reason = not_propagated(&own, &theirs, Path::new("/var/lib/state/pods"));
            assert_eq!(reason.is_none(), is_seen, "{reason:?}: {own:?} {theirs:?}");
        }
    }
}
