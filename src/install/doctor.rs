//! Diagnoses a node: what an installation would need, and whether an installation is complete.

use std::path::PathBuf;
use std::time::Duration;

use super::InstallError;
use super::confirm::{Confirmation, has_timer, switch_state};
use super::files::has_content;
use super::finding::{Finding, REINSTALL};
use super::node::NodeKubelet;
use super::paths::{InstalledUnit, Paths};
use super::plan::{check_upstream, explicit_upstream, listen_for, service_settings};
use super::preflight::node_findings;
use super::record::{InstallRecord, KubeletRecord};
use super::service_findings::{running_names, service_findings};
use super::socket_access::SocketAccess;
use super::switch::KubeletSwitch;
use super::systemctl::ServiceManager;
use super::uninstall::installed_files;
use super::units::{HEADER, UnitSettings};
use crate::config::ServerConfig;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::socket::SocketPath;

/// Time for the confirmation in the units that are compared. It is part of the timer only, which is
/// not compared.
const ANY_TIME: Duration = Duration::from_secs(60);

const UNINSTALL: &str = "run: probeshim uninstall; then install it again";
const REINSTALL_KUBELET: &str = "run: probeshim install --kubelet";
const KUBELET_REMEDY: &str = "`probeshim install` works without the kubelet; `install --kubelet` does not";
const CONFIG_REMEDY: &str = "correct the configuration; then run: probeshim install";

/// Checks the node, and the installation if there is one.
pub async fn diagnose(paths: &Paths, manager: &dyn ServiceManager) -> Result<Vec<Finding>, InstallError> {
    let record = InstallRecord::read(paths)?;
    let kubelet = NodeKubelet::find(paths, manager);
    let of_node = kubelet.as_ref().ok().and_then(Option::as_ref).filter(|_| {
        // An installation without the kubelet has the runtime of the configuration.
        record.as_ref().is_none_or(|record| record.kubelet.is_some())
    });
    let mut findings = Vec::new();
    let config = match ServiceConfig::read(paths, of_node, record.as_ref()) {
        Ok(config) => {
            findings.extend(node_findings(paths, manager, config.upstream(), &config.listen).await);
            Some(config)
        }
        // Nothing but the kubelet's endpoint is left of an installation.
        Err(InstallError::OwnSocket(socket)) => {
            let detail = format!("the kubelet uses {socket} of probeshim, whose runtime is not known");
            findings.push(Finding::failed("runtime", detail, UNINSTALL));
            None
        }
        // It is the most frequent reason why a service does not start.
        Err(error) => {
            findings.push(Finding::failed("configuration", error.to_string(), CONFIG_REMEDY));
            None
        }
    };
    // An installation has recorded its socket.
    let recorded = record.as_ref().and_then(|record| SocketPath::parse(&record.listen).ok());
    let listen = config.as_ref().map(|config| config.listen.clone()).or(recorded);
    match (&kubelet, &listen) {
        (Ok(Some(kubelet)), Some(listen)) => findings.extend(kubelet.findings(listen)),
        (Ok(Some(_)), None) => {}
        (Ok(None), _) => findings.push(Finding::ok("kubelet", "this node has none")),
        (Err(error), _) => findings.push(Finding::warning("kubelet", error.to_string(), KUBELET_REMEDY)),
    }
    let Some(record) = record else {
        if let Some(config) = &config {
            findings.extend(running_names(&config.server.admin).await);
        }
        findings.push(not_installed(paths));
        return Ok(findings);
    };
    if record.is_rebuilt {
        let detail = format!("{} is lost; the unit of the service has a copy", Paths::record().display());
        findings.push(Finding::warning("record", detail, REINSTALL));
    }
    findings.push(program(paths));
    if let Some(config) = &config {
        let units = config.unit_settings(paths, &record);
        findings.push(unit_files(paths, &units));
        findings.extend(service_findings(paths, manager, &config.server, &units).await?);
    }
    if let Some((recorded, listen)) = record.kubelet.as_ref().zip(listen) {
        let kubelet = kubelet.ok().flatten();
        findings.extend(kubelet.as_ref().and_then(|kubelet| changed(&recorded.switch, &kubelet.switch)));
        let has_timer = has_timer(manager)?;
        findings.push(endpoint(paths, recorded, kubelet.as_ref(), &listen, (has_timer, record.is_rebuilt))?);
    }
    Ok(findings)
}

