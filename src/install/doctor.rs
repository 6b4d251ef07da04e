//! Diagnoses a node: what an installation would need, and whether an installation is complete.

use super::InstallError;
use super::confirm::{Confirmation, switch_state};
use super::files::has_content;
use super::finding::Finding;
use super::node::NodeKubelet;
use super::paths::{InstalledUnit, Paths};
use super::plan::{explicit_upstream, listen_for, service_settings};
use super::preflight::node_findings;
use super::record::{InstallRecord, KubeletRecord};
use super::socket_access::SocketAccess;
use super::switch::KubeletSwitch;
use super::systemctl::{ServiceManager, property};
use super::units::UnitSettings;
use crate::socket::SocketPath;

/// Time for the confirmation in the units that are compared. It is part of the timer only, which is
/// not compared.
const ANY_TIME: std::time::Duration = std::time::Duration::from_secs(60);

/// Checks the node, and the installation if there is one.
pub async fn diagnose(paths: &Paths, manager: &dyn ServiceManager) -> Result<Vec<Finding>, InstallError> {
    let record = InstallRecord::read(paths)?;
    let kubelet = NodeKubelet::find(paths, manager);
    let of_node = kubelet.as_ref().ok().and_then(Option::as_ref).filter(|_| {
        // An installation without the kubelet has the runtime of the configuration.
        record.as_ref().is_none_or(|record| record.kubelet.is_some())
    });
    let explicit = explicit_upstream(None, of_node, record.as_ref())?;
    let settings = service_settings(paths, explicit.clone())?.shim;
    let upstream = settings.relay.upstream;
    let listen = listen_for(&upstream);
    let mut findings = node_findings(paths, manager, &upstream, &listen).await;
    match &kubelet {
        Ok(Some(kubelet)) => findings.extend(kubelet.findings(&listen)),
        Ok(None) => findings.push(Finding::ok("kubelet", "this node has none")),
        Err(error) => findings.push(Finding::warning("kubelet", error.to_string(), KUBELET_REMEDY)),
    }
    let Some(record) = record else {
        findings.push(Finding::ok("installation", "probeshim is not installed as a service"));
        return Ok(findings);
    };
    findings.push(program(paths));
    let switch = record.kubelet.as_ref().map(|kubelet| &kubelet.switch);
    let units = UnitSettings {
        upstream: explicit.as_ref(),
        listen: &listen,
        access: SocketAccess::of_socket(paths, &upstream).unwrap_or(SocketAccess::ROOT).with_names(paths),
        mode: settings.role,
        drain_timeout: settings.relay.drain_timeout,
        kubelet: switch,
        confirm_within: ANY_TIME,
    };
    findings.push(unit_files(paths, &units));
    for unit in [InstalledUnit::Socket, InstalledUnit::Service] {
        findings.push(unit_state(manager, unit));
    }
    if let Some(recorded) = &record.kubelet {
        let kubelet = kubelet.ok().flatten();
        findings.extend(kubelet.as_ref().and_then(|kubelet| changed(&recorded.switch, &kubelet.switch)));
        findings.push(change(paths, recorded, kubelet.as_ref(), &listen)?);
    }
    Ok(findings)
}

const KUBELET_REMEDY: &str = "`probeshim install` works without the kubelet; `install --kubelet` does not";
const REINSTALL: &str = "run: probeshim install";
const REINSTALL_KUBELET: &str = "run: probeshim install --kubelet";

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

fn unit_state(manager: &dyn ServiceManager, unit: InstalledUnit) -> Finding {
    let (check, name) = match unit {
        InstalledUnit::Socket => ("socket unit", unit.name()),
        _ => ("service unit", unit.name()),
    };
    match property(manager, name, "ActiveState") {
        Ok(state) if state == "active" => Finding::ok(check, format!("{name} is active")),
        Ok(state) => Finding::failed(
            check,
            format!("{name} is {state}"),
            format!("see why: journalctl --unit {name}; then {REINSTALL}"),
        ),
        Err(error) => Finding::failed(check, error.to_string(), REINSTALL),
    }
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

/// Returns the state of the change of the kubelet.
fn change(
    paths: &Paths,
    recorded: &KubeletRecord,
    kubelet: Option<&NodeKubelet>,
    listen: &SocketPath,
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
        (Some(Confirmation::Awaited), _) => Finding::warning(
            CHECK,
            "the change is not confirmed: it is reverted after its time, or after the next start of the node",
            "keep it: probeshim confirm",
        ),
        (Some(Confirmation::Reverted) | None, _) => Finding::failed(
            CHECK,
            format!(
                "{unit} was pointed back at the runtime: not confirmed in time, or probeshim crashed repeatedly"
            ),
            format!("see why: journalctl --unit probeshim; then {REINSTALL_KUBELET}"),
        ),
    })
}
