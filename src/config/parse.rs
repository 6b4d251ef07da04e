//! Values as people write them, read one by one; what is wrong is collected.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;

use super::{ConfigProblem, Environment, RECORD};
use crate::history::journal;
use crate::manifest::Files;
use crate::prober::{EnforcementMode, KillLimit};
use crate::socket::SocketPath;
use crate::telemetry;
use crate::telemetry::traces::{self, Endpoint};

/// The longest duration that a flag takes.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// Collects what is wrong while values are read.
#[derive(Default)]
pub(super) struct Validator {
    pub(super) problems: Vec<ConfigProblem>,
    /// Where flags are written that come from a file, by their names.
    pub(super) written: BTreeMap<&'static str, String>,
}

impl Validator {
    pub(super) fn admin(&mut self, flag: Option<&str>, around: &Environment) -> Option<SocketPath> {
        match flag {
            Some(socket) => self.read("--admin", socket, socket_path),
            None => self.default_from("--admin", around.default_socket("admin.sock")),
        }
    }

    /// Files and folders of manifests; everything that is wrong with files that are named is a problem of its own.
    pub(super) fn files(&mut self, paths: &[PathBuf], redacts: bool) -> Files {
        Files::read(paths, redacts).unwrap_or_else(|errors| {
            for error in errors {
                self.error("--manifests", None, error);
            }
            Files::default()
        })
    }

    /// What is recorded on disk, if anything is; what is wrong with it is a problem as well.
    pub(super) fn journal(
        &mut self,
        state: Option<&Path>,
        record: Option<&str>,
        around: &Environment,
    ) -> Option<journal::JournalConfig> {
        let limit = self.read_or("--record-limit", record, RECORD, size)??;
        if state.is_none() && record.is_none() {
            // Nobody asked for it, and there is no place for it.
            return None;
        }
        let state = state.map(Path::to_owned);
        let state = self.default_from("--state-dir", state.map_or_else(|| around.require_state_dir(), Ok))?;
        Some(journal::JournalConfig { dir: state.join("calls"), limit })
    }

    /// Where traces go, if anywhere; what is wrong with it is a problem as well.
    pub(super) fn traces(&mut self, otlp: Option<&str>, around: &Environment) -> Option<traces::TraceConfig> {
        match otlp {
            Some("off") => None,
            None => around.has_collector.then_some(traces::TraceConfig { endpoint: None }),
            Some("on") => Some(traces::TraceConfig { endpoint: None }),
            Some(endpoint) => {
                let endpoint = self.read("--otlp-endpoint", endpoint, Endpoint::parse)?;
                Some(traces::TraceConfig { endpoint: Some(endpoint) })
            }
        }
    }

    pub(super) fn error(&mut self, field: &'static str, value: Option<&str>, reason: String) {
        let field = self.written.get(field).cloned().unwrap_or_else(|| field.to_owned());
        self.problems.push(ConfigProblem { field, value: value.map(str::to_owned), reason });
    }

    pub(super) fn read<T>(
        &mut self,
        field: &'static str,
        value: &str,
        read: fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        read(value).map_err(|reason| self.error(field, Some(value), reason)).ok()
    }

    /// Reads what was written, or else the default.
    pub(super) fn read_or<T>(
        &mut self,
        field: &'static str,
        value: Option<&str>,
        default: &str,
        read: fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.read(field, value.unwrap_or(default), read)
    }

    pub(super) fn default_from<T>(&mut self, field: &'static str, default: Result<T, String>) -> Option<T> {
        default.map_err(|reason| self.error(field, None, reason)).ok()
    }
}

pub(super) fn socket_path(value: &str) -> Result<SocketPath, String> {
    SocketPath::parse(value).map_err(|error| error.to_string())
}

/// Reads a folder; a relative one starts at the working directory.
pub(super) fn dir(value: &str) -> Result<PathBuf, String> {
    std::path::absolute(value).map_err(|_| "is empty; write the path of a folder".to_owned())
}

/// Reads how many kills there may be, such as `5/1h`, or `off` for any number.
pub(super) fn kill_limit(value: &str) -> Result<Option<KillLimit>, String> {
    let allowed = "write off, or a count from 1 and a duration from 1s to 24h, such as 5/1h";
    if value == "off" {
        return Ok(None);
    }
    let read = value.split_once('/').and_then(|(count, within)| {
        let count = count.parse().ok().filter(|count| *count > 0)?;
        let within = duration(within).ok().filter(|within| *within >= Duration::from_secs(1))?;
        Some(KillLimit { count, within })
    });
    read.map(Some).ok_or_else(|| format!("is not a number of kills; {allowed}"))
}

/// Reads an address such as `127.0.0.1:9754`, or `off` for none.
pub(super) fn http_address(value: &str) -> Result<Option<SocketAddr>, String> {
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
pub(super) fn duration(value: &str) -> Result<Duration, String> {
    let allowed = "write a duration from 0s to 24h, such as 500ms, 30s or 1m30s";
    let read: SignedDuration = value.parse().map_err(|_| format!("is not a duration; {allowed}"))?;
    Duration::try_from(read)
        .ok()
        .filter(|read| *read <= MAX_DURATION)
        .ok_or_else(|| format!("is out of range; {allowed}"))
}

/// Reads a size such as `64MiB`, or `off` for none.
fn size(value: &str) -> Result<Option<u64>, String> {
    let allowed = "write off, or a size from 1MiB to 1TiB, such as 64MiB or 1GiB";
    if value == "off" {
        return Ok(None);
    }
    let split = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(split);
    let unit = match unit {
        "MiB" => Some(1_u64 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1 << 40),
        _ => None,
    };
    let read = number.parse::<u64>().ok().zip(unit).ok_or_else(|| format!("is not a size; {allowed}"))?;
    let bytes = read.0.checked_mul(read.1).filter(|bytes| (1 << 20..=1 << 40).contains(bytes));
    bytes.map(Some).ok_or_else(|| format!("is out of range; {allowed}"))
}

/// Reads `on` or `off`.
pub(super) fn on_or_off(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is neither on nor off".to_owned()),
    }
}

/// Reads what is done about probes.
pub(super) fn mode(value: &str) -> Result<EnforcementMode, String> {
    choice(
        value,
        [EnforcementMode::Off, EnforcementMode::DryRun, EnforcementMode::Kill, EnforcementMode::Restart],
    )
}

/// The same for pods that are played: whoever kills them starts them again.
pub(super) fn mode_of_play(value: &str) -> Result<EnforcementMode, String> {
    choice(value, [EnforcementMode::Off, EnforcementMode::DryRun, EnforcementMode::Restart])
}

fn choice<const N: usize>(value: &str, modes: [EnforcementMode; N]) -> Result<EnforcementMode, String> {
    let found = modes.into_iter().find(|mode| mode.name() == value);
    found.ok_or_else(|| format!("is none of {}", modes.map(EnforcementMode::name).join(", ")))
}

/// Reads how long a demo lasts: long enough to see something.
pub(super) fn demo_length(value: &str) -> Result<Duration, String> {
    let allowed = "write a duration from 1s to 24h, such as 30s or 5m";
    let read = duration(value).ok().filter(|read| *read >= Duration::from_secs(1));
    read.ok_or_else(|| format!("is not how long a demo can last; {allowed}"))
}

pub(super) fn log_filter(value: &str) -> Result<telemetry::LogConfig, String> {
    let allowed =
        "write off, error, warn, info, debug or trace, or directives such as probeshim::relay=debug";
    telemetry::LogConfig::parse(value).map_err(|error| format!("is not a log filter ({error}); {allowed}"))
}
