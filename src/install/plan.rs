//! Plans an installation: everything that is decided before the first change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::InstallError;
use super::by_hand;
use super::files::has_content;
use super::finding::Finding;
use super::kubeconfig::{KubeconfigSetting, service_enforcement};
use super::lock::InstallLock;
use super::node::{NodeKubelet, reload_changed_unit};
use super::paths::{InstalledUnit, Paths};
use super::preflight::{bypass_finding, node_findings};
use super::record::{InstallRecord, KubeletRecord};
use super::socket_access::SocketAccess;
use super::switch::{InstalledFile, KubeletSwitch};
use super::systemctl::ServiceManager;
use super::units::UnitSettings;
use crate::config::{Environment, Flags, OperatingMode, Settings};
use crate::policy::ExecMode;
use crate::regular_file;
use crate::socket::SocketPath;

/// End of the path by which the kubelet recognises CRI-O
/// (`pkg/kubelet/cadvisor/helpers_linux.go`, `CrioSocketSuffix`).
const CRIO_SUFFIX: &str = "run/crio/crio.sock";

/// Largest program that is compared with an installed one.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Choices of the user.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// Socket of the runtime; `None` for that of the configuration file or the kubelet.
    pub upstream: Option<SocketPath>,
    /// Whether the kubelet is pointed at probeshim.
    pub kubelet: bool,
    /// Time after which an unconfirmed change of the kubelet is reverted.
    pub confirm_within: Duration,
    /// Whether the plan is only shown.
    pub dry_run: bool,
}

/// A planned installation.
#[derive(Debug)]
pub struct InstallPlan {
    /// Program that is installed.
    pub(super) program: PathBuf,
    /// Whether the installed program is another one, or missing.
    pub(super) program_changes: bool,
    /// Socket of the runtime, unless the configuration file names it.
    pub(super) explicit_upstream: Option<SocketPath>,
    /// Socket of the runtime.
    pub(super) upstream: SocketPath,
    /// Socket on which systemd listens.
    pub(super) listen: SocketPath,
    /// Owner and mode of that socket.
    pub(super) access: SocketAccess,
    /// The admin socket.
    pub(super) admin: SocketPath,
    pub(super) operating_mode: OperatingMode,
    pub(super) exec_mode: ExecMode,
    pub(super) drain_timeout: Duration,
    /// The kubelet to switch.
    pub(super) kubelet: Option<NodeKubelet>,
    /// The kubeconfig of that kubelet in the configuration file; `None` if it has none.
    pub(super) kubeconfig: Option<KubeconfigSetting>,
    /// Record of an earlier installation.
    pub(super) earlier: Option<InstallRecord>,
    /// Record of this installation. Until the sockets are exchanged, the written one has the socket
    /// of the earlier installation.
    pub(super) record: InstallRecord,
    pub(super) confirm_within: Duration,
    findings: Vec<Finding>,
    /// Excludes changes by other processes until the plan is made; `None` in a dry run.
    _lock: Option<InstallLock>,
}

impl InstallPlan {
    /// Examines the node, and plans the installation of `program`. Changes no file.
    pub async fn new(
        options: InstallOptions,
        program: PathBuf,
        paths: &Paths,
        manager: &dyn ServiceManager,
    ) -> Result<Self, InstallError> {
        let lock = if options.dry_run { None } else { Some(InstallLock::acquire(paths)?) };
        let earlier = InstallRecord::read(paths)?;
        if options.kubelet && !options.dry_run {
            reload_changed_unit(manager)?;
        }
        let kubelet = if options.kubelet {
            let Some(kubelet) = NodeKubelet::find(paths, manager)? else {
                let by_hand = by_hand::instructions(manager)?;
                return Err(by_hand.map_or(InstallError::NoKubelet, InstallError::ByHand));
            };
            Some(kubelet)
        } else {
            None
        };
        let explicit_upstream = explicit_upstream(options.upstream, kubelet.as_ref(), earlier.as_ref())?;
        let settings = service_settings(paths, explicit_upstream.clone())?.shim;
        let upstream = settings.relay.upstream;
        let listen = listen_for(&upstream);
        check_upstream(&upstream, &listen, earlier.as_ref())?;
        if let Some(record) = earlier.as_ref().filter(|_| !options.kubelet) {
            check_socket(paths, record, &listen)?;
        }
        let mut findings = node_findings(paths, manager, &upstream, &listen).await;
        if let Some(kubelet) = &kubelet {
            findings.extend(kubelet.findings(&listen));
            findings.extend(bypass_finding(manager));
        }
        let enforcement = service_enforcement(manager, settings.enforcement.mode);
        let kubeconfig =
            kubelet.as_ref().and_then(|kubelet| KubeconfigSetting::find(kubelet, paths, enforcement));
        findings.extend(kubeconfig.as_ref().map(KubeconfigSetting::finding));
        let program_changes = program_changes(&program, paths, earlier.as_ref())?;
        let plan = Self {
            program,
            program_changes,
            explicit_upstream,
            access: SocketAccess::of_socket(paths, &upstream).unwrap_or(SocketAccess::ROOT).with_names(paths),
            upstream,
            admin: settings.admin,
            operating_mode: settings.operating_mode,
            exec_mode: settings.policies.exec.direct.mode,
            drain_timeout: settings.relay.drain_timeout,
            kubelet,
            kubeconfig,
            record: earlier.clone().unwrap_or_else(|| InstallRecord::new(&listen)),
            earlier,
            listen,
            confirm_within: options.confirm_within,
            findings,
            _lock: lock,
        };
        Ok(plan.with_record(paths))
    }

