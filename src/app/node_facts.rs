//! Facts about the node and the settings, for the record of results over time.

use std::thread::available_parallelism;
use std::time::SystemTime;

use procfs::Current as _;

use crate::build_info;
use crate::config::ServerConfig;
use crate::history::json::time;
use crate::history::timeline::NodeFacts;
use crate::terminal::format;

/// Returns the facts about this node, and the settings that matter for results.
pub(super) fn node_facts(config: &ServerConfig) -> NodeFacts {
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let enforce = config.enforcement.mode.name().to_owned();
    let on_or_off = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
    let settings = [
        ("enforce", enforce),
        ("redact-commands", on_or_off(config.exec.redact_commands)),
        ("slow-threshold", format::duration(config.exec.slow)),
        ("upstream", config.relay.upstream.to_string()),
        ("watch-runtime", on_or_off(config.watch_runtime)),
    ];
    NodeFacts {
        started: time(SystemTime::now()),
        host: text(system.nodename()),
        version: build_info::full_version().to_owned(),
        processors: available_parallelism().ok().map(Into::into),
        memory_bytes: procfs::Meminfo::current().ok().map(|memory| memory.mem_total),
        kernel: format!("{} {}", text(system.sysname()), text(system.release())),
        runtime: None,
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}
