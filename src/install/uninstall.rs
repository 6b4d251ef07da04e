//! Removes an installation.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::InstallError;
use super::checks::wait_healthy;
use super::files::{has_content, remove_empty_dir, remove_file, temporary, write_file};
use super::kubeconfig::{config_text, without_addition};
use super::lock::InstallLock;
use super::node::{KUBELET_UNIT, NodeKubelet};
use super::paths::{InstalledUnit, Paths};
use super::plan::listen_for;
use super::record::InstallRecord;
use super::systemctl::{ServiceManager, property};
use crate::regular_file::{MAX_YAML_BYTES, read_to_string};
use crate::socket::SocketPath;

/// Time in which the kubelet is expected to answer after its restart.
const KUBELET_START: Duration = Duration::from_secs(60);

/// Removes an installation. Each step may be interrupted: a repetition continues.
#[allow(missing_debug_implementations, reason = "it has references to functions only")]
pub struct Uninstaller<'a> {
    /// The paths of the node.
    pub paths: &'a Paths,
    /// The manager of units.
    pub manager: &'a dyn ServiceManager,
    /// Receives a line for each change.
    pub report: &'a dyn Fn(&str),
}

/// Returns whether anything of an installation is on the node.
#[must_use]
pub fn is_installed(paths: &Paths) -> bool {
    !installed_files(paths).is_empty() || is_empty_dir(&paths.at(Paths::state()))
}

/// Returns the files of an installation that are on the node, without the program.
pub(super) fn installed_files(paths: &Paths) -> Vec<PathBuf> {
    let units = InstalledUnit::ALL.map(Paths::unit).into_iter();
    // An installation can be interrupted while it writes its record.
    let records = [Paths::record().to_owned(), temporary(Paths::record())];
    let files = units.chain(kubelet_files(None)).chain(records);
    files.filter(|path| paths.at(path).exists()).collect()
}

