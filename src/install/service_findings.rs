//! Checks of the installed service: its units, its process, its socket and a call.

use std::time::Duration;

use tokio::time::timeout;

use super::InstallError;
use super::checks::runtime_version;
use super::finding::{Finding, REINSTALL};
use super::paths::{InstalledUnit, Paths};
use super::running_service::RunningService;
use super::socket_access::SocketAccess;
use super::systemctl::{ServiceManager, property};
use super::units::UnitSettings;
use crate::admin::Client;
use crate::admin::api::{ProbeNames, Status};
use crate::config::ServerConfig;
use crate::socket::SocketPath;

/// Time in which a call through probeshim has to be answered.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

const NAMES_REMEDY: &str = "see docs/guides/execsync.md";
const LOG_REMEDY: &str = "see the log: journalctl --unit probeshim";

/// Returns findings about the installed service.
pub(super) async fn service_findings(
    paths: &Paths,
    manager: &dyn ServiceManager,
    config: &ServerConfig,
    units: &UnitSettings<'_>,
) -> Result<Vec<Finding>, InstallError> {
    let units_of_socket = [InstalledUnit::Socket, InstalledUnit::Service];
    let mut findings = units_of_socket.map(|unit| unit_state(manager, unit)).to_vec();
    if let Some(access) = SocketAccess::of_socket(paths, units.listen) {
        findings.push(socket_access(access, units.access));
    }
    if let Some(running) = RunningService::find(paths, manager)? {
        findings.push(process(&running, &units.digest()));
        findings.push(call(units.listen).await);
        findings.extend(status(&running, config).await);
    }
    Ok(findings)
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

/// Compares owner and mode of the socket with those of the runtime's socket.
fn socket_access(access: SocketAccess, expected: SocketAccess) -> Finding {
    const CHECK: &str = "socket access";
    let shown = |SocketAccess { uid, gid, mode }| format!("owner {uid}:{gid} and mode {mode:04o}");
    if access == expected {
        return Finding::ok(CHECK, format!("{}, as the runtime's socket", shown(access)));
    }
    let detail = format!("{}, but {} by the runtime's socket", shown(access), shown(expected));
    Finding::warning(CHECK, detail, REINSTALL)
}

/// Compares the running process with the installed program and unit.
fn process(running: &RunningService, digest: &str) -> Finding {
    const CHECK: &str = "process";
    let pid = running.pid;
    if running.is_replaced {
        let detail = format!("pid {pid} runs a program that was replaced on disk later");
        return Finding::warning(CHECK, detail, REINSTALL);
    }
    if running.has_other_unit(digest) {
        let detail = format!("pid {pid} was started with other settings than those of its unit now");
        return Finding::warning(CHECK, detail, REINSTALL);
    }
    Finding::ok(CHECK, format!("pid {pid} runs the installed program with the settings of its unit"))
}

/// Makes a call through probeshim.
async fn call(listen: &SocketPath) -> Finding {
    const CHECK: &str = "call";
    match timeout(CALL_TIMEOUT, runtime_version(listen)).await {
        Ok(Ok(version)) => Finding::ok(CHECK, version),
        Ok(Err(error)) => Finding::failed(CHECK, error, LOG_REMEDY),
        Err(_) => {
            let detail = format!("{listen} does not answer Version within {CALL_TIMEOUT:?}");
            Finding::failed(CHECK, detail, LOG_REMEDY)
        }
    }
}

/// Compares the status of the running process with the configuration.
async fn status(running: &RunningService, config: &ServerConfig) -> Vec<Finding> {
    const CHECK: &str = "status";
    let status = match Client::new(config.admin.clone()).status().await {
        Ok(status) => status,
        Err(error) => return vec![Finding::warning(CHECK, error.to_string(), LOG_REMEDY)],
    };
    let Ok(status) = serde_json::from_slice::<Status>(&status) else {
        let detail = "the running program has a status of another format";
        return vec![Finding::warning(CHECK, detail, REINSTALL)];
    };
    let compared = compare_status(running, config, &status);
    [compared].into_iter().chain(names(&status.probe_names)).collect()
}

/// Returns the finding about the names of probes of a probeshim that answers at this socket; `None`
/// if none answers.
pub(super) async fn running_names(admin: &SocketPath) -> Option<Finding> {
    let status = Client::new(admin.clone()).status().await.ok()?;
    let status: Status = serde_json::from_slice(&status).ok()?;
    names(&status.probe_names)
}

/// Reports where the names of probes come from, and where they are missing. `None` if probeshim
/// runs the pods itself.
fn names(names: &ProbeNames) -> Option<Finding> {
    const CHECK: &str = "names";
    let sources = names.describe_sources()?;
    let remedy = || names.remedy.clone().unwrap_or_else(|| NAMES_REMEDY.to_owned());
    let (unnamed, all) = (names.unnamed_containers, names.named_containers + names.unnamed_containers);
    if unnamed > 0 {
        let detail = format!("{sources}; names are missing in {unnamed} of {all} containers with exec calls");
        return Some(Finding::warning(CHECK, detail, remedy()));
    }
    if names.sources.iter().any(|source| source.problem.is_some()) {
        return Some(Finding::warning(CHECK, sources, remedy()));
    }
    Some(Finding::ok(CHECK, sources))
}

fn compare_status(running: &RunningService, config: &ServerConfig, status: &Status) -> Finding {
    const CHECK: &str = "status";
    let (socket, upstream) = (&status.upstream.socket, config.relay.upstream.to_string());
    if status.pid != running.pid {
        let detail = format!("{} is served by pid {}, not by the service", config.admin, status.pid);
        return Finding::warning(CHECK, detail, "end that process, or give it an --instance of its own");
    }
    if *socket != upstream {
        let detail = format!("calls are forwarded to {socket}, but the configuration names {upstream}");
        return Finding::failed(CHECK, detail, "run: systemctl restart probeshim");
    }
    if !status.api_failures.is_empty() {
        let detail = status.api_failures.join("; ");
        return Finding::warning(
            CHECK,
            detail,
            "correct the cause; probeshim then opens the address by itself",
        );
    }
    Finding::ok(CHECK, format!("probeshim {} in the mode {}", status.full_version(), status.mode))
}
