//! From what was written to what is run: every value is checked at once, and every error names its flag.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;

use crate::socket::SocketPath;
use crate::{relay, socket, telemetry};

/// Where containerd listens unless told otherwise.
const UPSTREAM: &str = "unix:///run/containerd/containerd.sock";

/// Where metrics and health are served unless told otherwise.
const HTTP: &str = "127.0.0.1:9754";

/// How long calls in flight may go on after a signal, unless told otherwise.
const DRAIN_TIMEOUT: &str = "30s";

/// What is logged unless told otherwise.
const LOG: &str = "info";

/// The longest duration that a flag takes.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The flags of `run` as they were written. What is absent has its default.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Option<String>,
    /// `--upstream`
    pub upstream: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--http`
    pub http: Option<String>,
    /// `--drain-timeout`
    pub drain_timeout: Option<String>,
    /// `--log`
    pub log: Option<String>,
}

/// What the process knows of its surroundings that defaults depend on.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Whether it runs as root.
    pub is_root: bool,
    /// Whether systemd passes a socket to it.
    pub is_activated: bool,
    /// `$XDG_RUNTIME_DIR`, where it is set and absolute.
    pub runtime_dir: Option<PathBuf>,
}

/// What `run` runs on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect; `None` where systemd passes the socket.
    pub listen: Option<SocketPath>,
    /// The admin socket.
    pub admin: SocketPath,
    /// Where metrics and health are served on TCP, if anywhere; a loopback address.
    pub http: Option<SocketAddr>,
    /// The relay's part.
    pub relay: relay::Settings,
    /// The log's part.
    pub log: telemetry::Settings,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{} {reason}", value.as_ref().map(|value| format!(" {value:?}")).unwrap_or_default())]
pub struct Problem {
    /// The flag, with its dashes.
    pub field: &'static str,
    /// What was written, if anything was.
    pub value: Option<String>,
    /// What is wrong with it, and what is allowed.
    pub reason: String,
}

/// Everything that is wrong, in the order of the flags; shown with a line for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

/// Collects what is wrong while values are read.
#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn here() -> Self {
        Self {
            is_root: rustix::process::geteuid().is_root(),
            is_activated: socket::is_activated(),
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute()),
        }
    }

    /// The folder for sockets. `None` where there is no good place.
    fn run_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            Some(Path::new("/run/probeshim").to_owned())
        } else {
            self.runtime_dir.as_ref().map(|dir| dir.join("probeshim"))
        }
    }

    /// The socket of this name, where nothing else is told.
    fn default_socket(&self, name: &str) -> Result<SocketPath, String> {
        let dir = self.run_dir().ok_or("is needed: not root, and XDG_RUNTIME_DIR is not set")?;
        SocketPath::new(&dir.join(name)).map_err(|error| format!("is needed: its default {error}"))
    }
}

impl Settings {
    /// Checks the flags and fills in defaults. Returns every problem, not the first.
    pub fn new(flags: &Flags, around: &Surroundings) -> Result<Self, Problems> {
        let mut reader = Reader::default();
        let listen = match &flags.listen {
            Some(listen) => reader.read("--listen", listen, socket_path),
            None if around.is_activated => None,
            None => reader.fill_in("--listen", around.default_socket("probeshim.sock")),
        };
        let admin = reader.admin(flags.admin.as_deref(), around);
        let or_default =
            |flag: &Option<String>, default: &str| flag.clone().unwrap_or_else(|| default.to_owned());
        let upstream = reader.read("--upstream", &or_default(&flags.upstream, UPSTREAM), socket_path);
        let http = reader.read("--http", &or_default(&flags.http, HTTP), http_address);
        let drain_timeout =
            reader.read("--drain-timeout", &or_default(&flags.drain_timeout, DRAIN_TIMEOUT), duration);
        let log = reader.read("--log", &or_default(&flags.log, LOG), log_filter);
        let taken = [("--listen", &listen), ("--upstream", &upstream)];
        for (other, socket) in taken.iter().filter_map(|(flag, socket)| Some((flag, socket.as_ref()?))) {
            if let Some(admin) = admin.as_ref().filter(|admin| admin.is_same_as(socket)) {
                let reason = format!("is the socket of {other} as well; choose another path");
                reader.complain("--admin", Some(&admin.to_string()), reason);
            }
        }
        match (upstream, admin, http, drain_timeout, log) {
            (Some(upstream), Some(admin), Some(http), Some(drain_timeout), Some(log))
                if reader.problems.is_empty() =>
            {
                Ok(Self {
                    listen: listen.filter(|_| !around.is_activated),
                    admin,
                    http,
                    relay: relay::Settings { upstream, drain_timeout },
                    log,
                })
            }
            _ => Err(Problems(reader.problems)),
        }
    }
}

/// The admin socket that a command asks: what `--admin` says, or its default.
pub fn admin_socket(flag: Option<&str>, around: &Surroundings) -> Result<SocketPath, Problems> {
    let mut reader = Reader::default();
    reader.admin(flag, around).ok_or(Problems(reader.problems))
}

/// What `--since` says.
pub fn since(flag: &str) -> Result<Duration, Problems> {
    let mut reader = Reader::default();
    reader.read("--since", flag, duration).ok_or(Problems(reader.problems))
}

impl Reader {
    fn admin(&mut self, flag: Option<&str>, around: &Surroundings) -> Option<SocketPath> {
        match flag {
            Some(socket) => self.read("--admin", socket, socket_path),
            None => self.fill_in("--admin", around.default_socket("admin.sock")),
        }
    }

    fn complain(&mut self, field: &'static str, value: Option<&str>, reason: String) {
        self.problems.push(Problem { field, value: value.map(str::to_owned), reason });
    }

    fn read<T>(
        &mut self,
        field: &'static str,
        value: &str,
        read: fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        read(value).map_err(|reason| self.complain(field, Some(value), reason)).ok()
    }

    fn fill_in<T>(&mut self, field: &'static str, default: Result<T, String>) -> Option<T> {
        default.map_err(|reason| self.complain(field, None, reason)).ok()
    }
}

fn socket_path(value: &str) -> Result<SocketPath, String> {
    SocketPath::parse(value).map_err(|error| error.to_string())
}

/// Reads an address such as `127.0.0.1:9754`, or `off` for none.
fn http_address(value: &str) -> Result<Option<SocketAddr>, String> {
    let allowed = "write off, or a loopback address and a port, such as 127.0.0.1:9754 or [::1]:9754";
    if value == "off" {
        return Ok(None);
    }
    let address = match value.strip_prefix("localhost:").map(str::parse) {
        Some(port) => port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok(),
        None => value.parse().ok(),
    };
    let address = address.ok_or_else(|| format!("is not an address; {allowed}"))?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "is not a loopback address, and what is served there is for this machine; {allowed}"
        ));
    }
    Ok(Some(address))
}

/// Reads a duration such as `30s`, `1m30s` or `500ms`.
fn duration(value: &str) -> Result<Duration, String> {
    let allowed = "write a duration from 0s to 24h, such as 500ms, 30s or 1m30s";
    let read: SignedDuration = value.parse().map_err(|_| format!("is not a duration; {allowed}"))?;
    Duration::try_from(read)
        .ok()
        .filter(|read| *read <= LONGEST)
        .ok_or_else(|| format!("is out of range; {allowed}"))
}

fn log_filter(value: &str) -> Result<telemetry::Settings, String> {
    let allowed =
        "write off, error, warn, info, debug or trace, or directives such as probeshim::relay=debug";
    telemetry::Settings::parse(value).map_err(|error| format!("is not a log filter ({error}); {allowed}"))
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(is_root: bool, runtime_dir: Option<&str>) -> Surroundings {
        Surroundings { is_root, is_activated: false, runtime_dir: runtime_dir.map(PathBuf::from) }
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let root = Settings::new(&Flags::default(), &around(true, Some("/run/user/0"))).unwrap();
        assert_eq!(root.listen.unwrap().to_string(), "unix:///run/probeshim/probeshim.sock");
        assert_eq!(root.relay.upstream.to_string(), "unix:///run/containerd/containerd.sock");
        assert_eq!(root.admin.to_string(), "unix:///run/probeshim/admin.sock");
        assert_eq!(root.http.unwrap().to_string(), "127.0.0.1:9754");
        assert_eq!(root.relay.drain_timeout, Duration::from_secs(30));
        let user = Settings::new(&Flags::default(), &around(false, Some("/run/user/1000"))).unwrap();
        assert_eq!(user.listen.unwrap().to_string(), "unix:///run/user/1000/probeshim/probeshim.sock");
    }

    #[test]
    fn every_problem_is_told_at_once_with_flag_value_and_what_is_allowed() {
        let flags = Flags {
            listen: None,
            upstream: Some("tcp://127.0.0.1:1".into()),
            admin: None,
            http: Some("0.0.0.0:9754".into()),
            drain_timeout: Some("-3s".into()),
            log: Some("probeshim=loud".into()),
        };
        let told = Settings::new(&flags, &around(false, None)).unwrap_err().to_string();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 6, "{told}");
        assert_eq!(lines[0], "--listen is needed: not root, and XDG_RUNTIME_DIR is not set");
        assert_eq!(lines[1], "--admin is needed: not root, and XDG_RUNTIME_DIR is not set");
        assert!(lines[2].starts_with("--upstream \"tcp://127.0.0.1:1\" has the scheme tcp://"), "{told}");
        assert!(lines[3].starts_with("--http \"0.0.0.0:9754\" is not a loopback address"), "{told}");
        assert!(lines[4].starts_with("--drain-timeout \"-3s\" is out of range; write a duration"), "{told}");
        assert!(lines[5].starts_with("--log \"probeshim=loud\" is not a log filter"), "{told}");
    }

    #[test]
    fn a_socket_that_systemd_passes_needs_no_path_and_wins_over_one() {
        let activated = Surroundings { is_activated: true, ..around(false, None) };
        let flags = Flags { admin: Some("/run/admin.sock".into()), ..Flags::default() };
        assert_eq!(Settings::new(&flags, &activated).unwrap().listen, None);
        let flags = |listen: &str| Flags { listen: Some(listen.into()), ..flags.clone() };
        assert_eq!(Settings::new(&flags("/run/a.sock"), &activated).unwrap().listen, None);
        assert!(
            Settings::new(&flags("tcp://a"), &activated).is_err(),
            "what is written is checked all the same"
        );
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for wrong in ["", "30", "soon", "25h", "1 fortnight"] {
            assert!(duration(wrong).unwrap_err().contains("from 0s to 24h"), "{wrong}");
        }
    }
    #[test]
    fn addresses_for_http_are_of_this_machine() {
        let address =
            |text: &str| http_address(text).map(|address| address.map(|address| address.to_string()));
        assert_eq!(address("off"), Ok(None));
        assert_eq!(address("localhost:0").unwrap().unwrap(), "127.0.0.1:0");
        assert_eq!(address("[::1]:9754").unwrap().unwrap(), "[::1]:9754");
        for wrong in ["", "9754", "127.0.0.1", "localhost:x", "10.0.0.1:1", "[::]:1", "unix:///run/a.sock"] {
            assert!(address(wrong).unwrap_err().contains("write off, or a loopback address"), "{wrong}");
        }
    }

    #[test]
    fn the_admin_socket_is_no_other() {
        let flags = Flags {
            admin: Some("/run/a.sock".into()),
            upstream: Some("/run/a.sock".into()),
            ..Flags::default()
        };
        let told = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
        assert_eq!(
            told,
            "--admin \"unix:///run/a.sock\" is the socket of --upstream as well; choose another path"
        );
    }
}
