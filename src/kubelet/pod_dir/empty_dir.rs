//! Directories of emptyDir volumes, on disk, in memory or in huge pages (kubelet:
//! `pkg/volume/emptydir`).

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, RenameFlags, fchmod, renameat, renameat_with};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::beneath::{Links, descriptor_path, make, open, open_on_same_mount};
use super::volumes::GroupAccess;
use super::{removal, volumes};

/// Mode of an emptyDir on disk: every user in the pod may use it.
const MODE: u32 = 0o777;

/// Mode of an emptyDir in memory: the kernel's default for a tmpfs.
const TMPFS_MODE: u32 = 0o1777;

/// Mode of an emptyDir of huge pages: the kernel's default for a hugetlbfs.
const HUGETLBFS_MODE: u32 = 0o755;

/// Name of the directory until it is complete. It is not a valid name of a volume.
const UNFINISHED: &str = "..unfinished";

/// Returns the size of an emptyDir in memory: the smallest of the node's allocatable memory, the
/// memory limit of the pod and the size limit of the volume. `None` for the kernel's default
/// (kubelet: `calculateEmptyDirMemorySize`, `generateTmpfsMountOptions`).
pub(super) fn memory_size(allocatable: u64, pod_limit: Option<u64>, size_limit: Option<u64>) -> Option<u64> {
    let limits = [pod_limit, size_limit].into_iter().flatten().filter(|limit| *limit > 0);
    Some(limits.fold(allocatable, u64::min)).filter(|size| *size > 0)
}

/// Medium of an emptyDir. Media other than the disk require the right to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    /// A tmpfs with a size limit in bytes.
    Memory {
        size: Option<u64>,
    },
    /// Huge pages of a size in bytes.
    HugePages {
        page_size: u64,
    },
}

/// Settings of an emptyDir volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct EmptyDir {
    pub(super) medium: Medium,
    /// Group of the pod (`fsGroup`).
    pub(super) group: Option<u32>,
}

impl EmptyDir {
    /// Creates a missing directory, and mounts a missing file system. A crash or a reboot may have
    /// left a directory without it.
    pub(super) fn ensure(self, parent: impl AsFd, name: &OsStr) -> io::Result<()> {
        match open(&parent, Path::new(name), OFlags::PATH, Links::Refuse) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(&parent, name)?,
            there => drop(there?),
        }
        if self.medium == Medium::Disk {
            return Ok(());
        }
        match open_on_same_mount(&parent, name, OFlags::PATH | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => Ok(()),
            opened => self.mount(&opened?),
        }
    }

    /// Creates the directory under a temporary name, so that a directory with the final name always
    /// has its mode and group.
    fn create(self, parent: impl AsFd, name: &OsStr) -> io::Result<()> {
        removal::remove(&parent, OsStr::new(UNFINISHED))?;
        let directory = make(&parent, OsStr::new(UNFINISHED), MODE)?;
        fchmod(&directory, Mode::from_raw_mode(MODE))?;
        if let Some(group) = self.group {
            volumes::give(&directory, group, GroupAccess::ReadWrite)?;
        }
        match renameat_with(&parent, UNFINISHED, &parent, name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(&parent, UNFINISHED, &parent, name)?),
            renamed => Ok(renamed?),
        }
    }

    /// Mounts the file system. The pages of a tmpfs are not swapped out if the kernel supports it
    /// (Linux 6.4).
    fn mount(self, point: &OwnedFd) -> io::Result<()> {
        let mode = |own: u32| {
            let mode = self.group.map_or(own, |_| own | GroupAccess::ReadWrite.mask(true));
            let group = self.group.map(|group| format!(",gid={group}")).unwrap_or_default();
            format!("mode={mode:o}{group}")
        };
        match self.medium {
            Medium::Disk => Ok(()),
            Medium::Memory { size } => {
                let size = size.map(|size| format!(",size={size}")).unwrap_or_default();
                let options = format!("{}{size}", mode(TMPFS_MODE));
                match mount_at(point, "tmpfs", &format!("{options},noswap")) {
                    Err(Errno::INVAL) => Ok(mount_at(point, "tmpfs", &options)?),
                    mounted => Ok(mounted?),
                }
            }
            Medium::HugePages { page_size } => {
                let options = format!("pagesize={page_size},{}", mode(HUGETLBFS_MODE));
                Ok(mount_at(point, "hugetlbfs", &options)?)
            }
        }
    }
}

