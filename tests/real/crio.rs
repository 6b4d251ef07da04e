//! A CRI-O of our own: its own folder, socket, storage, bridge and subnet, gone with everything that it started.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::accounts::{self, Accounts};
use super::crictl::Crictl;
use super::life::{self, Expected, Runtime};
use super::machine::{free_address, program, runs_containers, tool};
use super::network::Network;
use super::server::{Server, wait_for};
use super::{image, leftovers};

/// Leaves the `oom_score_adj` of a container as it is, and goes on as runc: without `CAP_SYS_RESOURCE` it could not be lowered.
const RUNC: &str = r#"#!/bin/sh
bundle=$(printf '%s\n' "$@" | grep -A1 -x -e '--bundle' -e '-b' | tail -n 1)
score=$(cat /proc/self/oom_score_adj)
[ -n "$bundle" ] && sed -E -i "s/\"oomScoreAdj\": ?-?[0-9]+/\"oomScoreAdj\":$score/" "$bundle/config.json"
exec runc "$@"
"#;

/// A CRI-O that runs.
#[derive(Debug)]
pub(crate) struct Crio {
    // In the order in which they go.
    server: Option<Server>,
    _network: Network,
    folder: TempDir,
    metrics: SocketAddr,
}

impl Crio {
    /// Starts one with all images loaded; says what is missing where that is not possible.
    pub(crate) fn start() -> Result<Self, String> {
        runs_containers()?;
        let bin = tool("crio-1.34")?;
        let (conmon, skopeo) = (program("conmon", "conmon")?, program("skopeo", "skopeo")?);
        let busybox = program("busybox", "busybox-static")?;
        let folder = tempfile::Builder::new().prefix("probeshim-e2e.").tempdir_in("/tmp").unwrap();
        let network = Network::configure(folder.path());
        let metrics = free_address();
        write_config(folder.path(), &bin, &conmon, metrics);
        let mut crio = Self { server: None, _network: network, folder, metrics };
        crio.load(&busybox, &skopeo);
        crio.launch(&bin);
        let crictl = Crictl::new("crictl-1.36", &crio.socket(), crio.folder())?;
        wait_for("CRI-O finds its network", || (!crictl.ok(&["info"]).contains("NotReady")).then_some(()));
        Ok(crio)
    }

    /// Copies the images into its storage.
    fn load(&self, busybox: &Path, skopeo: &Path) {
        let (folder, at) = (self.folder.path(), self.folder.path().display());
        let archive = folder.join("images.tar");
        image::Store::new(busybox).write_archive(&archive);
        for name in image::NAMES {
            let mut command = Command::new(skopeo);
            command.arg("--policy").arg(folder.join("policy.json")).arg("copy");
            command.arg(format!("oci-archive:{}:{name}", archive.display()));
            command.arg(format!("containers-storage:[vfs@{at}/root+{at}/runroot]{name}"));
            let output = command.output().unwrap();
            assert!(output.status.success(), "skopeo {name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn launch(&mut self, bin: &Path) {
        let (socket, folder) = (self.socket(), self.folder.path());
        let mut command = Command::new(bin.join("crio"));
        command.arg("--config").arg(folder.join("crio.conf")).arg("--config-dir").arg(folder.join("none"));
        command.env("CONTAINERS_REGISTRIES_CONF", folder.join("registries.conf"));
        let log = folder.join("crio.log");
        let server = self.server.insert(Server::start("crio", &mut command, &log));
        server.wait_until(|_| UnixStream::connect(&socket).is_ok());
    }
}

impl Runtime for Crio {
    const EXPECTED: Expected = life::CRIO;

    fn socket(&self) -> PathBuf {
        self.folder.path().join("crio.sock")
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn accounts(&self) -> Option<Accounts> {
        Some(accounts::of_crio(self.metrics))
    }

    fn accounts_of(calls: &[Value]) -> Accounts {
        accounts::by_failure(calls)
    }
}

impl Drop for Crio {
    fn drop(&mut self) {
        leftovers::remove_pods(self);
        self.server = None;
        leftovers::clear(self.folder.path());
    }
}

fn write_config(folder: &Path, bin: &Path, conmon: &Path, metrics: SocketAddr) {
    let at = folder.display();
    let (pinns, conmon, pause) = (bin.join("pinns"), conmon.display(), image::PAUSE);
    let (pinns, metrics_port) = (pinns.display(), metrics.port());
    let config = format!(
        r#"
[crio]
root = "{at}/root"
runroot = "{at}/runroot"
log_dir = "{at}/logs"
version_file = "{at}/version"
version_file_persist = "{at}/version-persist"
clean_shutdown_file = "{at}/clean-shutdown"
storage_driver = "vfs"
[crio.api]
listen = "{at}/crio.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
apparmor_profile = "unconfined"
pinns_path = "{pinns}"
namespaces_dir = "{at}/ns"
container_exits_dir = "{at}/exits"
container_attach_socket_dir = "{at}/attach"
hooks_dir = []
[crio.runtime.runtimes.runc]
runtime_path = "{at}/runc"
runtime_root = "{at}/runc-root"
monitor_path = "{conmon}"
monitor_cgroup = "pod"
[crio.image]
pause_image = "{pause}"
pause_command = ""
signature_policy = "{at}/policy.json"
signature_policy_dir = "{at}/policies"
[crio.network]
network_dir = "{at}/cni"
plugin_dirs = ["/usr/lib/cni"]
[crio.metrics]
enable_metrics = true
metrics_host = "127.0.0.1"
metrics_port = {metrics_port}
[crio.nri]
enable_nri = false
"#
    );
    fs::write(folder.join("crio.conf"), config).unwrap();
    fs::write(folder.join("policy.json"), r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).unwrap();
    fs::write(folder.join("registries.conf"), "unqualified-search-registries = []\n").unwrap();
    fs::write(folder.join("runc"), RUNC).unwrap();
    fs::set_permissions(folder.join("runc"), Permissions::from_mode(0o755)).unwrap();
}
