//! A manager of units that behaves as systemd does, and can fail at each step.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::symlink;

use crate::install::{InstalledUnit, Paths, ServiceManager, ServiceManagerError};

/// Unit of the kubelet without drop-ins of probeshim.
const KUBELET_TEXT: &str = "# /lib/systemd/system/kubelet.service\n[Service]\nEnvironmentFile=-/etc/default/kubelet\n\
    ExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n";

/// Command line of the kubelet. `/healthz` is disabled, so that nothing waits for it.
const KUBELET_LINE: &str = "kubelet\0--config=/var/lib/kubelet/config.yaml\0--healthz-port=0\0";

/// Flag of the kubelet in its drop-in.
const KUBELET_FLAG: &str = "--container-runtime-endpoint=unix:///run/probeshim/probeshim.sock\0";

/// Point of a step at which the process that runs it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPoint {
    Before,
    After,
}

/// A manager that records its steps. It knows the drop-in of the kubelet as it was at the last
/// `daemon-reload`.
pub(super) struct FakeManager {
    paths: Paths,
    pub(super) steps: RefCell<Vec<String>>,
    /// Number of the step at which the process is killed.
    pub(super) killed_at: Cell<Option<(usize, KillPoint)>>,
    /// State of the socket and of the service.
    pub(super) active_state: Cell<&'static str>,
    pub(super) kubelet_state: Cell<&'static str>,
    pub(super) bypass_state: Cell<&'static str>,
    pub(super) has_timer: Cell<bool>,
    /// The unit that runs the kubelet.
    pub(super) kubelet_unit: Cell<&'static str>,
    knows_drop_in: Cell<bool>,
}

impl FakeManager {
    pub(super) fn new(paths: Paths) -> Self {
        let manager = Self {
            paths,
            steps: RefCell::default(),
            killed_at: Cell::default(),
            active_state: Cell::new("inactive"),
            kubelet_state: Cell::new("active"),
            bypass_state: Cell::new("inactive"),
            has_timer: Cell::default(),
            kubelet_unit: Cell::new("kubelet.service"),
            knows_drop_in: Cell::default(),
        };
        manager.start_kubelet();
        manager
    }

    /// Starts the kubelet with the drop-in as systemd knows it.
    pub(super) fn start_kubelet(&self) {
        let path = self.paths.at("/proc/7/cmdline");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let flag = if self.knows_drop_in.get() { KUBELET_FLAG } else { "" };
        fs::write(path, format!("{KUBELET_LINE}{flag}")).unwrap();
        self.kubelet_state.set("active");
    }

    /// Writes or removes the link that enables a unit.
    fn set_enabled(&self, unit: InstalledUnit, is_enabled: bool) {
        let link = self.paths.at(Paths::enabled_unit(unit).unwrap());
        let dir = link.parent().unwrap();
        if is_enabled {
            fs::create_dir_all(dir).unwrap();
            let _ = symlink(format!("../{}", unit.name()), link);
        } else {
            let _ = fs::remove_file(&link);
            // systemctl removes an empty directory too.
            let _ = fs::remove_dir(dir);
        }
    }

    /// Does what `probeshim-bypass.service` does.
    pub(super) fn bypass(&self) {
        let _ = fs::remove_file(self.paths.at(Paths::kubelet_drop_in("kubelet.service")));
        self.apply(&["daemon-reload"]);
        self.start_kubelet();
    }

    /// Returns whether a process has the right to change the installation.
    fn is_locked(&self) -> bool {
        let file = File::create(self.paths.at(Paths::lock())).unwrap();
        matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn has_drop_in(&self) -> bool {
        self.paths.at(Paths::kubelet_drop_in("kubelet.service")).exists()
    }

    /// Returns the response to a query; `None` if `arguments` are a step.
    fn query(&self, arguments: &[&str]) -> Option<Result<String, ServiceManagerError>> {
        let timer_state = if self.has_timer.get() { "waiting" } else { "dead" };
        let value = match arguments {
            // systemctl opens each drop-in that systemd knows.
            ["cat", unit] if self.knows_drop_in.get() && !self.has_drop_in() => {
                return Some(Err(failed(&["cat", unit], "Failed to cat zz-probeshim.conf: No such file")));
            }
            ["cat", _] => return Some(Ok(KUBELET_TEXT.to_owned())),
            ["show", "--value", "--property", property, unit] => match (*property, *unit) {
                ("NeedDaemonReload", _) if self.knows_drop_in.get() == self.has_drop_in() => "no",
                ("NeedDaemonReload", _) => "yes",
                ("LoadState", unit) if unit == self.kubelet_unit.get() => "loaded",
                ("LoadState", _) => "not-found",
                ("MainPID", _) => "7",
                (_, unit) if unit == self.kubelet_unit.get() => self.kubelet_state.get(),
                (_, "probeshim-bypass.service") => self.bypass_state.get(),
                ("SubState", "probeshim-revert.timer") => timer_state,
                _ => self.active_state.get(),
            },
            ["show", "--value", "--property", "Version"] => "252 (252.1)",
            _ => return None,
        };
        Some(Ok(format!("{value}\n")))
    }

    /// Has the effect of a step.
    fn apply(&self, arguments: &[&str]) {
        let timer = InstalledUnit::Revert.name();
        match arguments {
            ["daemon-reload"] => self.knows_drop_in.set(self.has_drop_in()),
            ["restart", "kubelet.service"] => self.start_kubelet(),
            ["restart", unit] if *unit == timer => self.has_timer.set(true),
            ["enable", unit] if *unit == timer => self.set_enabled(InstalledUnit::Revert, true),
            ["disable", "--now", units @ ..] if units.contains(&timer) => {
                self.set_enabled(InstalledUnit::Revert, false);
                self.has_timer.set(false);
            }
            ["start", "probeshim-bypass.service"] => self.bypass(),
            _ => {}
        }
    }
}

impl ServiceManager for FakeManager {
    fn run(&self, arguments: &[&str]) -> Result<String, ServiceManagerError> {
        if let Some(response) = self.query(arguments) {
            return response;
        }
        assert!(self.is_locked(), "{arguments:?}: another process could change the installation as well");
        let number = {
            let mut steps = self.steps.borrow_mut();
            steps.push(arguments.join(" "));
            steps.len()
        };
        let killed = self.killed_at.get().filter(|(at, _)| *at == number).map(|(_, point)| point);
        if killed != Some(KillPoint::Before) {
            self.apply(arguments);
        }
        if killed.is_some() { Err(failed(arguments, "killed")) } else { Ok(String::new()) }
    }
}

fn failed(arguments: &[&str], message: &str) -> ServiceManagerError {
    ServiceManagerError::Failed { arguments: arguments.join(" "), message: message.to_owned() }
}
