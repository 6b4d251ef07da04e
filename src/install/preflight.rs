//! Checks of a node before anything is changed.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::statvfs;

use super::checks::runtime_version;
use super::finding::Finding;
use super::paths::{InstalledUnit, Paths};
use super::systemctl::{ServiceManager, property};
use crate::relay::Peer;
use crate::socket::SocketPath;
use crate::terminal::harmless_name;

/// Free space that an installation needs in each file system, in bytes.
const NEEDED_BYTES: u64 = 64 << 20;

/// First version of systemd with `Restart=on-failure` for services of `Type=oneshot`.
const MIN_BYPASS_SYSTEMD: u32 = 244;

/// Returns findings about the node itself.
pub(super) async fn node_findings(
    paths: &Paths,
    manager: &dyn ServiceManager,
    upstream: &SocketPath,
    listen: &SocketPath,
) -> Vec<Finding> {
    let mut findings = vec![service_manager(manager)];
    findings.push(match runtime_version(upstream).await {
        Ok(version) => Finding::ok("runtime", version),
        Err(error) => {
            Finding::failed("runtime", error, "start the runtime, or name its socket with --upstream")
        }
    });
    findings.push(socket(manager, listen));
    findings.push(disk(paths));
    findings.extend(selinux(paths));
    findings
}

fn service_manager(manager: &dyn ServiceManager) -> Finding {
    const CHECK: &str = "systemd";
    match manager.run(&["show", "--value", "--property", "Version"]) {
        Ok(version) => Finding::ok(CHECK, format!("version {}", version.trim())),
        Err(error) => Finding::failed(
            CHECK,
            error.to_string(),
            "`probeshim install` needs systemd; elsewhere, start `probeshim run` with your init system",
        ),
    }
}

/// Checks that systemd accepts the unit that points the kubelet back. Returns `None` if it does.
pub(super) fn bypass_finding(manager: &dyn ServiceManager) -> Option<Finding> {
    let version = manager.run(&["show", "--value", "--property", "Version"]).ok()?;
    let digits = version.trim().split(|c: char| !c.is_ascii_digit()).next()?;
    let version: u32 = digits.parse().ok().filter(|version| *version < MIN_BYPASS_SYSTEMD)?;
    Some(Finding::failed(
        "bypass",
        format!("systemd {version} cannot repeat the step that points the kubelet back"),
        format!(
            "systemd {MIN_BYPASS_SYSTEMD} or newer is needed with --kubelet; `probeshim install` works without"
        ),
    ))
}

/// Checks that no other process listens on the socket.
fn socket(manager: &dyn ServiceManager, listen: &SocketPath) -> Finding {
    const CHECK: &str = "socket";
    let is_ours = property(manager, InstalledUnit::Socket.name(), "ActiveState");
    if is_ours.is_ok_and(|state| state == "active") {
        return Finding::ok(CHECK, format!("systemd listens on {listen}"));
    }
    match UnixStream::connect(listen.as_path()) {
        Ok(stream) => match listener_of(stream) {
            Some((pid, program)) if program == "probeshim" => Finding::failed(
                CHECK,
                format!("a probeshim, pid {pid}, listens on {listen}, and is not that of the service"),
                format!("end it, for example a `probeshim run` that was started by hand: kill {pid}"),
            ),
            Some((pid, program)) => Finding::failed(
                CHECK,
                format!("{}, pid {pid}, listens on {listen}", harmless_name(&program)),
                "end it, or install with another --listen",
            ),
            None => Finding::failed(CHECK, format!("another process listens on {listen}"), "end it"),
        },
        Err(_) => Finding::ok(CHECK, format!("{listen} is free")),
    }
}

/// Returns the pid and the name of the program that listens on a socket, if they are known.
fn listener_of(stream: UnixStream) -> Option<(i32, String)> {
    stream.set_nonblocking(true).ok()?;
    let peer = Peer::from_socket(&tokio::net::UnixStream::from_std(stream).ok()?)?;
    peer.pid.zip(peer.program)
}

fn disk(paths: &Paths) -> Finding {
    const CHECK: &str = "disk";
    for dir in [Paths::program(), Paths::state(), &Paths::unit(InstalledUnit::Service)] {
        let dir = dir.ancestors().skip(1).find(|dir| paths.at(dir).exists()).unwrap_or(Path::new("/"));
        let Ok(space) = statvfs(paths.at(dir)) else { continue };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < NEEDED_BYTES {
            return Finding::failed(
                CHECK,
                format!("{} has {} MiB free", dir.display(), free >> 20),
                format!("free {} MiB", NEEDED_BYTES >> 20),
            );
        }
    }
    Finding::ok(CHECK, format!("at least {} MiB are free", NEEDED_BYTES >> 20))
}

/// Reports that `SELinux` is enforcing. A program that was copied has the label of its directory.
fn selinux(paths: &Paths) -> Option<Finding> {
    let enforce = fs::read_to_string(paths.at("/sys/fs/selinux/enforce")).ok()?;
    let remedy = format!("if the service is denied access, run: restorecon {}", Paths::program().display());
    (enforce.trim() == "1").then(|| Finding::warning("selinux", "SELinux is enforcing", remedy))
}
