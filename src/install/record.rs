//! The record of an installation: what undoes it. The record is written before each change. The
//! unit of the service has a copy, from which a lost record is rebuilt.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{create_dirs, remove_file, write_file};
use super::paths::{InstalledUnit, Paths};
use super::switch::KubeletSwitch;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::socket::SocketPath;

/// Version of the format.
const FORMAT: u32 = 1;

/// Directive of the service's unit with the copy of the record, in a section that systemd ignores.
const COPY: &str = "Record=";

/// The record of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstallRecord {
    /// Version of the format.
    format: u32,
    /// Whether the program was written by the installation. A program that was there before stays.
    pub(super) owns_program: bool,
    /// Directories that the installation created, outer ones first.
    pub(super) created_dirs: Vec<PathBuf>,
    /// Socket of the runtime; `None` if the configuration file names it.
    pub(super) upstream: Option<String>,
    /// Socket on which systemd listens for clients.
    pub(super) listen: String,
    /// Kubeconfig in the configuration file that the installation wrote; `None` if it wrote none.
    #[serde(default)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Text that the installation appended to a configuration file; `None` if it appended none.
    #[serde(default)]
    pub(super) addition: Option<String>,
    /// The change of the kubelet, if it was switched.
    pub(super) kubelet: Option<KubeletRecord>,
    /// Whether the record was lost, and this one was rebuilt from the unit of the service.
    #[serde(skip)]
    pub(super) is_rebuilt: bool,
}

/// The record of the change of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeletRecord {
    /// The change.
    pub(super) switch: KubeletSwitch,
    /// Whether the change was confirmed.
    pub(super) confirmed: bool,
    /// Whether `install` has reverted the change, because a check failed or the user wanted it.
    #[serde(default)]
    pub(super) reverted: bool,
}

/// A record that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} the record of the installation {path}: {reason}")]
pub struct RecordError {
    action: &'static str,
    path: PathBuf,
    reason: String,
}

impl InstallRecord {
    /// Returns the record of an installation that has changed nothing yet.
    pub(super) fn new(listen: &SocketPath) -> Self {
        Self {
            format: FORMAT,
            owns_program: false,
            created_dirs: Vec::new(),
            upstream: None,
            listen: listen.to_string(),
            kubeconfig: None,
            addition: None,
            kubelet: None,
            is_rebuilt: false,
        }
    }

