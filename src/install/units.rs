//! Writes the units of systemd.

use std::time::Duration;

use super::bypass::bypass;
use super::paths::{InstalledUnit, Paths};
use super::switch::{InstalledFile, KubeletSwitch};
use crate::config::OperatingMode;
use crate::socket::SocketPath;

/// Time in which a hung process is ended.
const WATCHDOG: &str = "10s";

/// Time that the service has to stop after its drain.
const STOP_MARGIN: Duration = Duration::from_secs(15);

/// Settings from which units are written.
#[derive(Clone, Debug)]
pub(super) struct UnitSettings<'a> {
    /// Socket of the runtime; `None` if the configuration file names it.
    pub(super) upstream: Option<&'a SocketPath>,
    /// Socket on which systemd listens for clients.
    pub(super) listen: &'a SocketPath,
    /// The control that probeshim has over pods, by the configuration file.
    pub(super) mode: OperatingMode,
    /// Time that calls in flight have to finish.
    pub(super) drain_timeout: Duration,
    /// The change of the kubelet, if it is switched.
    pub(super) kubelet: Option<&'a KubeletSwitch>,
    /// Time after which an unconfirmed change is reverted.
    pub(super) confirm_within: Duration,
}

/// Hardening that needs no mount namespace. Restarts and mounts of volumes work with it.
const HARDENING: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
SystemCallArchitectures=native
";

/// Hardening of a probeshim that mounts nothing. It gives the service a mount namespace.
const OBSERVER_HARDENING: &str = "\
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_KILL CAP_NET_RAW CAP_SYS_PTRACE CAP_SYS_RESOURCE
MemoryDenyWriteExecute=yes
ProtectClock=yes
ProtectHome=read-only
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=full
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictSUIDSGID=yes
";

