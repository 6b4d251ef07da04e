//! Writes the units of systemd.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::bypass::{bypass, program};
use super::paths::{InstalledUnit, Paths};
use super::record::InstallRecord;
use super::socket_access::SocketAccess;
use super::switch::{InstalledFile, KubeletSwitch};
use crate::config::OperatingMode;
use crate::hex::hex;
use crate::policy::ExecMode;
use crate::socket::SocketPath;

/// First line of each unit.
pub(super) const HEADER: &str = "# Written by `probeshim install`; `probeshim uninstall` removes it.";

/// Time in which a hung process is ended.
const WATCHDOG: &str = "10s";

/// Time that the service has to stop after its drain.
const STOP_MARGIN: Duration = Duration::from_secs(15);

/// Time that the process has to serve calls after its start.
const START_TIMEOUT: &str = "60s";

/// Time that a hung process has to end after SIGABRT.
const ABORT_TIMEOUT: &str = "10s";

/// Variable of the process with the digest of its unit.
pub(super) const UNIT_VARIABLE: &str = "PROBESHIM_UNIT";

/// File with the time of the last hang.
const HANG_FILE: &str = "/run/probeshim/hang";

/// Time in seconds within which a second hang leads to the bypass.
const HANG_INTERVAL: u64 = 300;

/// Settings from which units are written.
#[derive(Clone, Debug)]
pub(super) struct UnitSettings<'a> {
    /// Socket of the runtime; `None` if the configuration file names it.
    pub(super) upstream: Option<&'a SocketPath>,
    /// Socket on which systemd listens for clients.
    pub(super) listen: &'a SocketPath,
    /// Owner and mode of that socket.
    pub(super) access: SocketAccess,
    /// The control that probeshim has over pods, by the configuration file.
    pub(super) operating_mode: OperatingMode,
    /// Way in which probeshim executes ExecSyncs, by the configuration file.
    pub(super) exec_mode: ExecMode,
    /// Time that calls in flight have to finish.
    pub(super) drain_timeout: Duration,
    /// The change of the kubelet, if it is switched.
    pub(super) kubelet: Option<&'a KubeletSwitch>,
    /// Time after which an unconfirmed change is reverted.
    pub(super) confirm_within: Duration,
    /// Record of the installation.
    pub(super) record: &'a InstallRecord,
}

/// Hardening that needs no mount namespace. Restarts and mounts of volumes work with it. With
/// direct exec, processes in containers would inherit it: each directive is a seccomp filter or a
/// flag that the runtime's own processes do not have.
const HARDENING: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
SystemCallArchitectures=native
";