    /// Reads the record, or rebuilds it if it is lost. Returns `None` if nothing is installed.
    pub(super) fn read(paths: &Paths) -> Result<Option<Self>, RecordError> {
        let failed =
            |reason: String| RecordError { action: "read", path: Paths::record().to_owned(), reason };
        let text = match read_to_string(&paths.at(Paths::record()), MAX_SMALL_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::rebuild(paths)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(failed(format!("{error}; run this command as root")));
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let record: Self = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if record.format != FORMAT {
            return Err(failed(format!("its format is {}, and this program has {FORMAT}", record.format)));
        }
        Ok(Some(record))
    }

    /// Rebuilds a lost record from the copy in the unit of the service. Returns `None` if the unit
    /// or the copy is missing, or the copy has another format.
    fn rebuild(paths: &Paths) -> Option<Self> {
        let unit = paths.at(Paths::unit(InstalledUnit::Service));
        let text = read_to_string(&unit, MAX_SMALL_FILE_BYTES).ok()?;
        let copy = text.lines().find_map(|line| line.strip_prefix(COPY))?;
        let mut record: Self = serde_json::from_str(copy).ok()?;
        if record.format != FORMAT {
            return None;
        }
        if let Some(kubelet) = &mut record.kubelet {
            // A confirmation disables the timer, as a revert does, which also removes the file that
            // takes effect.
            let timer = Paths::enabled_unit(InstalledUnit::Revert);
            let is_decided = timer.is_some_and(|timer| paths.at(timer).symlink_metadata().is_err());
            kubelet.confirmed = is_decided && paths.at(kubelet.switch.effective_file()).exists();
        }
        record.is_rebuilt = true;
        Some(record)
    }

    /// Returns the section of the service's unit with a copy of the record. The copy has what stays
    /// the same after the installation.
    pub(super) fn unit_section(&self) -> String {
        let mut copy = self.clone();
        if let Some(kubelet) = &mut copy.kubelet {
            (kubelet.confirmed, kubelet.reverted) = (false, false);
        }
        let copy = serde_json::to_string(&copy).unwrap_or_default();
        format!("[X-Probeshim]\n{COPY}{copy}\n")
    }

    /// Writes the record. A missing directory is created with access for its owner only.
    pub(super) fn write(&self, paths: &Paths) -> Result<(), RecordError> {
        let failed =
            |reason: String| RecordError { action: "write", path: Paths::record().to_owned(), reason };
        let mut text = serde_json::to_string_pretty(self).map_err(|error| failed(error.to_string()))?;
        text.push('\n');
        let created = create_dirs(&paths.at(Paths::state()), 0o700);
        let written = created.and_then(|()| write_file(&paths.at(Paths::record()), text.as_bytes(), 0o600));
        written.map_err(|error| failed(error.to_string()))
    }

    /// Records whether the change of the kubelet is confirmed.
    pub(super) fn set_confirmed(paths: &Paths, confirmed: bool) -> Result<(), RecordError> {
        let Some(mut record) = Self::read(paths)? else { return Ok(()) };
        if let Some(kubelet) = &mut record.kubelet {
            kubelet.confirmed = confirmed;
        }
        record.write(paths)
    }

    /// Records that `install` has reverted the change of the kubelet.
    pub(super) fn set_reverted(paths: &Paths) -> Result<(), RecordError> {
        let Some(mut record) = Self::read(paths)? else { return Ok(()) };
        if let Some(kubelet) = &mut record.kubelet {
            kubelet.reverted = true;
        }
        record.write(paths)
    }

    /// Removes the record.
    pub(super) fn remove(paths: &Paths) -> io::Result<bool> {
        remove_file(&paths.at(Paths::record()))
    }

    /// Adds the directories that a file needs and that do not exist. Returns whether there are any.
    pub(super) fn add_dirs(&mut self, paths: &Paths, file: &Path) -> bool {
        let ancestors: Vec<&Path> = file.ancestors().skip(1).collect();
        let missing = ancestors.into_iter().rev().filter(|dir| !paths.at(dir).exists());
        let before = self.created_dirs.len();
        for dir in missing {
            if !self.created_dirs.iter().any(|known| known == dir) {
                self.created_dirs.push(dir.to_owned());
            }
        }
        self.created_dirs.len() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> InstallRecord {
        InstallRecord::new(&SocketPath::parse("/run/probeshim/probeshim.sock").unwrap())
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path());
        assert_eq!(InstallRecord::read(&paths).unwrap(), None);
        let mut record = record();
        let switch = KubeletSwitch::ExtraArgs { unit: "kubelet.service".into(), previous: "-v=2".into() };
        record.kubelet = Some(KubeletRecord { switch, confirmed: false, reverted: false });
        record.write(&paths).unwrap();
        assert_eq!(InstallRecord::read(&paths).unwrap().as_ref(), Some(&record));
    }

    #[test]
    fn a_lost_record_is_rebuilt_from_the_unit_of_the_service() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path());
        let unit = paths.at(Paths::unit(InstalledUnit::Service));
        std::fs::create_dir_all(unit.parent().unwrap()).unwrap();
        let mut record = record();
        record.upstream = Some("unix:///run/containerd/containerd.sock".into());
        let switch =
            KubeletSwitch::ExtraArgs { unit: "kubelet.service".into(), previous: "-v=\"2\n%h".into() };
        record.kubelet = Some(KubeletRecord { switch, confirmed: true, reverted: false });
        std::fs::write(&unit, format!("[Service]\nExecStart=/a\n\n{}", record.unit_section())).unwrap();
        let drop_in = paths.at(Paths::kubelet_drop_in("kubelet.service"));
        std::fs::create_dir_all(drop_in.parent().unwrap()).unwrap();
        std::fs::write(&drop_in, "").unwrap();
        let rebuilt = InstallRecord { is_rebuilt: true, ..record.clone() };
        assert_eq!(InstallRecord::read(&paths).unwrap(), Some(rebuilt));
        // A change that was reverted is not confirmed.
        std::fs::remove_file(&drop_in).unwrap();
        let reverted = InstallRecord::read(&paths).unwrap().unwrap();
        assert!(!reverted.kubelet.unwrap().confirmed);
        std::fs::write(&drop_in, "").unwrap();
        // The timer of a change that is not confirmed is enabled.
        let timer = paths.at(Paths::enabled_unit(InstalledUnit::Revert).unwrap());
        std::fs::create_dir_all(timer.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/etc/systemd/system/probeshim-revert.timer", timer).unwrap();
        let rebuilt = InstallRecord::read(&paths).unwrap().unwrap();
        assert!(!rebuilt.kubelet.unwrap().confirmed);
        // A record that is there is used.
        record.write(&paths).unwrap();
        assert_eq!(InstallRecord::read(&paths).unwrap(), Some(record.clone()));
        // A unit of another origin has no copy, and a copy of another format is not used.
        std::fs::remove_file(paths.at(Paths::record())).unwrap();
        record.format = 7;
        for text in ["[Service]\nExecStart=/a\n", &*record.unit_section(), "Record={\n"] {
            std::fs::write(&unit, text).unwrap();
            assert_eq!(InstallRecord::read(&paths).unwrap(), None);
        }
    }

    #[test]
    fn a_record_of_another_format_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path());
        let mut other = record();
        other.format = 7;
        other.write(&paths).unwrap();
        let error = InstallRecord::read(&paths).unwrap_err().to_string();
        assert!(
            error.ends_with("/var/lib/probeshim/install.json: its format is 7, and this program has 1"),
            "{error}"
        );
    }

    #[test]
    fn missing_directories_are_recorded_once_and_outer_ones_first() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let (paths, mut record) = (Paths::below(root.path()), record());
        let file = Path::new("/etc/systemd/system/probeshim.socket");
        assert!(record.add_dirs(&paths, file));
        assert!(!record.add_dirs(&paths, file));
        assert_eq!(record.created_dirs, ["/etc/systemd", "/etc/systemd/system"].map(PathBuf::from));
    }
}