impl UnitSettings<'_> {
    /// Returns the files of all units.
    pub(super) fn files(&self) -> Vec<InstalledFile> {
        let units = InstalledUnit::ALL.into_iter();
        units
            .filter_map(|unit| Some(InstalledFile { path: Paths::unit(unit), text: self.text(unit)? }))
            .collect()
    }

    /// Returns the text of a unit; `None` if the unit is not needed.
    fn text(&self, unit: InstalledUnit) -> Option<String> {
        let text = match unit {
            InstalledUnit::Socket => self.socket(),
            InstalledUnit::Service => self.service(),
            InstalledUnit::Bypass => bypass(self.kubelet?),
            InstalledUnit::Revert => {
                self.kubelet?;
                self.revert()
            }
        };
        Some(format!("# Written by `probeshim install`; `probeshim uninstall` removes it.\n{text}"))
    }

    /// Returns directives for the section `[Unit]` that bound restarts. At the limit the kubelet is
    /// pointed back at the runtime. Without a kubelet there is no limit: it would only end the
    /// service for good.
    fn start_limit(&self) -> &'static str {
        match self.kubelet {
            Some(_) => "StartLimitIntervalSec=60\nStartLimitBurst=5\nOnFailure=probeshim-bypass.service\n",
            None => "StartLimitIntervalSec=0\n",
        }
    }

    fn kubelet_unit(&self) -> &str {
        self.kubelet.map_or("kubelet.service", KubeletSwitch::unit)
    }

    fn socket(&self) -> String {
        let (limit, trigger) = match self.kubelet {
            Some(_) => ("OnFailure=probeshim-bypass.service\n", ""),
            None => ("", "TriggerLimitIntervalSec=0\n"),
        };
        format!(
            "[Unit]\nDescription=Socket of probeshim for CRI clients\nBefore={kubelet}\n{limit}\n\
             [Socket]\nListenStream={listen}\nSocketMode=0660\nRemoveOnStop=yes\n{trigger}\n\
             [Install]\nWantedBy=sockets.target\n",
            kubelet = self.kubelet_unit(),
            listen = self.listen.as_path().display(),
        )
    }

    fn service(&self) -> String {
        let upstream = self.upstream.map(|upstream| format!(" --upstream {upstream}")).unwrap_or_default();
        let hardening = match self.mode {
            OperatingMode::Observe => OBSERVER_HARDENING,
            OperatingMode::Restart | OperatingMode::Kubelet => "",
        };
        format!(
            "[Unit]\nDescription=CRI proxy between the kubelet and the container runtime\n\
             After=containerd.service crio.service\nBefore={kubelet}\n{limit}\n\
             [Service]\nType=notify\nNotifyAccess=all\nExecStart={program} run{upstream}\nExecReload=/bin/kill -USR2 $MAINPID\n\
             Restart=always\nRestartSec=100ms\nWatchdogSec={WATCHDOG}\nKillMode=mixed\n\
             TimeoutStopSec={stop}s\nLimitNOFILE=1048576\nOOMScoreAdjust=-999\n{HARDENING}{hardening}\n\
             [Install]\nWantedBy=multi-user.target\n",
            kubelet = self.kubelet_unit(),
            limit = self.start_limit(),
            program = Paths::program().display(),
            stop = (self.drain_timeout + STOP_MARGIN).as_secs(),
        )
    }

    fn revert(&self) -> String {
        format!(
            "[Unit]\nDescription=Reverts the kubelet's change of socket unless it is confirmed\n\n\
             [Timer]\nOnActiveSec={}s\nAccuracySec=100ms\nUnit=probeshim-bypass.service\n\n\
             [Install]\nWantedBy=timers.target\n",
            self.confirm_within.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(mode: OperatingMode, kubelet: Option<&KubeletSwitch>) -> Vec<InstalledFile> {
        let upstream = SocketPath::parse("/run/containerd/containerd.sock").unwrap();
        let listen = SocketPath::parse("/run/probeshim/probeshim.sock").unwrap();
        let settings = UnitSettings {
            upstream: Some(&upstream),
            listen: &listen,
            mode,
            drain_timeout: Duration::from_secs(30),
            kubelet,
            confirm_within: Duration::from_secs(60),
        };
        settings.files()
    }

    fn names(files: &[InstalledFile]) -> Vec<&str> {
        files.iter().filter_map(|file| file.path.file_name()?.to_str()).collect()
    }

    #[test]
    fn without_a_kubelet_there_is_no_start_limit_and_no_bypass() {
        let files = units(OperatingMode::Observe, None);
        assert_eq!(names(&files), ["probeshim.socket", "probeshim.service"]);
        assert!(files[1].text.contains("\nStartLimitIntervalSec=0\n"), "{}", files[1].text);
        assert!(files.iter().all(|file| !file.text.contains("OnFailure")), "{files:?}");
    }

    #[test]
    fn with_a_kubelet_the_start_limit_leads_to_the_bypass() {
        let switch = KubeletSwitch::K3s { unit: "k3s.service".to_owned() };
        let files = units(OperatingMode::Observe, Some(&switch));
        assert_eq!(
            names(&files),
            ["probeshim.socket", "probeshim.service", "probeshim-bypass.service", "probeshim-revert.timer"]
        );
        for file in &files[..2] {
            assert!(file.text.contains("\nOnFailure=probeshim-bypass.service\n"), "{}", file.text);
            assert!(file.text.contains("\nBefore=k3s.service\n"), "{}", file.text);
        }
        assert!(files[1].text.contains("StartLimitIntervalSec=60\nStartLimitBurst=5\n"), "{}", files[1].text);
    }

    #[test]
    fn a_service_that_restarts_containers_stays_in_the_mount_namespace_of_the_host() {
        let has_namespace = |mode| {
            let service = units(mode, None)[1].text.clone();
            let separating =
                ["ProtectSystem", "ProtectHome", "ProtectKernel", "PrivateTmp", "ReadWritePaths"];
            separating.iter().any(|directive| service.contains(directive))
        };
        assert!(has_namespace(OperatingMode::Observe));
        assert!(!has_namespace(OperatingMode::Restart));
    }
}