fn is_empty_dir(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

impl Uninstaller<'_> {
    /// Points the kubelet at the runtime's own socket, stops probeshim, and removes the files of
    /// the installation. With `purge`, removes also the state and the configuration.
    pub async fn uninstall(&self, purge: bool) -> Result<(), InstallError> {
        let _lock = InstallLock::acquire(self.paths)?;
        let record = InstallRecord::read(self.paths)?;
        if purge {
            self.check_mounts(Paths::state())?;
        }
        self.restore_kubelet(record.as_ref()).await?;
        self.remove_units()?;
        if purge {
            self.purge()?;
        }
        if let Some(record) = record {
            self.remove_config(&record)?;
            if record.owns_program {
                self.remove(Paths::program())?;
            }
            self.remove_dirs(&record.created_dirs)?;
        }
        InstallRecord::remove(self.paths).map_err(InstallError::file("remove", Paths::record()))?;
        // The record was in it.
        self.remove_dirs(&[Paths::state().to_owned()])
    }

    /// Removes the change of the kubelet, and restarts a kubelet that still uses probeshim.
    async fn restore_kubelet(&self, record: Option<&InstallRecord>) -> Result<(), InstallError> {
        let recorded = record.and_then(|record| record.kubelet.as_ref()).map(|kubelet| kubelet.switch.unit());
        let mut removed = false;
        for file in kubelet_files(recorded) {
            removed |= self.remove(&file)?;
        }
        // A kubelet that is started from here on has its own configuration. Its unit cannot be read
        // while systemd knows a drop-in that was removed.
        self.manager.run(&["daemon-reload"])?;
        let kubelet = NodeKubelet::find(self.paths, self.manager);
        let Ok(Some(kubelet)) = kubelet else {
            // Without a kubelet there is nothing to restart. One that cannot be examined is
            // restarted if it was switched, since an interrupted removal may have removed the files
            // without the restart.
            if let Some(unit) = recorded.or(removed.then_some(KUBELET_UNIT))
                && kubelet.is_err()
            {
                self.restart(unit)?;
            }
            return Ok(());
        };
        let listen = record.and_then(|record| SocketPath::parse(&record.listen).ok());
        let listen =
            listen.or_else(|| SocketPath::parse(&kubelet.config.endpoint).ok().map(|it| listen_for(&it)));
        let uses_us = listen.is_some_and(|listen| kubelet.uses(&listen) == Some(true));
        // The command line of the running kubelet does not suffice: an interrupted installation may
        // have left a restart in progress, and an interrupted removal may have removed the file
        // without the restart.
        if (removed || recorded.is_some() || uses_us)
            && self.restart(kubelet.switch.unit())?
            && let Some(address) = kubelet.config.healthz
            && !wait_healthy(address, Instant::now() + KUBELET_START).await
        {
            (self.report)(&format!("the kubelet does not answer at {address} yet; see its log"));
        }
        Ok(())
    }

    /// Restarts the kubelet. Returns false for one that an administrator has stopped.
    fn restart(&self, unit: &str) -> Result<bool, InstallError> {
        if property(self.manager, unit, "ActiveState")? == "inactive" {
            (self.report)(&format!("{unit} is stopped; its next start has its own configuration"));
            return Ok(false);
        }
        self.manager.run(&["restart", unit])?;
        (self.report)(&format!("{unit} was restarted with its own configuration"));
        Ok(true)
    }

    /// Stops and removes all units.
    fn remove_units(&self) -> Result<(), InstallError> {
        let is_there = |unit: &InstalledUnit| self.paths.at(Paths::unit(*unit)).exists();
        let units: Vec<InstalledUnit> = InstalledUnit::ALL.into_iter().filter(is_there).collect();
        let names: Vec<&str> = units.iter().map(|unit| unit.name()).collect();
        // The timer goes first: it must not start the bypass in between.
        let stopped: Vec<&str> = names.iter().rev().copied().collect();
        if !stopped.is_empty() {
            self.manager.run(&[&["disable", "--now"], &stopped[..]].concat())?;
            (self.report)(&format!("stopped {}", names.join(", ")));
        }
        for unit in InstalledUnit::ALL {
            self.remove(&Paths::unit(unit))?;
            // An interrupted installation may have left its last step running, which enables units.
            if let Some(link) = Paths::enabled_unit(unit) {
                self.remove(&link)?;
            }
        }
        self.manager.run(&["daemon-reload"])?;
        for unit in names {
            // Fails for a unit that systemd has forgotten already, which is the aim.
            let _ = self.manager.run(&["reset-failed", unit]);
        }
        Ok(())
    }

    /// Removes the configuration file that the installation wrote, or the line that it appended,
    /// unless they were changed later.
    fn remove_config(&self, record: &InstallRecord) -> Result<(), InstallError> {
        let file = Paths::config_file();
        let path = self.paths.at(&file);
        if let Some(kubeconfig) = &record.kubeconfig
            && has_content(&path, config_text(kubeconfig).as_bytes())
        {
            self.remove(&file)?;
            return Ok(());
        }
        if record.kubeconfig.is_none() && record.addition.is_none() {
            return Ok(());
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else { return Ok(()) };
        let text = read_to_string(&path, MAX_YAML_BYTES).map_err(InstallError::file("read", &file))?;
        let addition = record.addition.as_deref().filter(|_| metadata.is_file());
        if let Some(before) = addition.and_then(|addition| without_addition(&text, addition)) {
            let written = write_file(&path, before.as_bytes(), metadata.permissions().mode() & 0o777);
            written.map_err(InstallError::file("write", &file))?;
            (self.report)(&format!("removed the line of the installation from {}", file.display()));
        } else if text.lines().any(|line| line.starts_with("kubelet:")) {
            (self.report)(&format!("the field kubelet stays in {}: it was changed", file.display()));
        }
        Ok(())
    }

    /// Removes the configuration and the state, except for the record.
    fn purge(&self) -> Result<(), InstallError> {
        match fs::remove_dir_all(self.paths.at(Paths::config())) {
            Ok(()) => (self.report)(&format!("removed {}", Paths::config().display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(InstallError::file("remove", Paths::config())(error)),
        }
        let entries = match fs::read_dir(self.paths.at(Paths::state())) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(InstallError::file("read", Paths::state())(error)),
        };
        for entry in entries {
            let entry = entry.map_err(InstallError::file("read", Paths::state()))?;
            let path = entry.path();
            if path == self.paths.at(Paths::record()) {
                continue;
            }
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(InstallError::file("remove", &path))?;
        }
        (self.report)(&format!("removed the state in {}", Paths::state().display()));
        Ok(())
    }

    /// Fails if a volume of a pod is mounted below a directory.
    fn check_mounts(&self, dir: &Path) -> Result<(), InstallError> {
        let mounts = fs::read_to_string(self.paths.at("/proc/self/mounts")).unwrap_or_default();
        let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
        // The directory itself may be a file system of its own.
        if points.any(|point| point != dir && point.starts_with(dir)) {
            return Err(InstallError::Mounted(dir.to_owned()));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<bool, InstallError> {
        let removed = remove_file(&self.paths.at(path)).map_err(InstallError::file("remove", path))?;
        if removed {
            (self.report)(&format!("removed {}", path.display()));
        }
        Ok(removed)
    }

    /// Removes directories that are empty, inner ones first.
    fn remove_dirs(&self, dirs: &[PathBuf]) -> Result<(), InstallError> {
        for dir in dirs.iter().rev() {
            remove_empty_dir(&self.paths.at(dir)).map_err(InstallError::file("remove", dir))?;
        }
        Ok(())
    }
}

/// Returns the files of all changes of a kubelet. A drop-in comes before the file to which it
/// refers.
fn kubelet_files(recorded: Option<&str>) -> Vec<PathBuf> {
    let unit = recorded.unwrap_or(KUBELET_UNIT);
    let [k3s, rke2] = ["k3s", "rke2"].map(|unit| Paths::rancher_config(unit).to_owned());
    let effective = [k3s, rke2, Paths::kubelet_drop_in(unit)];
    // The bypass may have been interrupted before the restart of the kubelet.
    let reverted = effective.clone().map(|file| Paths::reverted(&file));
    effective.into_iter().chain(reverted).chain([Paths::kubelet_environment(unit)]).collect()
}
