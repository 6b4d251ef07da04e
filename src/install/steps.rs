//! Steps of an installation. A dry run shows the same steps that an installer makes.

use std::path::PathBuf;

use super::InstallError;
use super::files::{copy_program, has_content, write_file};
use super::kubeconfig::KubeconfigSetting;
use super::paths::{InstalledUnit, Paths};
use super::plan::InstallPlan;
use super::running_service::RunningService;
use super::socket_access::SocketAccess;
use super::switch::InstalledFile;
use super::systemctl::{ServiceManager, property};

/// A step that changes the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Copies a program to its installed path.
    CopyProgram(PathBuf),
    /// Writes a file, unless it has its content already.
    Write(InstalledFile),
    /// Writes the configuration file, which has the mode of its owner's choice.
    WriteConfig(InstalledFile, u32),
    /// Changes owner and mode of a socket that exists.
    SetAccess(PathBuf, SocketAccess),
    /// Runs `systemctl` with arguments.
    Systemctl(Vec<String>),
}

impl Step {
    fn systemctl<const N: usize>(arguments: [&str; N]) -> Self {
        Self::Systemctl(arguments.map(str::to_owned).into())
    }

    /// Returns whether the step makes `systemctl` run a command on a unit.
    pub(super) fn runs(&self, command: &str, unit: &str) -> bool {
        let Self::Systemctl(arguments) = self else { return false };
        let (first, last) = (arguments.first(), arguments.last());
        first.is_some_and(|first| first == command) && last.is_some_and(|last| last == unit)
    }

    /// Describes the step.
    fn describe(&self, paths: &Paths) -> String {
        match self {
            Self::CopyProgram(from) => format!("copy {} to {}", from.display(), Paths::program().display()),
            Self::Write(file) if is_written(paths, file) => format!("keep {}", file.path.display()),
            Self::Write(file) => {
                let lines = file.text.lines().map(|line| format!("\n    {line}").trim_end().to_owned());
                format!("write {}{}", file.path.display(), lines.collect::<String>())
            }
            Self::WriteConfig(file, _) => {
                let lines = file.text.lines().map(|line| format!("\n    {line}").trim_end().to_owned());
                format!("write {}{}", file.path.display(), lines.collect::<String>())
            }
            Self::SetAccess(socket, SocketAccess { uid, gid, mode }) => {
                format!("set owner {uid}:{gid} and mode {mode:04o} of {}", socket.display())
            }
            Self::Systemctl(arguments) => format!("systemctl {}", arguments.join(" ")),
        }
    }

    /// Makes the step. Returns the path that was written, if there is one.
    pub(super) fn make(
        &self,
        paths: &Paths,
        manager: &dyn ServiceManager,
    ) -> Result<Option<PathBuf>, InstallError> {
        match self {
            Self::CopyProgram(from) => {
                let to = Paths::program();
                copy_program(from, &paths.at(to)).map_err(InstallError::file("write", to))?;
                Ok(Some(to.to_owned()))
            }
            Self::Write(file) if is_written(paths, file) => Ok(None),
            Self::Write(file) => {
                let written = write_file(&paths.at(&file.path), file.text.as_bytes(), 0o644);
                written.map_err(InstallError::file("write", &file.path))?;
                Ok(Some(file.path.clone()))
            }
            Self::WriteConfig(file, mode) => {
                let written = write_file(&paths.at(&file.path), file.text.as_bytes(), *mode);
                written.map_err(InstallError::file("write", &file.path))?;
                Ok(Some(file.path.clone()))
            }
            Self::SetAccess(socket, access) => {
                access.apply(&paths.at(socket)).map_err(InstallError::file("change", socket))?;
                Ok(None)
            }
            Self::Systemctl(arguments) => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                manager.run(&arguments)?;
                Ok(None)
            }
        }
    }
}

