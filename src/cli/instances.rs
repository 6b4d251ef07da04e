//! Finds the running instances of probeshim, for a user who queried another one.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::config::DemoSettings;
use crate::install::{Paths, ServiceManager, Systemd, has_failed_service, is_installed};
use crate::terminal::harmless_name;

/// Name of the directory of an instance without a name. The others are `probeshim-NAME`.
const DIR_NAME: &str = "probeshim";

/// Name of the admin socket in the directory of an instance.
const SOCKET_NAME: &str = "admin.sock";

/// Admin socket of the installed service.
const SERVICE_SOCKET: &str = "/run/probeshim/admin.sock";

/// Returns a hint at what helps if no process listens on an admin socket: the installed service
/// that has failed, other running instances, or the probeshim of root; `None` if there is none.
pub(super) fn hint(socket: &Path) -> Option<String> {
    failed_service(socket, &Paths::of_node(), &Systemd)
        .or_else(|| hint_at_running(socket))
        .or_else(|| hint_at_demo(&std::env::temp_dir()))
        .or_else(|| hint_at_root(socket))
}

/// Returns a hint at a running demo, whose sockets are in a directory of the one for temporary
/// files.
fn hint_at_demo(temporary: &Path) -> Option<String> {
    let entries = fs::read_dir(temporary).ok()?.flatten();
    let mut dirs =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(DemoSettings::DIR_PREFIX));
    let dir = dirs.find(|entry| has_listener(&entry.path()))?.path();
    Some(format!(
        "hint: a demo runs: query it with --admin {}",
        harmless_name(dir.join(SOCKET_NAME).to_str()?)
    ))
}

/// Returns a hint at the running instances beside an admin socket on which no process listens;
/// `None` if the socket is at no default path, or no instance runs.
fn hint_at_running(socket: &Path) -> Option<String> {
    let dir = socket.parent().filter(|_| socket.file_name().is_some_and(|name| name == SOCKET_NAME))?;
    instance(dir.file_name()?.to_str()?)?;
    let entries = fs::read_dir(dir.parent()?).ok()?.flatten();
    let running = entries.filter(|entry| has_listener(&entry.path()));
    let mut names: Vec<String> = running.filter_map(|entry| described(&entry.path())).collect();
    names.sort();
    (!names.is_empty()).then(|| format!("hint: a probeshim runs here: query it {}", names.join(", or ")))
}

/// Returns whether a process listens on the admin socket in a directory.
fn has_listener(dir: &Path) -> bool {
    UnixStream::connect(dir.join(SOCKET_NAME)).is_ok()
}

/// Returns a hint at the socket of root's probeshim, for another user; `None` if it does not exist.
fn hint_at_root(socket: &Path) -> Option<String> {
    let service = Path::new(SERVICE_SOCKET);
    let is_other = !rustix::process::geteuid().is_root() && socket != service;
    (is_other && service.exists()).then(|| {
        format!("hint: root's probeshim may run: run this command as root, or with --admin {SERVICE_SOCKET} if it allows you")
    })
}

/// Returns a hint if the admin socket is that of the installed service, and the service has failed.
fn failed_service(socket: &Path, paths: &Paths, manager: &dyn ServiceManager) -> Option<String> {
    let is_of_service = socket == Path::new(SERVICE_SOCKET) && is_installed(paths);
    (is_of_service && has_failed_service(manager))
        .then(|| "hint: probeshim.service has failed: `probeshim doctor` shows why".to_owned())
}

/// Returns how to query the instance with this directory. The directory of a demo has a random
/// name, which is no name of an instance.
fn described(dir: &Path) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    Some(match instance(dir.file_name()?.to_str()?)? {
        "" => "without --instance".to_owned(),
        name if name.bytes().all(is_allowed) => format!("with --instance {}", harmless_name(name)),
        _ => format!("with --admin {}", harmless_name(dir.join(SOCKET_NAME).to_str()?)),
    })
}

/// Returns the name of the instance with a directory of this name, which is empty for the instance
/// without a name; `None` for another directory.
fn instance(dir_name: &str) -> Option<&str> {
    match dir_name.strip_prefix(DIR_NAME)? {
        "" => Some(""),
        rest => rest.strip_prefix('-'),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::install::ServiceManagerError;

    /// A service manager whose service has this state.
    struct Service(&'static str);

    impl ServiceManager for Service {
        fn run(&self, _: &[&str]) -> Result<String, ServiceManagerError> {
            Ok(format!("{}\n", self.0))
        }
    }

    #[test]
    fn a_service_that_has_failed_is_named_only_if_it_is_installed_and_queried() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path());
        let hint = |socket: &str, state| failed_service(Path::new(socket), &paths, &Service(state));
        assert_eq!(hint(SERVICE_SOCKET, "failed"), None, "it is not installed");
        fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
        fs::write(root.path().join("etc/systemd/system/probeshim.service"), "").unwrap();
        assert!(hint(SERVICE_SOCKET, "failed").unwrap().contains("`probeshim doctor`"));
        assert_eq!(hint(SERVICE_SOCKET, "active"), None);
        assert_eq!(hint("/run/probeshim-a/admin.sock", "failed"), None);
    }

    #[test]
    fn running_instances_are_named_beside_the_socket_of_one_that_does_not_run() {
        let run = tempfile::tempdir().unwrap();
        let listen = |name: &str| {
            fs::create_dir(run.path().join(name)).unwrap();
            UnixListener::bind(run.path().join(name).join(SOCKET_NAME)).unwrap()
        };
        let default = run.path().join("probeshim/admin.sock");
        assert_eq!(hint_at_running(&default), None);
        let _other = listen("containerd");
        drop(listen("probeshim-ended"));
        assert_eq!(hint_at_running(&default), None);
        let _ci = listen("probeshim-ci-1");
        let expected = "hint: a probeshim runs here: query it with --instance ci-1";
        assert_eq!(hint_at_running(&default).as_deref(), Some(expected));
        assert_eq!(hint_at_running(&run.path().join("elsewhere/admin.sock")), None);
        let demo = listen("probeshim-demo.4xQ");
        let admin = run.path().join("probeshim-demo.4xQ/admin.sock");
        let expected_of_demo = format!(
            "hint: a probeshim runs here: query it with --admin {}, or with --instance ci-1",
            admin.display()
        );
        assert_eq!(hint_at_running(&default), Some(expected_of_demo));
        drop(demo);
        let _default = listen("probeshim");
        let named = run.path().join("probeshim-lost/admin.sock");
        let expected = "hint: a probeshim runs here: query it with --instance ci-1, or without --instance";
        assert_eq!(hint_at_running(&named).as_deref(), Some(expected));
    }

    #[test]
    fn a_running_demo_is_named() {
        let temporary = tempfile::tempdir().unwrap();
        for name in ["probeshim-demo.a", "probeshim-demo.b"] {
            fs::create_dir(temporary.path().join(name)).unwrap();
        }
        assert_eq!(hint_at_demo(temporary.path()), None);
        let socket = temporary.path().join("probeshim-demo.b/admin.sock");
        let _demo = UnixListener::bind(&socket).unwrap();
        let expected = format!("hint: a demo runs: query it with --admin {}", socket.display());
        assert_eq!(hint_at_demo(temporary.path()), Some(expected));
    }
}
