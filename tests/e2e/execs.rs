//! Where the time of an ExecSync goes, on real containerd: what probeshim says of calls whose answer is known.


use crate::support::skip::need;
use crate::real::containerd::{Containerd, Version};
use crate::real::execs::Execs;

#[test]
fn is_told_by_containerd_2_2() {
    told_by(Version::V2_2);
}

#[test]
fn is_told_by_containerd_1_6() {
    told_by(Version::V1_6);
}

fn told_by(version: Version) {
    let containerd = need!(Containerd::start(version));
    let execs = need!(Execs::start(&containerd));
    println!("{}", serde_json::to_string_pretty(&execs.exec(&["true"], 0)).unwrap());
    println!("{}", serde_json::to_string_pretty(&execs.exec(&["sleep", "2"], 0)).unwrap());
    println!("{}", serde_json::to_string_pretty(&execs.exec(&["sleep", "5"], 1)).unwrap());
    println!("{}", serde_json::to_string_pretty(&execs.exec(&["sh", "-c", "sleep 2 & exit 0"], 0)).unwrap());
    println!("{}", serde_json::to_string_pretty(&execs.exec(&["nothing-like-that"], 0)).unwrap());
    println!("{}", execs.shim.ask(&["status"]));
    println!("{}", execs.shim.ask(&["calls"]));
    println!("{}", execs.shim.ask(&["events"]));
    for call in execs.shim.calls().iter().filter(|call| call["method"] == "ExecSync") {
        println!("{}", execs.shim.ask(&["explain", &call["id"].to_string()]));
    }
    execs.end();
}
