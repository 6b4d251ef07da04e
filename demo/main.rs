//! `make demo`: probeshim in front of a real containerd, and the life of a pod through it.

#![allow(clippy::unwrap_used, reason = "what cannot go on is shown and ends")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is what a demo is for")]
#![allow(dead_code, reason = "the fixtures are those of the tests, which use more of them")]

#[path = "../tests/real/mod.rs"]
mod real;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use probeshim::cri::v1::NamespaceMode;
use real::containerd::{Containerd, Version};
use real::crictl::Crictl;
use real::life::Runtime as _;
use real::shim::Probeshim;
use real::{image, machine};
use serde_json::json;

/// Where a containerd listens that is there already.
const LOCAL: &str = "/run/containerd/containerd.sock";

/// The runtime of the demo.
enum Upstream {
    /// The machine's.
    Local,
    /// One that was started for the demo.
    Own(Containerd),
}

impl Upstream {
    /// The machine's containerd, with the demo's image in it, or one of our own.
    fn find(folder: &Path) -> Result<Self, String> {
        if UnixStream::connect(LOCAL).is_err() {
            println!("no containerd answers on {LOCAL}: starting one for the demo");
            return Containerd::start(Version::V2_2).map(Self::Own);
        }
        println!("using the containerd on {LOCAL}");
        let archive = folder.join("images.tar");
        image::Store::new(&machine::program("busybox", "busybox-static")?).write_archive(&archive);
        ctr(&["import", archive.to_str().unwrap()])?;
        Ok(Self::Local)
    }

    fn socket(&self) -> PathBuf {
        match self {
            Self::Local => PathBuf::from(LOCAL),
            Self::Own(containerd) => containerd.socket(),
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if matches!(self, Self::Local) {
            // The machine is left as it was.
            let _ = ctr(&["remove", image::BUSYBOX, image::PAUSE]);
        }
    }
}

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("the demo cannot go on: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("probeshim-demo.").tempdir_in("/tmp").unwrap();
    let runtime = Upstream::find(folder.path())?;
    let upstream = runtime.socket();
    let shim = Probeshim::start(folder.path(), &upstream);
    println!("probeshim listens on {} and forwards to {}", shim.socket().display(), upstream.display());
    let crictl = Crictl::new("crictl-1.36", shim.socket(), folder.path())?;
    let lived = live(&crictl, folder.path());
    println!("\n$ probeshim status");
    print!("{}", shim.ask(&["status"]));
    println!("\n$ probeshim calls");
    print!("{}", shim.ask(&["calls"]));
    shim.stop();
    lived
}

/// The life of a pod. What fails is told after the pod is gone.
fn live(crictl: &Crictl, folder: &Path) -> Result<(), String> {
    let [sandbox, container] = write_configs(folder);
    show(crictl, &["version"])?;
    let pod = show(crictl, &["runp", &sandbox])?;
    let lived = live_in(crictl, &pod, &container, &sandbox);
    let stopped = show(crictl, &["stopp", &pod]);
    let removed = show(crictl, &["rmp", "--force", &pod]);
    lived.and(stopped.and(removed).map(drop))
}

fn live_in(crictl: &Crictl, pod: &str, container: &str, sandbox: &str) -> Result<(), String> {
    let id = show(crictl, &["create", pod, container, sandbox])?;
    show(crictl, &["start", &id])?;
    show(crictl, &["ps", "--pod", pod])?;
    show(crictl, &["exec", "-s", &id, "echo", "hello from the container"])?;
    // What an exec probe that fails looks like.
    let _ = show(crictl, &["exec", "-s", &id, "sh", "-c", "echo not ready >&2; exit 1"]);
    show(crictl, &["logs", &id])?;
    show(crictl, &["stop", "--timeout", "1", &id])?;
    show(crictl, &["rm", &id])?;
    Ok(())
}

/// Runs crictl for everyone to see; returns what it printed.
fn show(crictl: &Crictl, arguments: &[&str]) -> Result<String, String> {
    let words: Vec<String> = arguments
        .iter()
        .map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() })
        .collect();
    println!("\n$ crictl {}", words.join(" "));
    let output = crictl.run(arguments);
    print!("{}", output.stdout);
    for line in output.stderr.lines().filter(|line| !line.contains("cgroup_parent is not set")) {
        println!("{line}");
    }
    if output.code == Some(0) {
        return Ok(output.stdout.trim().to_owned());
    }
    Err(format!("crictl {} failed: {}", words.join(" "), output.stderr.trim()))
}

/// A pod on the node's network, so that no CNI plugin needs to be set up, with one container.
fn write_configs(folder: &Path) -> [String; 2] {
    let node = NamespaceMode::Node as i32;
    let sandbox = json!({
        "metadata": {"name": "demo", "namespace": "probeshim", "uid": format!("demo-{}", std::process::id()), "attempt": 0},
        "log_directory": folder,
        "linux": {"security_context": {"namespace_options": {"network": node}}},
    });
    let container = json!({
        "metadata": {"name": "main", "attempt": 0},
        "image": {"image": image::BUSYBOX},
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; echo the container has started; while true; do sleep 0.1; done"],
        "log_path": "main.log",
        "linux": {"security_context": {"namespace_options": {"network": node}}},
    });
    [("sandbox", sandbox), ("container", container)].map(|(name, config)| {
        let path = folder.join(format!("{name}.json"));
        fs::write(&path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

/// Works on the images of the machine's containerd.
fn ctr(arguments: &[&str]) -> Result<(), String> {
    let program = machine::program("ctr", "containerd")?;
    let output = Command::new(program).args(["-n", "k8s.io", "images"]).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ctr: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("ctr: {error}")),
    }
}