/// The configuration that the service has.
struct ServiceConfig {
    server: ServerConfig,
    /// Socket of the runtime; `None` if the configuration file names it.
    explicit_upstream: Option<SocketPath>,
    /// Socket on which systemd listens.
    listen: SocketPath,
}

impl ServiceConfig {
    fn read(
        paths: &Paths,
        kubelet: Option<&NodeKubelet>,
        record: Option<&InstallRecord>,
    ) -> Result<Self, InstallError> {
        let explicit_upstream = explicit_upstream(None, kubelet, record)?;
        let server = service_settings(paths, explicit_upstream.clone())?.shim;
        let listen = listen_for(&server.relay.upstream);
        check_upstream(&server.relay.upstream, &listen, record)?;
        Ok(Self { server, explicit_upstream, listen })
    }

    fn upstream(&self) -> &SocketPath {
        &self.server.relay.upstream
    }

    /// Returns the settings of the units that this program writes.
    fn unit_settings<'a>(&'a self, paths: &Paths, record: &'a InstallRecord) -> UnitSettings<'a> {
        let access = SocketAccess::of_socket(paths, self.upstream());
        // The runtime may have stopped. The socket of probeshim still has the access of its socket.
        let access = access.or_else(|| SocketAccess::of_socket(paths, &self.listen));
        UnitSettings {
            upstream: self.explicit_upstream.as_ref(),
            listen: &self.listen,
            access: access.unwrap_or(SocketAccess::ROOT).with_names(paths),
            operating_mode: self.server.operating_mode,
            exec_mode: self.server.policies.exec.direct.mode,
            drain_timeout: self.server.relay.drain_timeout,
            kubelet: record.kubelet.as_ref().map(|kubelet| &kubelet.switch),
            confirm_within: ANY_TIME,
            record,
        }
    }
}

/// Reports that there is no installation, or parts of one without a record.
fn not_installed(paths: &Paths) -> Finding {
    const CHECK: &str = "installation";
    let units = InstalledUnit::ALL.map(Paths::unit);
    // An administrator may have written a unit with this name.
    let is_ours = |path: &PathBuf| {
        !units.contains(path)
            || read_to_string(&paths.at(path), MAX_SMALL_FILE_BYTES)
                .is_ok_and(|text| text.starts_with(HEADER))
    };
    let parts: Vec<PathBuf> = installed_files(paths).into_iter().filter(is_ours).collect();
    if parts.is_empty() {
        return Finding::ok(CHECK, "probeshim is not installed as a service");
    }
    let parts: Vec<String> = parts.iter().map(|path| path.display().to_string()).collect();
    let detail = format!("parts of an installation are there without its record: {}", parts.join(", "));
    Finding::failed(CHECK, detail, UNINSTALL)
}

fn program(paths: &Paths) -> Finding {
    let path = Paths::program().display();
    if paths.at(Paths::program()).exists() {
        Finding::ok("program", path.to_string())
    } else {
        Finding::failed("program", format!("{path} is missing"), "run `probeshim install` from another copy")
    }
}