fn mount_at(point: &OwnedFd, kind: &str, options: &str) -> Result<(), Errno> {
    let options = CString::new(options).unwrap_or_default();
    mount(kind, descriptor_path(point), kind, MountFlags::empty(), options.as_c_str())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use fixtures::skip::skip;
    use rustix::mount::{UnmountFlags, unmount};

    use super::super::beneath::trusted;
    use super::*;
    use crate::kubelet::pod_dir::mountinfo::mounted_below;
    use crate::kubelet::pod_dir::tests::may_mount;

    #[test]
    fn an_empty_dir_is_created_completely_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (parent, path) = (trusted(dir.path()).unwrap(), dir.path().join("v"));
        // A crash left an unfinished directory.
        fs::create_dir_all(dir.path().join(UNFINISHED).join("x")).unwrap();
        let group = rustix::process::getegid().as_raw();
        let volume = EmptyDir { medium: Medium::Disk, group: Some(group) };
        volume.ensure(&parent, OsStr::new("v")).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o7777, found.gid()), (0o2777, group));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!((left, fs::read_dir(&path).unwrap().count()), (vec!["v".into()], 0));
        // Containers may change the directory.
        fs::write(path.join("file"), "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        volume.ensure(&parent, OsStr::new("v")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert!(path.join("file").exists());
    }

    #[test]
    fn an_empty_dir_in_memory_is_mounted_once_and_also_after_a_crash() {
        if !may_mount() {
            return skip("mounts take the right to mount");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (parent, path) = (trusted(&root).unwrap(), root.join("v"));
        fs::create_dir(&path).unwrap();
        let volume = EmptyDir { medium: Medium::Memory { size: Some(1 << 20) }, group: Some(4_242) };
        let ensured = [(); 2].map(|()| volume.ensure(&parent, OsStr::new("v")));
        let (mounted, found) = (mounted_below(&root).unwrap(), fs::metadata(&path).unwrap());
        let options = tmpfs_options(&path);
        let size = rustix::fs::statvfs(&path).unwrap();
        for point in &mounted {
            unmount(point, UnmountFlags::NOFOLLOW).unwrap();
        }
        assert!(ensured.iter().all(Result::is_ok), "{ensured:?}");
        assert_eq!(mounted, [path]);
        assert_eq!((found.mode() & 0o7777, found.gid()), (0o3777, 4_242));
        assert_eq!(size.f_blocks * size.f_frsize, 1 << 20);
        assert_eq!(options.split(',').any(|option| option == "noswap"), supports_noswap(), "{options}");
    }

    /// Returns the options of the tmpfs that is mounted at a path.
    fn tmpfs_options(point: &Path) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut mounts = mounts.lines().map(fields);
        mounts.find(|fields| Path::new(&fields[1]) == point).map(|fields| fields[3].clone()).unwrap()
    }

    fn supports_noswap() -> bool {
        let dir = tempfile::tempdir().unwrap();
        let point = trusted(dir.path()).unwrap();
        let mounted = mount_at(&point, "tmpfs", "noswap").is_ok();
        if mounted {
            unmount(dir.path(), UnmountFlags::NOFOLLOW).unwrap();
        }
        mounted
    }

    #[test]
    fn an_empty_dir_in_memory_is_limited_by_the_node_the_pod_and_the_volume() {
        for (allocatable, pod_limit, size_limit, expected) in [
            (100, None, None, Some(100)),
            (100, Some(50), None, Some(50)),
            (100, Some(50), Some(20), Some(20)),
            (100, Some(50), Some(70), Some(50)),
            (100, Some(200), Some(200), Some(100)),
            (100, None, Some(0), Some(100)),
            (0, Some(50), Some(50), None),
        ] {
            let size = memory_size(allocatable, pod_limit, size_limit);
            assert_eq!(size, expected, "{allocatable} {pod_limit:?} {size_limit:?}");
        }
    }
}
