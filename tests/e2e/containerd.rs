//! A containerd of our own: its own folder, socket, bridge and subnet, gone with everything that it started.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::crictl::Crictl;
use crate::image;
use crate::machine::{program, runs_containers, tool};

/// Which containerd.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Version {
    /// Debian's.
    V1_6,
    /// What people run now.
    V2_2,
}

/// A containerd that runs.
#[derive(Debug)]
pub(crate) struct Containerd {
    folder: TempDir,
    bin: Option<PathBuf>,
    bridge: String,
    process: Option<Child>,
}

static STARTED: AtomicU32 = AtomicU32::new(0);

impl Containerd {
    /// Starts one with both images loaded; says what is missing where that is not possible.
    pub(crate) fn start(version: Version) -> Result<Self, String> {
        runs_containers()?;
        let bin = match version {
            Version::V1_6 => {
                program("containerd", "containerd")?;
                None
            }
            Version::V2_2 => Some(tool("containerd-2.2")?),
        };
        let busybox = program("busybox", "busybox-static")?;
        // In a short place, for the sake of socket paths.
        let folder = tempfile::Builder::new().prefix("probeshim-e2e.").tempdir_in("/tmp").unwrap();
        // Unique among the tests that run at once, in this process and others.
        let nth = STARTED.fetch_add(1, Ordering::Relaxed);
        let unique = (std::process::id().wrapping_mul(8) + nth) % 512;
        let bridge = format!("ps{unique}");
        // Set aside for tests by RFC 2544, so that no machine has a route there.
        let subnet = format!("198.{}.{}.0/24", 18 + unique / 256, unique % 256);
        write_config(folder.path(), version, &bridge, &subnet);
        let mut containerd = Self { folder, bin, bridge, process: None };
        containerd.launch();
        let archive = containerd.folder.path().join("images.tar");
        image::write_archive(&busybox, &archive);
        let loaded = containerd
            .command("ctr")
            .args(["-n", "k8s.io", "images", "import"])
            .arg(&archive)
            .env("CONTAINERD_ADDRESS", containerd.socket())
            .output()
            .unwrap();
        assert!(loaded.status.success(), "ctr: {}", String::from_utf8_lossy(&loaded.stderr));
        Ok(containerd)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("containerd.sock")
    }

    /// A folder for whatever belongs to this containerd.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it, as a crash would, and starts it again; containers live on.
    pub(crate) fn crash_and_restart(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        self.launch();
    }

    fn command(&self, name: &str) -> Command {
        let mut command = match &self.bin {
            Some(bin) => {
                let mut command = Command::new(bin.join(name));
                // Its own shim must be the first to be found.
                let path = std::env::var("PATH").unwrap_or_default();
                command.env("PATH", format!("{}:{path}", bin.display()));
                command
            }
            None => Command::new(name),
        };
        // Else containerd would report to the service manager of whoever runs the tests.
        command.env_remove("NOTIFY_SOCKET");
        command
    }

    fn launch(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let process = self
            .command("containerd")
            .arg("--config")
            .arg(self.folder.path().join("config.toml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        self.wait_until_it_serves();
    }

    /// Waits until its socket accepts and its log says that everything behind it has been started.
    fn wait_until_it_serves(&mut self) {
        let socket = self.socket();
        for _ in 0..600 {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "containerd ended: {}", self.log());
            if UnixStream::connect(&socket).is_ok()
                && self.log_of_last_start().contains("successfully booted")
            {
                return;
            }
            pause();
        }
        panic!("containerd does not come up: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn log_of_last_start(&self) -> String {
        let log = self.log();
        log.rfind("starting containerd").map(|at| log[at..].to_owned()).unwrap_or_default()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(12).collect();
            eprintln!("the last lines of containerd, newest first:\n{}", tail.join("\n"));
        }
        // A failed test leaves pods behind, which have network namespaces that only containerd knows by name.
        if std::thread::panicking()
            && let Ok(crictl) = Crictl::new("crictl-1.36", &self.socket(), self.folder.path())
        {
            crictl.run(&["rmp", "--all", "--force"]);
        }
        // Whatever still runs; each has a shim that knows our folder by name.
        for shim in processes_that_name(self.folder.path()) {
            let _ = kill_process(shim, Signal::KILL);
        }
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        unmount_below(self.folder.path());
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).output();
    }
}

fn write_config(folder: &Path, version: Version, bridge: &str, subnet: &str) {
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
[plugins."io.containerd.internal.v1.opt"]
path = "{at}/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
"#
    );
    // Where the machine has no CAP_SYS_RESOURCE, a container could not lower its oom_score_adj.
    let config = match version {
        Version::V1_6 => format!(
            r#"version = 2
{common}
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{pause}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{at}/cni"
"#
        ),
        Version::V2_2 => format!(
            r#"version = 3
{common}
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{at}/cni"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
"#
        ),
    };
    fs::write(folder.join("config.toml"), config).unwrap();
    let network = serde_json::json!({
        "cniVersion": "0.4.0",
        "name": bridge,
        "plugins": [
            {
                "type": "bridge",
                "bridge": bridge,
                "isGateway": true,
                "ipMasq": false,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "dataDir": format!("{at}/ipam")},
            },
            {"type": "loopback"},
        ],
    });
    fs::create_dir(folder.join("cni")).unwrap();
    fs::write(folder.join("cni/10-bridge.conflist"), network.to_string()).unwrap();
}

/// Processes other than this one that have a path below `folder` in their arguments.
fn processes_that_name(folder: &Path) -> Vec<Pid> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let own = std::process::id();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse::<u32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.windows(folder.len()).any(|part| part == folder)
        })
        .flat_map(|pid| children_first(i32::try_from(pid).unwrap()))
        .filter_map(Pid::from_raw)
        .collect()
}

/// A process and those below it, deepest first: a shim's containers die with it.
fn children_first(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all: Vec<i32> =
        children.split_whitespace().filter_map(|child| child.parse().ok()).flat_map(children_first).collect();
    all.push(pid);
    all
}

fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|path| Path::new(path).starts_with(folder))
        .collect();
    for path in below.into_iter().rev() {
        let _ = Command::new("umount").args(["--lazy", path]).output();
    }
}

/// Between two looks at something that no event tells of.
#[expect(clippy::disallowed_methods, reason = "another process is awaited, by its log")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
