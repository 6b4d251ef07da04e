//! Checks whether mounts by probeshim reach the runtime, which may be in another mount namespace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::mountinfo::{MountEntry, mounts};

/// Returns the reason why mounts below `directory` do not reach the process that listens on
/// `socket`; `None` if they do, or if this cannot be determined.
pub(in crate::kubelet) async fn obstacle(socket: &Path, directory: &Path) -> io::Result<Option<String>> {
    let peer = UnixStream::connect(socket).await?.peer_cred()?;
    let (pid, directory) = (peer.pid(), directory.to_owned());
    spawn_blocking(move || obstacle_of(pid, &directory)).await.map_err(io::Error::other)
}

/// Returns the reason why mounts below `directory` do not reach a process. `pid` is the id that the
/// kernel reports: 0 for a process outside of probeshim's PID namespace.
fn obstacle_of(pid: Option<i32>, directory: &Path) -> Option<String> {
    let our_mounts = mounts(None).ok()?;
    let pid = match pid {
        Some(pid) if pid > 0 => pid,
        Some(0) => return not_shared_outwards(&our_mounts, directory),
        _ => return None,
    };
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    if namespace("self")? == namespace(&pid.to_string())? {
        return None;
    }
    let reason = not_propagated(&our_mounts, &mounts(Some(pid)).ok()?, directory)?;
    Some(format!(
        "the runtime (pid {pid}) is in another mount namespace, and {reason}; run probeshim in the mount namespace of the runtime \
         (for systemd: without PrivateMounts=, PrivateTmp=, ProtectSystem= and the like), or put --state-dir on a mount that is shared with it"
    ))
}

/// Returns the reason why mounts below a directory do not propagate out of probeshim's container;
/// `None` if they do. The mounts of the host are not visible from the container.
fn not_shared_outwards(our_mounts: &[MountEntry], directory: &Path) -> Option<String> {
    let reason = peer_group(our_mounts, directory).err()?;
    Some(format!(
        "the runtime is outside of the container in which probeshim runs, and {reason}; give the volume of --state-dir \
         mountPropagation: Bidirectional"
    ))
}

/// Returns the reason why a mount below a directory does not propagate to the runtime's mounts;
/// `None` if it does.
fn not_propagated(
    our_mounts: &[MountEntry],
    runtime_mounts: &[MountEntry],
    directory: &Path,
) -> Option<String> {
    let (ours, group) = match peer_group(our_mounts, directory) {
        Ok(found) => found,
        Err(reason) => return Some(reason),
    };
    let receives = |mount: &MountEntry| {
        // Mounts of one peer group show the same part of a filesystem, but possibly from different
        // roots.
        in_filesystem(mount, directory) == in_filesystem(ours, directory)
            && [mount.shared, mount.master].contains(&Some(group))
    };
    let is_seen = covering(runtime_mounts, directory).is_some_and(receives);
    (!is_seen).then(|| {
        format!("the runtime's mount that holds {} does not receive probeshim's mounts", directory.display())
    })
}

/// Returns the mount that holds a directory, and its peer group; or a message if the mount is not
/// shared.
fn peer_group<'a>(our_mounts: &'a [MountEntry], directory: &Path) -> Result<(&'a MountEntry, u32), String> {
    let shown = directory.display();
    let ours = covering(our_mounts, directory).ok_or_else(|| format!("no mount holds {shown}"))?;
    let point = ours.point.display();
    let group =
        ours.shared.ok_or_else(|| format!("the mount at {point}, which holds {shown}, is not shared"));
    Ok((ours, group?))
}

/// Returns the mount that holds a path: the last one with the longest mount point.
fn covering<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let holds = |mount: &&MountEntry| path.starts_with(&mount.point);
    mounts.iter().filter(holds).max_by_key(|mount| mount.point.components().count())
}

