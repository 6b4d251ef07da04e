//! Facts about the kubelet of a node.

use std::path::Path;

use super::kubelet_config::KubeletConfig;
use super::kubelet_unit::{EXTRA_ARGS, KubeletUnit};
use super::paths::Paths;
use super::switch::KubeletSwitch;
use super::systemctl::{ServiceManager, property};
use super::{InstallError, finding::Finding};
use crate::distributions::K3S_CONTAINERD;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read};
use crate::socket::SocketPath;

/// Unit of a kubelet on its own.
pub(super) const KUBELET_UNIT: &str = "kubelet.service";

/// Units of k3s and RKE2, which run a kubelet.
const K3S_UNITS: [&str; 4] =
    ["k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"];

/// A kubelet of the node.
#[derive(Clone, Debug)]
pub(super) struct NodeKubelet {
    /// The change that points the kubelet at probeshim.
    pub(super) switch: KubeletSwitch,
    /// Process of the unit; `None` if it does not run.
    pub(super) pid: Option<u32>,
    /// Value of [`EXTRA_ARGS`] in the environment of that process; `None` if it cannot be read.
    extra_args: Option<String>,
    /// Configuration of the running kubelet, or of one without flags and files.
    pub(super) config: KubeletConfig,
}

impl NodeKubelet {
    /// Finds the kubelet. Returns `None` if the node has none.
    pub(super) fn find(paths: &Paths, manager: &dyn ServiceManager) -> Result<Option<Self>, InstallError> {
        let is_loaded = |unit: &&str| {
            property(manager, unit, "LoadState").map(|state| state == "loaded").map_err(InstallError::from)
        };
        if is_loaded(&KUBELET_UNIT)? {
            let text = match manager.run(&["cat", KUBELET_UNIT]) {
                // systemctl opens each drop-in that systemd knows.
                Err(_) if needs_reload(manager)? => {
                    return Err(InstallError::StaleUnit(KUBELET_UNIT.to_owned()));
                }
                text => text?,
            };
            let own = Paths::kubelet_drop_in(KUBELET_UNIT);
            let unit = KubeletUnit::parse(&text, |path| own == Path::new(path));
            let switch = KubeletSwitch::of_unit(KUBELET_UNIT, &unit, paths)?;
            let pid = main_pid(manager, KUBELET_UNIT)?;
            let arguments = pid.and_then(|pid| null_separated(paths, pid, "cmdline")).unwrap_or_default();
            let config = KubeletConfig::read(&arguments, paths)?;
            let extra_args = pid.and_then(|pid| environment_variable(paths, pid, EXTRA_ARGS));
            return Ok(Some(Self { switch, pid, extra_args, config }));
        }
        for unit in K3S_UNITS {
            if is_loaded(&unit)? {
                let switch = KubeletSwitch::K3s { unit: unit.to_owned() };
                let mut config = KubeletConfig::read(&[], paths)?;
                config.endpoint = format!("unix://{K3S_CONTAINERD}");
                config.endpoint_source = format!("default of {}", switch.layout());
                return Ok(Some(Self { switch, pid: main_pid(manager, unit)?, extra_args: None, config }));
            }
        }
        Ok(None)
    }

    /// Returns whether the running kubelet uses a socket; `None` if that is unknown, as with k3s
    /// and RKE2, whose kubelet has no command line of its own.
    pub(super) fn uses(&self, socket: &SocketPath) -> Option<bool> {
        if matches!(self.switch, KubeletSwitch::K3s { .. }) || self.pid.is_none() {
            return None;
        }
        Some(SocketPath::parse(&self.config.endpoint).is_ok_and(|endpoint| endpoint == *socket))
    }

    /// Returns findings about the kubelet before it is switched to `listen`.
    pub(super) fn findings(&self, listen: &SocketPath) -> Vec<Finding> {
        const CHECK: &str = "kubelet";
        let unit = self.switch.unit();
        let config = &self.config;
        let mut findings = Vec::new();
        if let Some(pid) = self.pid {
            let detail = format!("{unit} runs (pid {pid}): {}", self.switch.layout());
            findings.push(Finding::ok(CHECK, detail));
        } else {
            let remedy = format!("start it: systemctl start {unit}");
            findings.push(Finding::failed(CHECK, format!("{unit} does not run"), remedy));
        }
        let detail = format!("{} ({})", config.endpoint, config.endpoint_source);
        findings.push(Finding::ok("endpoint", detail));
        findings.extend(self.extra_args.as_ref().and_then(|running| self.switch.extra_args_finding(running)));
        if let Some(images) = config.image_endpoint.as_ref().filter(|images| **images != listen.to_string()) {
            findings.push(Finding::warning(
                "images",
                format!("the kubelet has an image service of its own: {images}"),
                "calls of the image service do not pass through probeshim; remove imageServiceEndpoint to change that",
            ));
        }
        findings
    }
}

/// Makes systemd read the kubelet's unit again if its files have changed, as after a removal that
/// was interrupted.
pub(super) fn reload_changed_unit(manager: &dyn ServiceManager) -> Result<(), InstallError> {
    if needs_reload(manager)? {
        manager.run(&["daemon-reload"])?;
    }
    Ok(())
}

fn needs_reload(manager: &dyn ServiceManager) -> Result<bool, InstallError> {
    Ok(property(manager, KUBELET_UNIT, "NeedDaemonReload")? == "yes")
}

/// Returns the main process of a unit; `None` if it does not run.
pub(super) fn main_pid(manager: &dyn ServiceManager, unit: &str) -> Result<Option<u32>, InstallError> {
    let pid = property(manager, unit, "MainPID")?;
    Ok(pid.parse().ok().filter(|pid| *pid != 0))
}

/// Returns the value of a variable in the environment of a process, empty if it is not set. `None`
/// if the environment cannot be read.
pub(super) fn environment_variable(paths: &Paths, pid: u32, name: &str) -> Option<String> {
    let environment = null_separated(paths, pid, "environ")?;
    let value = environment.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some(value.unwrap_or_default().to_owned())
}

/// Returns the command line (`cmdline`) or the environment (`environ`) of a process.
fn null_separated(paths: &Paths, pid: u32, file: &str) -> Option<Vec<String>> {
    let text = read(&paths.at(format!("/proc/{pid}/{file}")), MAX_SMALL_FILE_BYTES).ok()?;
    Some(text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}
