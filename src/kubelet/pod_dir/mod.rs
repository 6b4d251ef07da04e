//! Files of a pod on this host: volumes, `/etc/hosts`, termination messages.

mod atomic_writer;
mod beneath;
mod empty_dir;
mod env_file;
mod error;
mod hosts;
mod huge_pages;
mod logs;
mod mountinfo;
mod payload;
mod reach;
mod removal;
mod subpaths;
mod termination_message;
mod volumes;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::cri_config::{EnvFacts, memory_limit, texts};
use crate::cri::v1;
use crate::manifest::pod::{
    Container, EmptyDirMedium, FilesKind, Pod, RecursiveReadOnly, VolumeMount, VolumeSource,
};
use beneath::{Links, descriptor_path, is_name, make, open, open_or_make, trusted, write_file};
use empty_dir::{EmptyDir, Medium};
use error::with_path;

pub(super) use beneath::without_links;
pub(super) use error::VolumeError;
pub(super) use logs::{make_log_directory, remove_log_directory};
pub(super) use reach::obstacle;
pub(super) use termination_message::{last_lines, message};

/// Path of the hosts file in containers.
const HOSTS: &str = "/etc/hosts";

/// Name of the pod's hosts file in the pod's directory.
const OWN_HOSTS: &str = "etc-hosts";

/// Directory below the pod's directory that holds the termination messages.
const MESSAGES: &str = "containers";

/// Images of image volumes as the runtime gets them, by the names of the volumes.
pub(super) type ImageVolumes = BTreeMap<String, v1::ImageSpec>;

/// Options of the mounts of a container.
#[derive(Clone, Debug, Default)]
pub(super) struct MountOptions {
    /// Whether the runtime supports recursive read-only mounts.
    pub(super) recurses: bool,
    /// Whether subPaths are bind-mounted; otherwise the runtime gets their paths.
    pub(super) binds: bool,
    /// Images of the image volumes that the container mounts.
    pub(super) images: ImageVolumes,
}

/// The files of a pod.
#[derive(Clone, Debug)]
pub(super) struct PodDir {
    /// Directory that holds the directories of all pods. The path contains no symbolic links.
    pods: PathBuf,
    /// Uid of the pod, which names the pod's directory.
    uid: String,
    has_selinux: bool,
    is_root: bool,
    /// Whether the directory has been removed. The lock is held while files are created, so that no
    /// file is created after the removal.
    is_gone: Arc<Mutex<bool>>,
}

impl PodDir {
    /// Returns the directory of a pod below `pods`, the directory of all pods.
    pub(super) fn for_pod(pod: &Pod, pods: &Path) -> Self {
        Self {
            pods: pods.to_owned(),
            uid: pod.uid.clone(),
            has_selinux: Path::new("/sys/fs/selinux/enforce").exists(),
            is_root: rustix::process::geteuid().is_root(),
            is_gone: Arc::default(),
        }
    }

    fn root(&self) -> PathBuf {
        self.pods.join(&self.uid)
    }

