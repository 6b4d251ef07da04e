//! What the machine has, and what it lacks.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// An address of this machine that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What a server without TLS answers to a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}
