//! How many calls of each method ended with each code, counted on two sides.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use super::http::get;
use super::server::looks;

/// Calls by method and code, the code in small letters without underscores: that is how two ways to write one become one.
pub(crate) type Accounts = BTreeMap<(String, String), u64>;

/// What containerd has counted of the CRI since its start.
pub(crate) fn of_containerd(metrics: SocketAddr) -> Accounts {
    let text = get(metrics, "/v1/metrics").unwrap();
    let handled = text.lines().filter(|line| line.starts_with("grpc_server_handled_total{"));
    handled
        .filter(|line| line.contains("grpc_service=\"runtime.v1."))
        .filter_map(|line| {
            let label = |name: &str| {
                let (_, value) = line.split_once(&format!("{name}=\""))?;
                Some(value.split_once('"')?.0.to_owned())
            };
            let count: u64 = line.rsplit_once(' ')?.1.parse().ok()?;
            Some(((label("grpc_method")?, plain(&label("grpc_code")?)), count))
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// What probeshim has kept.
pub(crate) fn of_calls(calls: &[Value]) -> Accounts {
    let mut accounts = Accounts::new();
    for call in calls {
        let field = |name: &str| call[name].as_str().unwrap().to_owned();
        let code = match field("code").as_str() {
            // The runtime sees a client that gives up or goes; what it would have answered nobody knows.
            "client-reset" | "abandoned" => "canceled".to_owned(),
            code => plain(code),
        };
        *accounts.entry((field("method"), code)).or_default() += 1;
    }
    accounts
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

fn plain(code: &str) -> String {
    code.to_lowercase().replace('_', "")
}