    /// Opens the directory of the pod. Creates a missing one.
    fn open(&self) -> Result<OwnedFd, VolumeError> {
        let created = fs::create_dir_all(&self.pods).and_then(|()| trusted(&self.pods));
        created.and_then(|pods| make(pods, OsStr::new(&self.uid), 0o750)).map_err(with_path(&self.root()))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the pod's volumes, and updates the volumes with changed content. Completes an update
    /// that a crash interrupted. Returns the reasons why volumes were not updated: such volumes
    /// keep the content from the time when all objects existed.
    pub(super) fn prepare(&self, facts: &EnvFacts<'_>) -> Result<Vec<VolumeError>, VolumeError> {
        let (is_gone, mut outdated) = (self.lock(), Vec::new());
        if *is_gone {
            return Ok(outdated);
        }
        let root = self.open()?;
        let group = facts.pod.security.fs_group.and_then(|group| u32::try_from(group).ok());
        let group = group.filter(|_| self.is_root);
        for volume in &facts.pod.volumes {
            let (name, source) = (&volume.name, &volume.source);
            let path = self.volume(name, source);
            let failed = |source| VolumeError::SetUp { volume: name.clone(), source: Box::new(source) };
            let prepared = match source {
                VolumeSource::EmptyDir { medium, size } => {
                    let medium = self.medium(medium, *size, facts).map_err(failed)?;
                    let volume = EmptyDir { medium, group };
                    open_or_make(&root, &below(None), 0o755, Links::Refuse)
                        .and_then(|above| volume.ensure(above, OsStr::new(name)))
                }
                VolumeSource::HostPath { path, kind } => {
                    volumes::host_path(Path::new(path), *kind).map_err(failed)?;
                    continue;
                }
                // The runtime mounts the image.
                VolumeSource::Image { .. } => continue,
                VolumeSource::Files { kind, sources, mode } => {
                    let above = below(Some(*kind));
                    let files = match payload::resolve(sources, *mode, facts) {
                        Ok(files) => files,
                        Err(error) => {
                            let known = open(&root, &above.join(name), OFlags::RDONLY, Links::Refuse);
                            let error = failed(error.into());
                            if !known.is_ok_and(|volume| atomic_writer::has_files(&volume)) {
                                return Err(error);
                            }
                            outdated.push(error);
                            continue;
                        }
                    };
                    let root_mode = volumes::root_mode(*kind);
                    open_or_make(&root, &above, 0o755, Links::Refuse)
                        .and_then(|above| make(above, OsStr::new(name), root_mode))
                        .and_then(|volume| atomic_writer::write(&volume, &files, root_mode, group))
                }
            };
            prepared.map_err(with_path(&path)).map_err(failed)?;
        }
        Ok(outdated)
    }

    /// Returns the medium of an emptyDir. Without root it is the disk, because only root may mount.
    fn medium(
        &self,
        medium: &EmptyDirMedium,
        size: Option<u64>,
        facts: &EnvFacts<'_>,
    ) -> Result<Medium, VolumeError> {
        Ok(match medium {
            _ if !self.is_root => Medium::Disk,
            EmptyDirMedium::Disk => Medium::Disk,
            EmptyDirMedium::Memory => {
                let allocatable = facts.node.allocatable_memory();
                Medium::Memory { size: empty_dir::memory_size(allocatable, memory_limit(facts.pod), size) }
            }
            EmptyDirMedium::HugePages { text, page_size } => {
                Medium::HugePages { page_size: huge_pages::page_size(text, *page_size, facts.pod)? }
            }
        })
    }

    /// Returns the path of a volume on this host; an empty path for an image volume.
    fn volume(&self, name: &str, source: &VolumeSource) -> PathBuf {
        match source {
            VolumeSource::HostPath { path, .. } => PathBuf::from(path),
            VolumeSource::Image { .. } => PathBuf::new(),
            VolumeSource::EmptyDir { .. } => self.root().join(below(None)).join(name),
            VolumeSource::Files { kind, .. } => self.root().join(below(Some(*kind))).join(name),
        }
    }

    /// Returns the mount points of a container's subPaths. Those of image volumes have none: the
    /// runtime looks them up.
    pub(super) fn subpath_targets(&self, pod: &Pod, container: &Container) -> Vec<PathBuf> {
        let is_of_image = |mount: &VolumeMount| pod.image_volumes().any(|(name, ..)| name == mount.volume);
        let mounts = container.mounts.iter().enumerate();
        let mounts = mounts.filter(|(_, mount)| !mount.sub_path.is_empty() && !is_of_image(mount));
        let target =
            |(index, mount): (usize, &VolumeMount)| subpaths::target(&mount.volume, &container.name, index);
        mounts.map(|mount| self.root().join(target(mount))).collect()
    }

    /// Unmounts the subPaths of a container. The container must not run.
    pub(super) fn release(&self, container: &str) -> Result<(), VolumeError> {
        let is_gone = self.lock();
        if *is_gone {
            return Ok(());
        }
        self.unmount_subpaths(container)
    }

    fn unmount_subpaths(&self, container: &str) -> Result<(), VolumeError> {
        let root = match trusted(&self.root()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(with_path(&self.root()))?,
        };
        subpaths::release(root, container).map_err(with_path(&self.root()))
    }

    /// Returns the mounts of a container (kubelet: `kubelet_pods.go`: `makeMounts`).
    pub(super) fn mounts(
        &self,
        container: &Container,
        facts: &EnvFacts<'_>,
        variables: &[(String, Vec<u8>)],
        options: &MountOptions,
    ) -> Result<Vec<v1::Mount>, VolumeError> {
        let MountOptions { recurses, binds, images } = options;
        let is_gone = self.lock();
        if *is_gone {
            return Err(VolumeError::Gone);
        }
        let root = self.open()?;
        if *binds {
            // An instance that has ended may have left mounts.
            self.unmount_subpaths(&container.name)?;
        }
        let known = texts(variables);
        let has_images = facts.pod.image_volumes().next().is_some();
        let mut mounts = Vec::new();
        for (index, mount) in container.mounts.iter().enumerate() {
            let target = binds.then(|| subpaths::target(&mount.volume, &container.name, index));
            let sub_path = subpaths::expand(mount, &known)?;
            let created = match images.get(&mount.volume) {
                Some(image) => Some(image_mount(mount, image)),
                None => self
                    .mount(mount, &sub_path, facts.pod, &root, target.as_deref())
                    .map_err(|error| error.in_container(&container.name))?,
            };
            let recursive_read_only = *recurses && mount.recursive != RecursiveReadOnly::Disabled;
            // In a pod with image volumes the kubelet sets this field for mounts of other volumes
            // as well, for which it has no effect.
            let image_sub_path = if has_images { sub_path } else { String::new() };
            mounts.extend(created.map(|created| v1::Mount {
                recursive_read_only,
                image_sub_path,
                ..created
            }));
        }
        let has_own = |path: &str| container.mounts.iter().any(|mount| mount.path == path);
        if (facts.pod.host.network || !facts.addresses.is_empty()) && !has_own(HOSTS) {
            let path = self.root().join(OWN_HOSTS);
            write_file(&root, OsStr::new(OWN_HOSTS), hosts::content(facts).as_bytes(), 0o644)
                .map_err(with_path(&path))?;
            mounts.push(self.container_file(&path, HOSTS));
        }
        if !container.termination_message_path.is_empty() {
            let (above, name) =
                (Path::new(MESSAGES).join(&container.name), format!("{:08x}", fastrand::u32(..)));
            let path = self.root().join(&above).join(&name);
            let above = open_or_make(&root, &above, 0o750, Links::Refuse);
            let created = above.and_then(|above| write_file(&above, OsStr::new(&name), b"", 0o666));
            created.map_err(with_path(&path))?;
            mounts.push(self.container_file(&path, &container.termination_message_path));
        }
        Ok(mounts)
    }

    fn container_file(&self, path: &Path, container_path: &str) -> v1::Mount {
        v1::Mount {
            container_path: container_path.to_owned(),
            host_path: path.display().to_string(),
            selinux_relabel: self.has_selinux,
            ..v1::Mount::default()
        }
    }

    fn mount(
        &self,
        mount: &VolumeMount,
        sub_path: &str,
        pod: &Pod,
        root: &OwnedFd,
        target: Option<&Path>,
    ) -> Result<Option<v1::Mount>, VolumeError> {
        let Some(volume) = pod.volumes.iter().find(|volume| volume.name == mount.volume) else {
            return Ok(None);
        };
        let mut path = self.volume(&volume.name, &volume.source);
        if !sub_path.is_empty() {
            let whole = match &volume.source {
                VolumeSource::HostPath { .. } => trusted(&path),
                _ => path
                    .strip_prefix(self.root())
                    .map_err(|_| Errno::XDEV.into())
                    .and_then(|below| open(root, below, OFlags::PATH, Links::Refuse)),
            };
            let opened = subpaths::open_or_create(whole.map_err(with_path(&path))?, &path, sub_path);
            let opened = opened.map_err(|(action, error)| error.in_volume(action, &volume.name))?;
            let prepared = match target {
                Some(target) => {
                    let point = self.root().join(target);
                    subpaths::bind(root, target, &opened).map_err(with_path(&point)).map(|()| point)
                }
                // The kernel's current path of the open file.
                None => fs::read_link(descriptor_path(&opened)).map_err(with_path(&path)),
            };
            path = prepared.map_err(|error| error.in_volume("prepare subPath", &volume.name))?;
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

    /// Removes the files of the pod, after it unmounts all mounts below them. Fails if a mount
    /// remains, because the files behind a mount do not belong to the pod.
    pub(super) fn remove(&self) -> Result<(), VolumeError> {
        let mut is_gone = self.lock();
        *is_gone = true;
        let root = self.root();
        if !is_name(OsStr::new(&self.uid)) {
            return Err(with_path(&root)(Errno::INVAL.into()));
        }
        let pods = match trusted(&self.pods) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(with_path(&self.pods))?,
        };
        for point in mountinfo::mounted_below(&root).map_err(with_path(&root))?.into_iter().rev() {
            let Ok(below) = point.strip_prefix(&self.pods) else { continue };
            let unmounted = subpaths::unmount_at(&pods, below);
            unmounted.map_err(|source| VolumeError::StillMounted { path: point.clone(), source })?;
        }
        removal::remove(pods, OsStr::new(&self.uid)).map_err(with_path(&root))
    }
}

/// Returns the mount of an image volume, which is always read-only (kubelet: `pkg/volume/image`:
/// `GetAttributes`).
fn image_mount(mount: &VolumeMount, image: &v1::ImageSpec) -> v1::Mount {
    v1::Mount {
        container_path: mount.path.clone(),
        readonly: true,
        propagation: mount.propagation.into(),
        image: Some(image.clone()),
        ..v1::Mount::default()
    }
}

/// Unmounts a mount that an earlier run left at an absolute path.
pub(super) fn unmount_stale(path: &Path) -> io::Result<()> {
    let below = path.strip_prefix("/").map_err(|_| Errno::INVAL)?;
    subpaths::unmount_at(trusted(Path::new("/"))?, below)
}

/// Returns the directory of volumes of a kind, relative to the pod's directory; `None` stands for
/// emptyDir volumes.
fn below(kind: Option<FilesKind>) -> PathBuf {
    Path::new("volumes").join(kind.map_or("kubernetes.io~empty-dir", volumes::dir))
}

#[cfg(test)]
mod tests;