    /// Completes the record: it undoes what the installation is going to change.
    fn with_record(mut self, paths: &Paths) -> Self {
        let mut record = self.record.clone();
        record.listen = self.listen.to_string();
        record.upstream = self.explicit_upstream.as_ref().map(ToString::to_string);
        record.owns_program |= !paths.at(Paths::program()).exists();
        let units = InstalledUnit::ALL.map(Paths::unit).into_iter();
        let files = units.chain(self.kubelet_files().into_iter().map(|file| file.path));
        let config = self.kubeconfig.as_ref().and_then(|setting| Some(setting.file()?.0.path));
        for path in files.chain(config).chain([Paths::program(), Paths::record()].map(Path::to_owned)) {
            record.add_dirs(paths, &path);
        }
        if let Some(kubeconfig) = self.kubeconfig.as_ref().and_then(KubeconfigSetting::written) {
            record.kubeconfig = Some(kubeconfig.to_owned());
        }
        if let Some(addition) = self.kubeconfig.as_ref().and_then(KubeconfigSetting::addition) {
            record.addition = Some(addition.to_owned());
        }
        if let Some(kubelet) = &self.kubelet {
            let switch = kubelet.switch.clone();
            let is_same = |known: KubeletRecord| known.confirmed && known.switch == switch;
            let confirmed = !self.socket_changes() && record.kubelet.is_some_and(is_same);
            record.kubelet = Some(KubeletRecord { switch, confirmed, reverted: false });
        }
        self.record = record;
        self
    }

    /// Returns the results of all checks.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns whether a check failed, so that nothing must be changed.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        Finding::any_failed(&self.findings)
    }

    /// Returns the change of the kubelet: the planned one, or that of an earlier installation.
    pub(super) fn switch(&self) -> Option<&KubeletSwitch> {
        let earlier = || Some(&self.earlier.as_ref()?.kubelet.as_ref()?.switch);
        self.kubelet.as_ref().map(|kubelet| &kubelet.switch).or_else(earlier)
    }

    /// Returns whether probeshim gets another socket than that of an earlier installation.
    pub(super) fn socket_changes(&self) -> bool {
        self.earlier.as_ref().is_some_and(|record| record.listen != self.listen.to_string())
    }

    /// Returns the settings of the units.
    pub(super) fn unit_settings(&self) -> UnitSettings<'_> {
        UnitSettings {
            upstream: self.explicit_upstream.as_ref(),
            listen: &self.listen,
            access: self.access,
            operating_mode: self.operating_mode,
            exec_mode: self.exec_mode,
            drain_timeout: self.drain_timeout,
            kubelet: self.switch(),
            confirm_within: self.confirm_within,
            record: &self.record,
        }
    }

    /// Returns the units.
    pub(super) fn units(&self) -> Vec<InstalledFile> {
        self.unit_settings().files()
    }

    /// Returns the files that switch the kubelet; none if it is not to be switched.
    pub(super) fn kubelet_files(&self) -> Vec<InstalledFile> {
        self.kubelet.as_ref().map(|kubelet| kubelet.switch.files(&self.listen)).unwrap_or_default()
    }
}

