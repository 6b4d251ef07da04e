//! How many calls of each method ended in which way, counted on two sides.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use super::http::get;
use super::server::looks;

/// Calls by method and by how they ended.
pub(crate) type Accounts = BTreeMap<(String, String), u64>;

/// What containerd has counted since its start, by gRPC code: in small letters without underscores, so that two ways to write one
/// become one.
pub(crate) fn of_containerd(metrics: SocketAddr) -> Accounts {
    let text = get(metrics, "/v1/metrics").unwrap();
    let handled = series(&text, "grpc_server_handled_total");
    let handled = handled.filter(|labels| labels.text.contains("grpc_service=\"runtime.v1."));
    let accounts =
        handled.map(|labels| ((labels.get("grpc_method"), plain(&labels.get("grpc_code"))), labels.value));
    accounts.filter(|(_, count)| *count > 0).collect()
}

/// What CRI-O has counted since its start: those that went well and those that failed.
pub(crate) fn of_crio(metrics: SocketAddr) -> Accounts {
    let text = get(metrics, "/metrics").unwrap();
    let count = |name| series(&text, name).map(|labels| (labels.get("operation"), labels.value));
    let failed: BTreeMap<String, u64> = count("container_runtime_crio_operations_errors_total").collect();
    let mut accounts = Accounts::new();
    for (method, all) in count("container_runtime_crio_operations_total") {
        let failed = failed.get(&method).copied().unwrap_or(0);
        accounts.insert((method.clone(), "failed".to_owned()), failed);
        accounts.insert((method, "ok".to_owned()), all - failed);
    }
    accounts.retain(|_, count| *count > 0);
    accounts
}

/// What probeshim has kept, told apart as containerd does.
pub(crate) fn by_code(calls: &[Value]) -> Accounts {
    count(calls, |code| match code {
        // The runtime sees a client that gives up or goes; what it would have answered nobody knows.
        // It also resets a call itself whose deadline is over, and that reset may be the first to be seen.
        "client-reset" | "client-gone" | "upstream-reset" => "canceled".to_owned(),
        code => plain(code),
    })
}

/// What probeshim has kept, told apart as CRI-O does.
pub(crate) fn by_failure(calls: &[Value]) -> Accounts {
    count(calls, |code| if code == "OK" { "ok" } else { "failed" }.to_owned())
}

/// Waits until both sides count the same, which is a moment after the last call has its answer, and returns it.
pub(crate) fn agree(ours: impl Fn() -> Accounts, theirs: impl Fn() -> Accounts) -> Accounts {
    for () in looks() {
        let counted = theirs();
        if ours() == counted {
            return counted;
        }
    }
    let (ours, theirs) = (ours(), theirs());
    let missing: Vec<_> = theirs.iter().filter(|(key, count)| ours.get(*key) != Some(count)).collect();
    let invented: Vec<_> = ours.iter().filter(|(key, count)| theirs.get(*key) != Some(count)).collect();
    panic!("counted by the runtime: {missing:?}; seen by probeshim: {invented:?}");
}

/// What came between two counts.
pub(crate) fn difference(after: &Accounts, before: &Accounts) -> Accounts {
    let grown = after.iter().map(|(key, count)| (key.clone(), count - before.get(key).unwrap_or(&0)));
    grown.filter(|(_, count)| *count > 0).collect()
}

fn count(calls: &[Value], how_it_ended: impl Fn(&str) -> String) -> Accounts {
    let mut accounts = Accounts::new();
    for call in calls {
        let (method, code) = (call["method"].as_str().unwrap(), call["code"].as_str().unwrap());
        *accounts.entry((method.to_owned(), how_it_ended(code))).or_default() += 1;
    }
    accounts
}

fn plain(code: &str) -> String {
    code.to_lowercase().replace('_', "")
}

/// A line of a family of counters.
pub(crate) struct Series<'a> {
    text: &'a str,
    pub(crate) value: u64,
}

/// The lines of a family, in the text that Prometheus reads.
pub(crate) fn series<'a>(text: &'a str, family: &'a str) -> impl Iterator<Item = Series<'a>> {
    let lines = text.lines().filter_map(move |line| line.strip_prefix(family)?.strip_prefix('{'));
    lines.filter_map(|line| {
        let (text, value) = line.rsplit_once("} ")?;
        Some(Series { text, value: value.parse().ok()? })
    })
}

impl Series<'_> {
    /// The value of a label.
    pub(crate) fn get(&self, label: &str) -> String {
        let value = self.text.split_once(&format!("{label}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.unwrap_or_else(|| panic!("no {label} in {}", self.text)).0.to_owned()
    }
}