/// Compares the units with those that this program writes. The timer exists only for a confirmation
/// of a certain time.
fn unit_files(paths: &Paths, settings: &UnitSettings<'_>) -> Finding {
    const CHECK: &str = "units";
    let timer = Paths::unit(InstalledUnit::Revert);
    let files = settings.files();
    let differing = files.iter().filter(|file| file.path != timer);
    let differing = differing.filter(|file| !has_content(&paths.at(&file.path), file.text.as_bytes()));
    let names: Vec<String> = differing.map(|file| file.path.display().to_string()).collect();
    if names.is_empty() {
        return Finding::ok(CHECK, "as this program writes them");
    }
    let detail =
        format!("missing, or not as this program and its configuration write them: {}", names.join(", "));
    Finding::warning(CHECK, detail, REINSTALL)
}

/// Compares the kubelet's own command line with that of the time of the installation. An upgrade
/// may have changed it.
fn changed(recorded: &KubeletSwitch, now: &KubeletSwitch) -> Option<Finding> {
    (recorded != now).then(|| {
        let unit = now.unit();
        let detail = match (recorded, now) {
            (
                KubeletSwitch::ExtraArgs { previous: old, .. },
                KubeletSwitch::ExtraArgs { previous: new, .. },
            ) => format!("KUBELET_EXTRA_ARGS of {unit} was {old:?}, and is {new:?} now"),
            (
                KubeletSwitch::ExecStart { previous: old, .. },
                KubeletSwitch::ExecStart { previous: new, .. },
            ) => format!("ExecStart= of {unit} was {old:?}, and is {new:?} now"),
            _ => format!("the layout was: {}; it is now: {}", recorded.layout(), now.layout()),
        };
        Finding::warning(
            "kubelet flags",
            detail,
            format!("the kubelet has the old value; {REINSTALL_KUBELET}"),
        )
    })
}

/// Returns whether the kubelet uses probeshim, as the installation has configured it.
fn endpoint(
    paths: &Paths,
    recorded: &KubeletRecord,
    kubelet: Option<&NodeKubelet>,
    listen: &SocketPath,
    (has_timer, is_rebuilt): (bool, bool),
) -> Result<Finding, InstallError> {
    const CHECK: &str = "kubelet endpoint";
    let uses = kubelet.and_then(|kubelet| kubelet.uses(listen));
    let unit = recorded.switch.unit();
    Ok(match (switch_state(paths)?, uses) {
        (Some(Confirmation::Confirmed), Some(true)) => Finding::ok(CHECK, format!("{unit} uses probeshim")),
        (Some(Confirmation::Confirmed), None) => {
            Finding::ok(CHECK, format!("{unit} is configured to use probeshim"))
        }
        (Some(Confirmation::Confirmed), Some(false)) => Finding::failed(
            CHECK,
            format!("{unit} is configured to use probeshim, but runs with another socket"),
            format!("a flag after ours has precedence, or it was not restarted; {REINSTALL_KUBELET}"),
        ),
        (Some(Confirmation::Awaited), _) if !has_timer => Finding::warning(
            CHECK,
            "the change is not confirmed, and no timer runs that reverts it",
            "keep it: probeshim confirm; or undo it: probeshim uninstall",
        ),
        (Some(Confirmation::Awaited), _) => Finding::warning(
            CHECK,
            "the change is not confirmed: it is reverted after its time, or after the next start of the node",
            "keep it: probeshim confirm",
        ),
        (Some(Confirmation::Reverted) | None, _) if recorded.reverted => Finding::ok(
            CHECK,
            format!(
                "{unit} uses the runtime's own socket: `install` reverted the change after a failed check or Ctrl-C"
            ),
        ),
        (Some(Confirmation::Reverted) | None, _) if is_rebuilt => Finding::failed(
            CHECK,
            format!("{unit} uses the runtime's own socket; the record that has the reason is lost"),
            REINSTALL_KUBELET,
        ),
        (Some(Confirmation::Reverted) | None, _) => Finding::failed(
            CHECK,
            format!(
                "{unit} was pointed back at the runtime: {}probeshim crashed or hung repeatedly",
                if recorded.confirmed { "" } else { "not confirmed in time, or " }
            ),
            format!("see why: journalctl --unit probeshim; then {REINSTALL_KUBELET}"),
        ),
    })
}