/// Returns whether the installed program is another one than `program`, or missing. Fails if the
/// installation may not replace it.
fn program_changes(
    program: &Path,
    paths: &Paths,
    record: Option<&InstallRecord>,
) -> Result<bool, InstallError> {
    let installed = paths.at(Paths::program());
    let wanted = regular_file::read(program, MAX_PROGRAM_BYTES);
    let wanted = wanted.map_err(InstallError::file("read", program))?;
    if has_content(&installed, &wanted) {
        return Ok(false);
    }
    match record {
        _ if !installed.exists() => Ok(true),
        Some(record) if record.owns_program => Ok(true),
        Some(_) => Err(InstallError::ForeignProgram(Paths::program().to_owned())),
        None => Err(InstallError::OtherProgram(Paths::program().to_owned())),
    }
}

/// Fails if the kubelet uses another socket of probeshim than `listen`. That socket would be
/// removed under the kubelet.
fn check_socket(paths: &Paths, record: &InstallRecord, listen: &SocketPath) -> Result<(), InstallError> {
    let Some(kubelet) = &record.kubelet else { return Ok(()) };
    if record.listen == listen.to_string() || !paths.at(kubelet.switch.effective_file()).exists() {
        return Ok(());
    }
    Err(InstallError::KubeletUsesSocket { now: record.listen.clone(), planned: listen.to_string() })
}

/// Fails if the socket of the runtime is one of probeshim itself: that for this runtime, or that of
/// an earlier installation.
pub(super) fn check_upstream(
    upstream: &SocketPath,
    listen: &SocketPath,
    record: Option<&InstallRecord>,
) -> Result<(), InstallError> {
    let recorded = record.and_then(|record| SocketPath::parse(&record.listen).ok());
    if upstream.is_same_as(listen) || recorded.is_some_and(|recorded| upstream.is_same_as(&recorded)) {
        return Err(InstallError::OwnSocket(upstream.to_string()));
    }
    Ok(())
}

/// Returns the socket of the runtime that the unit passes to probeshim: that of the flag, of the
/// kubelet, or of an earlier installation.
pub(super) fn explicit_upstream(
    flag: Option<SocketPath>,
    kubelet: Option<&NodeKubelet>,
    record: Option<&InstallRecord>,
) -> Result<Option<SocketPath>, InstallError> {
    if flag.is_some() {
        return Ok(flag);
    }
    let recorded = record.and_then(|record| record.upstream.as_deref());
    let socket = |text: &str| SocketPath::parse(text).ok();
    let listen = record.and_then(|record| socket(&record.listen));
    let is_ours = |endpoint: &str| {
        listen.as_ref().zip(socket(endpoint)).is_some_and(|(listen, endpoint)| listen.is_same_as(&endpoint))
    };
    let of_kubelet = kubelet.map(|kubelet| &*kubelet.config.endpoint).filter(|endpoint| !is_ours(endpoint));
    let Some(endpoint) = of_kubelet.or(recorded) else { return Ok(None) };
    SocketPath::parse(endpoint)
        .map(Some)
        .map_err(|error| InstallError::Endpoint { endpoint: endpoint.to_owned(), reason: error.to_string() })
}

/// Returns the settings that the service has: those of the configuration file, without the
/// variables of the user's shell.
pub(super) fn service_settings(
    paths: &Paths,
    upstream: Option<SocketPath>,
) -> Result<Settings, InstallError> {
    let environment = Environment {
        config_home: paths.at("/etc"),
        is_activated: true,
        runtime_endpoint: None,
        state_dir_variable: None,
        ..Environment::detect()
    };
    Ok(Settings::new(&Flags { upstream, ..Flags::default() }, &environment)?)
}

/// Returns the socket on which probeshim listens for a runtime.
pub(super) fn listen_for(upstream: &SocketPath) -> SocketPath {
    let dir = Path::new("/run/probeshim");
    let path = if upstream.as_path().ends_with(CRIO_SUFFIX) {
        dir.join(CRIO_SUFFIX)
    } else {
        dir.join("probeshim.sock")
    };
    // Both paths are short and absolute.
    SocketPath::new(&path).unwrap_or_else(|_| upstream.clone())
}
