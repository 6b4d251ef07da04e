//! The web page in front of real containerd.

use fixtures::containerd::{Containerd, Version};
use fixtures::machine::free_address;
use fixtures::scenarios::execs::Execs;
use fixtures::wait::wait_for;
use fixtures::{http, need};
use serde_json::Value;

#[test]
fn the_page_has_the_phases_and_the_explanation_of_an_exec_of_crictl() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let address = free_address();
    let execs = need!(Execs::start_with(&containerd, &["--http", &address.to_string(), "--http-pods"]));
    let get = |path: &str| -> Value { serde_json::from_str(&http::get(address, path).unwrap()).unwrap() };
    let held = execs.exec(&["sh", "-c", "sleep 2 & exit 0"], 600);
    let calls = get("/page/calls?method=ExecSync&pod=e2e/execs&container=main&peer=crictl");
    assert_eq!(calls["calls"], Value::from(vec![held.clone()]));
    let explained = get(&format!("/page/calls/{}", held["id"]));
    assert_eq!(explained["call"]["exec"]["phases"]["state"], "complete", "{explained:#}");
    assert!(explained["sentences"].to_string().contains("was the drain phase"), "{explained:#}");
    let view = wait_for("the overview has the exec", || {
        Some(get("/page/view")).filter(|view| view["totals"]["attempts"] == 1)
    });
    assert_eq!(view["slowestCalls"][0]["call"]["id"], held["id"], "{view:#}");
    assert_eq!(view["pods"][0]["containers"][0]["state"], "running", "{view:#}");
    assert!(view["node"]["runtime"].as_str().is_some_and(|name| name.starts_with("containerd ")), "{view:#}");
    execs.end();
}