/// Hardening of a probeshim that mounts nothing. It gives the service a mount namespace.
const OBSERVER_HARDENING: &str = "\
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_KILL CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SYS_PTRACE CAP_SYS_RESOURCE
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
        Some(format!("{HEADER}\n{text}"))
    }

    /// Returns the digest of the directives that take effect only when systemd starts the process.
    /// systemd applies all others as soon as it reads the unit.
    pub(super) fn digest(&self) -> String {
        hex(&Sha256::digest(self.process())[..8])
    }

    /// Returns directives for the section `[Unit]` that bound restarts. At the limit the kubelet is
    /// pointed back at the runtime. Without a kubelet there is no limit: it would only end the
    /// service for good.
    ///
    /// systemd counts starts. After a fifth crash within a minute, four of them have happened.
    fn start_limit(&self) -> &'static str {
        match self.kubelet {
            Some(_) => "StartLimitIntervalSec=60\nStartLimitBurst=4\nOnFailure=probeshim-bypass.service\n",
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
             [Socket]\nListenStream={listen}\n{access}RemoveOnStop=yes\n{trigger}\n\
             [Install]\nWantedBy=sockets.target\n",
            kubelet = self.kubelet_unit(),
            listen = self.listen.as_path().display(),
            access = self.access.directives(),
        )
    }

    fn service(&self) -> String {
        format!(
            "[Unit]\nDescription=CRI proxy between the kubelet and the container runtime\n\
             After=containerd.service crio.service\nBefore={kubelet}\n{limit}\n\
             [Service]\n{process}Environment={UNIT_VARIABLE}={digest}\n{supervision}\n\
             [Install]\nWantedBy=multi-user.target\n\n\
             # The record of the installation. `probeshim` rebuilds a lost one from it.\n{record}",
            record = self.record.unit_section(),
            kubelet = self.kubelet_unit(),
            limit = self.start_limit(),
            process = self.process(),
            digest = self.digest(),
            supervision = self.supervision(),
        )
    }

    /// Returns the directives by which systemd starts the process. A successor inherits them from
    /// its predecessor.
    fn process(&self) -> String {
        let upstream = self.upstream.map(|upstream| format!(" --upstream {upstream}")).unwrap_or_default();
        let hardening = match (self.exec_mode, self.operating_mode) {
            (ExecMode::Direct | ExecMode::DirectAll, _) => String::new(),
            (ExecMode::Runtime, OperatingMode::Observe) => format!("{HARDENING}{OBSERVER_HARDENING}"),
            (ExecMode::Runtime, OperatingMode::Restart | OperatingMode::Kubelet) => HARDENING.to_owned(),
        };
        format!(
            "Type=notify\nNotifyAccess=all\nExecStart={program} run{upstream}\nWatchdogSec={WATCHDOG}\n\
             LimitNOFILE=1048576\nOOMScoreAdjust=-999\n{hardening}",
            program = Paths::program().display(),
        )
    }

    /// Returns the directives by which systemd replaces, restarts and ends the process.
    fn supervision(&self) -> String {
        let on_hang = match self.kubelet {
            Some(_) => {
                let bypass = format!("{} --no-block start probeshim-bypass.service", program("systemctl"));
                let script = on_second_hang(HANG_FILE, &bypass).replace('$', "$$").replace('%', "%%");
                format!("ExecStopPost=-/bin/sh -c '{script}'\n")
            }
            None => String::new(),
        };
        format!(
            "ExecReload=/bin/kill -USR2 $MAINPID\nRestart=always\nRestartSec=100ms\nKillMode=mixed\n\
             TimeoutStartSec={START_TIMEOUT}\nTimeoutStartFailureMode=kill\nTimeoutAbortSec={ABORT_TIMEOUT}\n\
             TimeoutStopSec={stop}s\n{on_hang}",
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

/// Returns a script that runs a command at the second hang within [`HANG_INTERVAL`].
///
/// A start limit of a minute does not count hangs: systemd needs ten seconds or more to find one.
/// The script runs after each end of the process. It needs no probeshim, and has no single quotes.
fn on_second_hang(file: &str, command: &str) -> String {
    format!(
        "case $SERVICE_RESULT in watchdog|timeout) ;; *) exit 0 ;; esac; last=; read -r last 2>/dev/null <{file}; \
         read -r now rest </proc/uptime; now=${{now%.*}}; \
         if [ -z \"$last\" ] || [ $((now - last)) -ge {HANG_INTERVAL} ]; then echo $now >{file}; \
         else rm -f {file}; exec {command}; fi"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn units(operating_mode: OperatingMode, kubelet: Option<&KubeletSwitch>) -> Vec<InstalledFile> {
        let upstream = SocketPath::parse("/run/containerd/containerd.sock").unwrap();
        let listen = SocketPath::parse("/run/probeshim/probeshim.sock").unwrap();
        let settings = UnitSettings {
            upstream: Some(&upstream),
            listen: &listen,
            access: SocketAccess::ROOT,
            operating_mode,
            exec_mode: ExecMode::Runtime,
            drain_timeout: Duration::from_secs(30),
            kubelet,
            confirm_within: Duration::from_secs(60),
            record: &InstallRecord::new(&listen),
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
        assert!(files[1].text.contains("StartLimitIntervalSec=60\nStartLimitBurst=4\n"), "{}", files[1].text);
        let is_hang_counted = |files: &[InstalledFile]| {
            files[1].text.contains("\nExecStopPost=-/bin/sh -c 'case $$SERVICE_RESULT in")
        };
        assert!(is_hang_counted(&files) && !is_hang_counted(&units(OperatingMode::Observe, None)));
    }

    #[test]
    fn the_second_hang_within_some_minutes_leads_to_the_bypass() {
        let dir = tempfile::tempdir().unwrap();
        let [file, bypassed] = ["hang", "bypassed"].map(|name| dir.path().join(name));
        let script = on_second_hang(file.to_str().unwrap(), &format!("touch {}", bypassed.display()));
        let ends_with = |result: &str| {
            let mut command = Command::new("sh");
            let status = command.args(["-c", &script]).env("SERVICE_RESULT", result).status().unwrap();
            assert!(status.success(), "{result}: {script}");
            std::fs::remove_file(&bypassed).is_ok()
        };
        // Crashes are not hangs.
        assert!(!ends_with("signal") && !ends_with("exit-code") && !ends_with("success"));
        assert!(!ends_with("watchdog"), "the first hang");
        assert!(!ends_with("signal"), "a crash after a hang");
        assert!(ends_with("timeout"), "the second hang");
        assert!(!ends_with("watchdog"), "the first hang after a bypass");
        // A hang long ago does not count.
        std::fs::write(&file, "-1000000\n").unwrap();
        assert!(!ends_with("watchdog"));
        assert!(ends_with("watchdog"));
    }

    #[test]
    fn the_digest_changes_only_with_directives_that_need_another_start() {
        let (upstream, listen) =
            (SocketPath::parse("/a.sock").unwrap(), SocketPath::parse("/b.sock").unwrap());
        let settings = UnitSettings {
            upstream: Some(&upstream),
            listen: &listen,
            access: SocketAccess::ROOT,
            operating_mode: OperatingMode::Observe,
            exec_mode: ExecMode::Runtime,
            drain_timeout: Duration::from_secs(30),
            kubelet: None,
            confirm_within: Duration::from_secs(60),
            record: &InstallRecord::new(&listen),
        };
        let switch = KubeletSwitch::K3s { unit: "k3s.service".to_owned() };
        let supervised =
            UnitSettings { drain_timeout: Duration::ZERO, kubelet: Some(&switch), ..settings.clone() };
        assert_ne!(supervised.service(), settings.service());
        assert_eq!(supervised.digest(), settings.digest());
        let restarting = UnitSettings { operating_mode: OperatingMode::Restart, ..settings.clone() };
        let another = UnitSettings { upstream: Some(&listen), ..settings.clone() };
        let direct = UnitSettings { exec_mode: ExecMode::Direct, ..settings.clone() };
        for directive in ["NoNewPrivileges", "Restrict", "Protect", "CapabilityBoundingSet", "SystemCall"] {
            assert!(settings.service().contains(directive), "{directive}");
            assert!(!direct.service().contains(directive), "{directive}: {}", direct.service());
        }
        for other in [restarting, another, direct] {
            assert_ne!(other.digest(), settings.digest());
            let line = format!("\nEnvironment={UNIT_VARIABLE}={}\n", other.digest());
            assert!(other.service().contains(&line), "{}", other.service());
        }
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
