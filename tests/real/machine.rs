//! What the machine has, and what it lacks.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// The folder of a program that `tests/tools/build` makes.
pub(crate) fn tool(name: &str) -> Result<PathBuf, String> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/build");
    let made = Command::new(build).arg(name).output().map_err(|error| error.to_string())?;
    if made.status.success() {
        return Ok(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()));
    }
    // The last line is the reason; what go or pip said stands before it.
    Err(String::from_utf8_lossy(&made.stderr).lines().last().unwrap_or("cannot be made").to_owned())
}

/// A program on the PATH, from a Debian package.
pub(crate) fn program(name: &str, package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| format!("{name} is not installed (apt install {package})"))
}

/// Whether containers can be run here at all.
pub(crate) fn runs_containers() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("containers need root".to_owned());
    }
    program("runc", "runc")?;
    program("iptables", "iptables")?;
    if Path::new("/usr/lib/cni/bridge").exists() {
        return Ok(());
    }
    Err("the CNI plugins are not installed (apt install containernetworking-plugins)".to_owned())
}

/// An address of this machine that nobody listens on. It is below those that the kernel gives to connections, and given to no other
/// test.
pub(crate) fn free_address() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Processes that run at once begin at different places.
    let start = u16::try_from(std::process::id() % 100).unwrap() * 100;
    loop {
        let nth = GIVEN.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + (start + nth) % 10_000));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