impl InstallPlan {
    /// Returns the steps that install the program and its units, and start them. A new program
    /// replaces a running one without a gap. If the unit has other settings for the process, it is
    /// restarted instead: a successor would inherit the settings of its predecessor.
    pub(super) fn install_steps(
        &self,
        paths: &Paths,
        manager: &dyn ServiceManager,
    ) -> Result<Vec<Step>, InstallError> {
        let [socket, service] = [InstalledUnit::Socket, InstalledUnit::Service].map(InstalledUnit::name);
        let units = self.units();
        let config = self.kubeconfig.as_ref().and_then(KubeconfigSetting::file);
        let changed =
            self.program_changes || config.is_some() || units.iter().any(|file| !is_written(paths, file));
        let socket_changes = self.socket_changes();
        let mut steps = Vec::new();
        if self.program_changes {
            steps.push(Step::CopyProgram(self.program.clone()));
        }
        steps.extend(config.map(|(file, mode)| Step::WriteConfig(file, mode)));
        steps.extend(units.into_iter().map(Step::Write));
        steps.push(Step::systemctl(["daemon-reload"]));
        if socket_changes {
            if self.kubelet.is_some() {
                // The kubelet may use the socket. An interruption must not leave it there.
                steps.extend(start_timer());
            }
            steps.push(Step::systemctl(["stop", service, socket]));
        }
        for unit in [socket, service] {
            if property(manager, unit, "ActiveState")? == "failed" {
                steps.push(Step::systemctl(["reset-failed", unit]));
            }
        }
        steps.push(Step::systemctl(["enable", "--now", socket]));
        steps.push(Step::systemctl(["enable", service]));
        let access = SocketAccess::of_socket(paths, &self.listen);
        if !socket_changes && access.is_some_and(|access| access != self.access) {
            steps.push(Step::SetAccess(self.listen.as_path().to_owned(), self.access));
        }
        let running = RunningService::find(paths, manager)?;
        let has_other_unit =
            |running: &RunningService| running.has_other_unit(&self.unit_settings().digest());
        if socket_changes {
            steps.push(Step::systemctl(["start", "--no-block", service]));
        } else if running.as_ref().is_some_and(has_other_unit) {
            steps.push(Step::systemctl(["restart", "--no-block", service]));
        } else if property(manager, service, "ActiveState")? != "active" {
            steps.push(Step::systemctl(["start", "--no-block", service]));
        } else if changed || running.is_some_and(|running| running.is_replaced) {
            steps.push(Step::systemctl(["reload", service]));
        }
        Ok(steps)
    }

    /// Returns the steps that point the kubelet at probeshim. The timer that reverts the change is
    /// started before the change, unless the change is made and confirmed already.
    pub(super) fn switch_steps(&self, paths: &Paths) -> Vec<Step> {
        let Some(kubelet) = &self.kubelet else { return Vec::new() };
        let recorded = self.earlier.as_ref().and_then(|record| record.kubelet.as_ref());
        let confirmed = recorded.is_some_and(|known| known.confirmed && known.switch == kubelet.switch);
        let files = self.kubelet_files();
        // The command line of k3s does not show the endpoint, but k3s was restarted before the
        // change was confirmed.
        let uses_probeshim = kubelet.uses(&self.listen).unwrap_or(confirmed);
        let is_switched = uses_probeshim && files.iter().all(|file| is_written(paths, file));
        let mut steps = Vec::new();
        if !(is_switched && confirmed) {
            steps.extend(start_timer());
        }
        if !is_switched {
            steps.extend(files.into_iter().map(Step::Write));
            steps.push(Step::systemctl(["daemon-reload"]));
            steps.push(Step::systemctl(["restart", kubelet.switch.unit()]));
        }
        steps
    }

    /// Describes each step in the order in which it is made, for a dry run.
    pub fn describe(&self, paths: &Paths, manager: &dyn ServiceManager) -> Result<String, InstallError> {
        let steps = self.install_steps(paths, manager)?.into_iter().chain(self.switch_steps(paths));
        let record = format!("write {}, by which the installation is undone", Paths::record().display());
        let lines: Vec<String> = [record].into_iter().chain(steps.map(|step| step.describe(paths))).collect();
        Ok(lines.join("\n") + "\n")
    }
}

/// Returns the steps that start the timer of the revert, or set it to its full time.
fn start_timer() -> [Step; 2] {
    let timer = InstalledUnit::Revert.name();
    [Step::systemctl(["enable", timer]), Step::systemctl(["restart", timer])]
}

/// Returns whether a file has its content already.
fn is_written(paths: &Paths, file: &InstalledFile) -> bool {
    has_content(&paths.at(&file.path), file.text.as_bytes())
}