/// Returns the path within a mount's filesystem of a path on that mount.
fn in_filesystem(mount: &MountEntry, path: &Path) -> Option<PathBuf> {
    Some(mount.root.join(path.strip_prefix(&mount.point).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "1 0 8:1 / / rw shared:1 - ext4 /dev/a rw";
    const INNER: &str = "2 0 0:30 / / rw shared:20 - overlay o rw";
    const STATE: &str = "2 1 8:2 / /var/lib/state rw shared:7 - ext4 /dev/b rw";

    fn read(lines: &[&str]) -> Vec<MountEntry> {
        lines.iter().map(|line| MountEntry::from_line(line.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn mounts_reach_the_runtime_only_through_a_peer_group() {
        for (our_mounts, runtime_mounts, is_seen) in [
            (&[ROOT][..], &[ROOT][..], true),
            (&[ROOT, STATE], &[ROOT, STATE], true),
            // A slave receives the mounts of its master.
            (&[ROOT], &["9 0 8:1 / / rw master:1 - ext4 /dev/a rw"], true),
            (&["1 0 8:1 / / rw master:1 - ext4 /dev/a rw"], &[ROOT], false),
            (&["1 0 8:1 / / rw - ext4 /dev/a rw"], &[ROOT], false),
            (&[ROOT], &["9 0 8:1 / / rw shared:2 - ext4 /dev/a rw"], false),
            // Another filesystem is mounted over the directory in the runtime's namespace.
            (&[ROOT], &[ROOT, "3 1 8:3 / /var/lib rw shared:9 - tmpfs t rw"], false),
            (&[ROOT, STATE], &[ROOT], false),
            // A container of probeshim has the host's directory mounted, with propagation.
            (&[INNER, "3 2 8:1 /var/lib/state /var/lib/state rw shared:1 - ext4 /dev/a rw"], &[ROOT], true),
            (&[INNER, "3 2 8:1 /var/lib/state /var/lib/state rw - ext4 /dev/a rw"], &[ROOT], false),
            (&[INNER, "3 2 8:1 /srv/state /var/lib/state rw shared:1 - ext4 /dev/a rw"], &[ROOT], false),
            (
                &[INNER, "3 2 8:1 /var/lib/state /var/lib/state rw shared:1 - ext4 /dev/a rw"],
                &[ROOT, STATE],
                false,
            ),
            // A mount point with the same prefix of letters is not an ancestor of the directory.
            (&[ROOT], &[ROOT, "3 1 8:3 / /var/lib/stat rw shared:9 - tmpfs t rw"], true),
        ] {
            let [our_mounts, runtime_mounts] = [our_mounts, runtime_mounts].map(read);
            let reason = not_propagated(&our_mounts, &runtime_mounts, Path::new("/var/lib/state/pods"));
            assert_eq!(reason.is_none(), is_seen, "{reason:?}: {our_mounts:?} {runtime_mounts:?}");
        }
    }

    #[test]
    fn mounts_leave_the_container_of_probeshim_only_if_shared() {
        let state = "3 2 8:1 /srv/state /var/lib/state rw";
        for (line, is_shared) in [
            (format!("{state} shared:1 - ext4 /dev/a rw"), true),
            (format!("{state} master:1 - ext4 /dev/a rw"), false),
            (format!("{state} - ext4 /dev/a rw"), false),
        ] {
            let reason = not_shared_outwards(&read(&[INNER, &line]), Path::new("/var/lib/state/pods"));
            let expected = "probeshim runs, and the mount at /var/lib/state, which holds /var/lib/state/pods, is not shared";
            assert_eq!(reason.is_none(), is_shared, "{line}");
            assert!(reason.is_none_or(|it| it.contains(expected) && it.ends_with(": Bidirectional")));
        }
    }

    #[test]
    fn mount_propagation_is_checked_only_for_a_known_runtime_in_another_namespace() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let our_mounts = mounts(None).unwrap();
        assert_eq!(obstacle_of(None, &directory), None);
        assert_eq!(
            obstacle_of(Some(std::process::id().cast_signed()), &directory),
            None,
            "it is in our namespace"
        );
        assert_eq!(obstacle_of(Some(i32::MAX), &directory), None, "it has ended");
        assert_eq!(obstacle_of(Some(0), &directory), not_shared_outwards(&our_mounts, &directory));
    }
}
