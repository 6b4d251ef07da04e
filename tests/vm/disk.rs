//! A slow disk, which needs the I/O controller of cgroup v2, and the lint that names it.

use fixtures::need;
use fixtures::vm::{Outcome, Vm};
use serde_json::Value;

use crate::{container, payload, pod};

#[test]
fn lints_name_a_slow_disk() {
    let vm = need!(Vm::new());
    let payload = need!(payload::node(include_str!("disk.sh")))
        .file("pod.json", pod().to_string().as_bytes())
        .file("container.json", container().to_string().as_bytes());
    let outcome = vm.run(payload);
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
    assert_eq!(slow_disk(&outcome, "before.json"), None);
    let calls = outcome.text("calls.json");
    let found = slow_disk(&outcome, "lint.json").unwrap_or_else(|| panic!("{}\n{calls}", outcome.log));
    assert_eq!((&found["pod"], &found["container"]), (&"pod".into(), &"main".into()), "{found:#}");
    let sentence = found["sentence"].as_str().unwrap();
    assert!(sentence.contains("processes waited for I/O for at least a tenth of the time"), "{found:#}");
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains("those of the container in "), "{found:#}");
    assert!(!evidence.contains("those of the container in 0 calls"), "{found:#}");
    assert!(found["calls"].as_array().is_some_and(|calls| !calls.is_empty()), "{found:#}");
}

/// Returns the finding about the disk of a container.
fn slow_disk(outcome: &Outcome, file: &str) -> Option<Value> {
    let found = outcome.json(file);
    let is_it = |found: &&Value| found["lint"] == "slow-disk" && found["container"].is_string();
    found.as_array().unwrap().iter().find(is_it).cloned()
}
