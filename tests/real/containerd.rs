//! A containerd of our own: its own folder, socket, bridge and subnet, gone with everything that it started.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use super::accounts::{self, Accounts};
use super::life::{self, Expected, Runtime};
use super::machine::{free_address, program, runs_containers, tool};
use super::network::Network;
use super::server::{Server, wait_for};
use super::{image, leftovers};

/// Which containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Debian's.
    V1_6,
    /// The last of the first.
    V1_7,
    /// The first of the second.
    V2_0,
    /// What people run now.
    V2_2,
}

/// A containerd that runs.
#[derive(Debug)]
pub(crate) struct Containerd {
    // In the order in which they go.
    server: Option<Server>,
    _network: Network,
    folder: TempDir,
    bin: Option<PathBuf>,
    metrics: SocketAddr,
}

impl Version {
    /// The folder of its programs; `None` for those on the PATH.
    fn programs(self) -> Result<Option<PathBuf>, String> {
        match self {
            Self::V1_6 => program("containerd", "containerd").map(|_| None),
            Self::V1_7 => tool("containerd-1.7").map(Some),
            Self::V2_0 => tool("containerd-2.0").map(Some),
            Self::V2_2 => tool("containerd-2.2").map(Some),
        }
    }
}

impl Containerd {
    /// Starts one with all images loaded; says what is missing where that is not possible.
    pub(crate) fn start(version: Version) -> Result<Self, String> {
        runs_containers()?;
        let bin = version.programs()?;
        let busybox = program("busybox", "busybox-static")?;
        // In a short place, for the sake of socket paths.
        let folder = tempfile::Builder::new().prefix("probeshim-e2e.").tempdir_in("/tmp").unwrap();
        let network = Network::configure(folder.path());
        let metrics = free_address();
        write_config(folder.path(), version, metrics);
        let mut containerd = Self { server: None, _network: network, folder, bin, metrics };
        containerd.launch();
        let archive = containerd.folder.path().join("images.tar");
        image::Store::new(&busybox).write_archive(&archive);
        containerd.ctr(&["images", "import", archive.to_str().unwrap()]);
        Ok(containerd)
    }

    /// Kills it, as a crash would, and starts it again; containers live on.
    pub(crate) fn crash_and_restart(&mut self) {
        self.server.take().unwrap().crash();
        self.launch();
    }

    /// Has it end in order, and starts it again; containers live on.
    pub(crate) fn restart(&mut self) {
        self.server.take().unwrap().terminate();
        self.launch();
    }

    /// Lets it stand still, as on a machine that has no time for it, for so long.
    pub(crate) fn stand_still(&self, lasts: Duration) {
        let pid = self.server.as_ref().unwrap().pid().to_string();
        let signal =
            |signal: &str| assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        signal("-STOP");
        let begun = Instant::now();
        wait_for("it has stood still", || (begun.elapsed() >= lasts).then_some(()));
        signal("-CONT");
    }

    /// ctr in the namespace of Kubernetes.
    pub(crate) fn ctr_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("ctr");
        command.args(["-n", "k8s.io"]).args(arguments).env("CONTAINERD_ADDRESS", self.socket());
        command
    }

    fn ctr(&self, arguments: &[&str]) {
        let output = self.ctr_command(arguments).output().unwrap();
        assert!(output.status.success(), "ctr {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn command(&self, name: &str) -> Command {
        let Some(bin) = &self.bin else { return Command::new(name) };
        let mut command = Command::new(bin.join(name));
        // Its own shim must be the first to be found.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    }

    /// Starts it, and waits until its socket accepts and its log says that everything behind it has been started.
    fn launch(&mut self) {
        let (socket, log) = (self.socket(), self.folder.path().join("log"));
        let mut command = self.command("containerd");
        command.arg("--config").arg(self.folder.path().join("config.toml"));
        let server = self.server.insert(Server::start("containerd", &mut command, &log));
        server.wait_until(|server| {
            let log = server.log();
            let last_start = log.rfind("starting containerd").map_or("", |at| &log[at..]);
            UnixStream::connect(&socket).is_ok() && last_start.contains("successfully booted")
        });
    }
}

impl Runtime for Containerd {
    const EXPECTED: Expected = life::CONTAINERD;

    fn socket(&self) -> PathBuf {
        self.folder.path().join("containerd.sock")
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn accounts(&self) -> Option<Accounts> {
        Some(accounts::of_containerd(self.metrics))
    }

    fn accounts_of(calls: &[Value]) -> Accounts {
        accounts::by_code(calls)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        leftovers::remove_pods(self);
        self.server = None;
        // Each container has a shim that knows our folder by name.
        leftovers::clear(self.folder.path());
    }
}

fn write_config(folder: &Path, version: Version, metrics: SocketAddr) {
    let at = folder.display();
    let pause = image::PAUSE;
    // Nothing outside the folder is touched: two that start at once would fight for the NRI socket of the machine.
    let common = format!(
        r#"
root = "{at}/root"
state = "{at}/state"
[grpc]
address = "{at}/containerd.sock"
[ttrpc]
address = "{at}/containerd.sock.ttrpc"
[metrics]
address = "{metrics}"
[plugins."io.containerd.internal.v1.opt"]
path = "{at}/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
"#
    );
    // Where the machine has no CAP_SYS_RESOURCE, a container could not lower its oom_score_adj.
    let config = match version {
        Version::V1_6 | Version::V1_7 => format!(
            r#"version = 2
{common}
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{pause}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{at}/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{at}/certs.d"
"#
        ),
        Version::V2_0 | Version::V2_2 => {
            let bin_dirs = if version == Version::V2_0 {
                r#"bin_dir = "/usr/lib/cni""#
            } else {
                r#"bin_dirs = ["/usr/lib/cni"]"#
            };
            format!(
                r#"version = 3
{common}
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
{bin_dirs}
conf_dir = "{at}/cni"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{at}/certs.d"
"#
            )
        }
    };
    fs::write(folder.join("config.toml"), config).unwrap();
}
