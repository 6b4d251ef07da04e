//! What of a pod lies on this host: its volumes, its hosts file, the messages of its containers.

mod files;
mod message;
mod volumes;

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use procfs::process::Process;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::configs::{Facts, hostname};
use super::spec::{Container, HostAlias, Mount, Pod, RecursiveReadOnly, VolumeSource};
use crate::cri::v1;
use crate::probe::expand_word;

pub(super) use message::message;

/// Where a container finds what its pod calls others.
const HOSTS: &str = "/etc/hosts";

/// What every pod calls itself and its network.
const KNOWN_HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
                           fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

/// The files of a pod.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: PathBuf,
    has_selinux: bool,
    is_root: bool,
    /// Whether it has been removed. What is being made then is made before, or not at all.
    is_gone: Arc<Mutex<bool>>,
}

/// Why a volume, or a container's place in one, is not to be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    /// The system refuses something.
    #[error("{path}: {source}")]
    System {
        /// Where.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// What is at a path of the host is not what it should be.
    #[error("hostPath type check failed: {path} is not a {expected}")]
    OtherKind {
        /// The path.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// A path leads out of its volume.
    #[error("subPath {0:?} leads out of its volume")]
    Outside(String),
    /// A path has a variable in it that is not known.
    #[error("subPathExpr {0:?} names a variable that is not set")]
    Unset(String),
}

/// Turns what the system says into an error that tells where.
fn at(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    move |source| HostError::System { path: path.to_owned(), source }
}

impl Folder {
    /// That of a pod, below the folder of all of them.
    pub(super) fn of(pod: &Pod, pods: &Path) -> Self {
        Self {
            root: pods.join(&pod.uid),
            has_selinux: Path::new("/sys/fs/selinux/enforce").exists(),
            is_root: rustix::process::geteuid().is_root(),
            is_gone: Arc::default(),
        }
    }

    /// Makes its volumes, or makes them anew where they tell something else now. What is there stays.
    pub(super) fn prepare(&self, facts: &Facts<'_>) -> Result<(), HostError> {
        let is_gone = self.is_gone.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_gone {
            return Ok(());
        }
        make(&self.root, 0o750)?;
        for volume in &facts.pod.volumes {
            let path = self.volume(&volume.name, &volume.source);
            let is_new = match &volume.source {
                VolumeSource::EmptyDir { is_memory, size } => self.empty_dir(&path, *is_memory, *size)?,
                VolumeSource::HostPath { path, kind } => {
                    volumes::host_path(Path::new(path), *kind)?;
                    false
                }
                VolumeSource::Files { files, mode, .. } => {
                    make(&path, 0o755)?;
                    files::write(&path, files, *mode, facts)?
                }
            };
            if is_new {
                self.give_to_group(&path, facts.pod.security.fs_group)?;
            }
        }
        Ok(())
    }

    /// Makes an empty folder. Tells whether it was not there.
    fn empty_dir(&self, path: &Path, is_memory: bool, size: Option<u64>) -> Result<bool, HostError> {
        if path.exists() {
            return Ok(false);
        }
        make(path, 0o777)?;
        // Without root it is a folder like others.
        if is_memory && self.is_root {
            let options =
                size.map_or_else(|| "mode=0777".to_owned(), |size| format!("mode=0777,size={size}"));
            let options = CString::new(options).unwrap_or_default();
            mount("tmpfs", path, "tmpfs", MountFlags::empty(), options.as_c_str()).map_err(|error| {
                // Or it would be taken for one the next time.
                let _ = fs::remove_dir(path);
                at(path)(error.into())
            })?;
        }
        Ok(true)
    }

    /// What is new in a volume belongs to its pod's group.
    fn give_to_group(&self, path: &Path, group: Option<i64>) -> Result<(), HostError> {
        let Some(group) = group.and_then(|group| u32::try_from(group).ok()).filter(|_| self.is_root) else {
            return Ok(());
        };
        let mut left = vec![path.to_owned()];
        while let Some(path) = left.pop() {
            let found = fs::symlink_metadata(&path).map_err(at(&path))?;
            if found.is_symlink() {
                continue;
            }
            lchown(&path, None, Some(group)).map_err(at(&path))?;
            let mode = found.permissions().mode() & 0o7777;
            let of_group = if found.is_dir() { 0o2070 } else { (mode & 0o600) >> 3 };
            fs::set_permissions(&path, Permissions::from_mode(mode | of_group)).map_err(at(&path))?;
            if found.is_dir() {
                for entry in fs::read_dir(&path).map_err(at(&path))? {
                    left.push(entry.map_err(at(&path))?.path());
                }
            }
        }
        Ok(())
    }

    /// Where a volume is.
    fn volume(&self, name: &str, source: &VolumeSource) -> PathBuf {
        match source {
            VolumeSource::HostPath { path, .. } => PathBuf::from(path),
            VolumeSource::EmptyDir { .. } => self.root.join("volumes/kubernetes.io~empty-dir").join(name),
            VolumeSource::Files { kind, .. } => {
                self.root.join("volumes").join(volumes::folder(*kind)).join(name)
            }
        }
    }

    /// Everything that a container has of this host. `recurses`: the runtime can make a mount read-only with all that is mounted below it.
    pub(super) fn mounts(
        &self,
        container: &Container,
        facts: &Facts<'_>,
        variables: &[(String, String)],
        recurses: bool,
    ) -> Result<Vec<v1::Mount>, HostError> {
        let known: HashMap<String, String> = variables.iter().cloned().collect();
        let mut mounts = Vec::new();
        for mount in &container.mounts {
            let made = self.mount(mount, facts.pod, &known)?;
            let recursive_read_only = recurses && mount.recursive != RecursiveReadOnly::Disabled;
            mounts.extend(made.map(|made| v1::Mount { recursive_read_only, ..made }));
        }
        let has_own = |path: &str| container.mounts.iter().any(|mount| mount.path == path);
        if (facts.pod.host.network || !facts.addresses.is_empty()) && !has_own(HOSTS) {
            let path = self.root.join("etc-hosts");
            fs::write(&path, hosts(facts)).map_err(at(&path))?;
            mounts.push(self.own_file(&path, HOSTS));
        }
        if !container.message_path.is_empty() {
            let folder = self.root.join("containers").join(&container.name);
            make(&folder, 0o750)?;
            let path = folder.join(format!("{:08x}", fastrand::u32(..)));
            fs::write(&path, "").map_err(at(&path))?;
            fs::set_permissions(&path, Permissions::from_mode(0o666)).map_err(at(&path))?;
            mounts.push(self.own_file(&path, &container.message_path));
        }
        Ok(mounts)
    }

    fn own_file(&self, path: &Path, container_path: &str) -> v1::Mount {
        v1::Mount {
            container_path: container_path.to_owned(),
            host_path: path.display().to_string(),
            selinux_relabel: self.has_selinux,
            ..v1::Mount::default()
        }
    }

    fn mount(
        &self,
        mount: &Mount,
        pod: &Pod,
        variables: &HashMap<String, String>,
    ) -> Result<Option<v1::Mount>, HostError> {
        let Some(volume) = pod.volumes.iter().find(|volume| volume.name == mount.volume) else {
            return Ok(None);
        };
        let mut path = self.volume(&volume.name, &volume.source);
        let sub_path = if mount.expands {
            let expanded = expand_word(&mount.sub_path, variables);
            if expanded.contains("$(") {
                return Err(HostError::Unset(mount.sub_path.clone()));
            }
            expanded
        } else {
            mount.sub_path.clone()
        };
        if !sub_path.is_empty() {
            path = volumes::below(&path, &sub_path)?;
        }
        let is_files = matches!(volume.source, VolumeSource::Files { .. });
        let is_of_host = matches!(volume.source, VolumeSource::HostPath { .. });
        Ok(Some(v1::Mount {
            container_path: mount.path.clone(),
            host_path: path.display().to_string(),
            readonly: mount.is_read_only || is_files,
            selinux_relabel: self.has_selinux && !is_of_host,
            propagation: mount.propagation.into(),
            ..v1::Mount::default()
        }))
    }

    /// Removes all of it. What is mounted there is not entered: somebody else's files would go.
    pub(super) fn remove(&self) -> Result<(), HostError> {
        let mut is_gone = self.is_gone.lock().unwrap_or_else(PoisonError::into_inner);
        *is_gone = true;
        for path in self.mounted().into_iter().rev() {
            unmount(&path, UnmountFlags::empty()).map_err(|error| at(&path)(error.into()))?;
        }
        match fs::remove_dir_all(&self.root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&self.root)(error)),
            _ => Ok(()),
        }
    }

    /// What is mounted below, in the order in which it was.
    fn mounted(&self) -> Vec<PathBuf> {
        let mounts = Process::myself().and_then(|own| own.mountinfo());
        let points = mounts.into_iter().flatten().map(|mount| mount.mount_point);
        points.filter(|point| point.starts_with(&self.root)).collect()
    }
}

/// What a pod calls itself and others.
fn hosts(facts: &Facts<'_>) -> String {
    let mut text = if facts.pod.host.network {
        format!("# Kubernetes-managed hosts file (host network).\n{}", facts.node.hosts)
    } else {
        let mut text = format!("# Kubernetes-managed hosts file.\n{KNOWN_HOSTS}");
        for address in facts.addresses {
            let _ = writeln!(text, "{address}\t{}", hostname(facts.pod));
        }
        text
    };
    if !facts.pod.host_aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for HostAlias { ip, names } in &facts.pod.host_aliases {
            let _ = writeln!(text, "{ip}\t{}", names.join("\t"));
        }
    }
    text
}

/// Makes a folder and those above it. Whatever masks modes does not count for it.
fn make(path: &Path, mode: u32) -> Result<(), HostError> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(at(path))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at(path))
}

#[cfg(test)]
mod tests;
