//! Commands without the runtime in containers with long texts: a home directory, an environment,
//! arguments.

use std::fs;

use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

use crate::direct::{direct_all, direct_in, root_of, verified};

/// Maximum length of a reason in a record, in bytes.
const MAX_REASON_BYTES: usize = 1100;

/// Fields of a container with this number of environment variables of 600 bytes.
fn environment(variables: usize) -> Value {
    let value = "a".repeat(590);
    let envs: Vec<Value> =
        (0..variables).map(|number| json!({"key": format!("V{number:07}"), "value": value})).collect();
    json!({"envs": envs})
}

#[test]
fn a_home_directory_of_any_length_leaves_commands_to_the_runtime() {
    let (_containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let passwd = root_of(&execs, &execs.pod.container).join("etc/passwd");
    let before = fs::read(&passwd).unwrap();
    for length in [100, 4_000, 8_000, 100_000, 300_000, 2_000_000] {
        fs::write(&passwd, format!("root:x:0:0:root:/{}:/bin/sh\n", "a".repeat(length))).unwrap();
        let call = execs.exec(&["true"], 60);
        // The runtime cannot execute a command with a variable of more than 128 KiB.
        assert!(call["code"] == "OK" || length > 8_000, "{length}: {}", call["message"]);
        assert_eq!(call["policy"], json!([]), "{length}: {}", call["message"]);
        let reason = call["forwardedBecause"].as_str().unwrap();
        assert!(reason.starts_with("HOME: ") && reason.len() < MAX_REASON_BYTES, "{length}: {reason}");
    }
    fs::write(&passwd, before).unwrap();
    assert_eq!(execs.exec(&["true"], 60)["policy"], json!(["direct"]));
    execs.end();
}

#[test]
fn an_environment_of_up_to_128_kib_is_supported_and_a_longer_one_is_named() {
    let (containerd, execs) = need!(direct_all());
    let long = Pod::with(&execs.crictl, containerd.folder(), "long", &environment(210));
    wait_for("the container is verified", || direct_in(&execs, &long, &["true"]));
    // The rest of a message has room for some arguments.
    let arguments = |length: usize| ["true".to_owned(), "a".repeat(length)];
    let exec = |length| {
        let arguments = arguments(length);
        execs.exec_in(&long, &arguments.each_ref().map(String::as_str), 60)
    };
    assert_eq!(exec(30_000)["policy"], json!(["direct"]));
    let call = exec(90_000);
    assert_eq!((&call["code"], &call["policy"]), (&json!("OK"), &json!([])), "{}", call["message"]);
    let expected = "the arguments, the environment and the seccomp filters of the command have together more \
                    than 196608 bytes";
    assert_eq!(call["forwardedBecause"], expected);
    long.remove(&execs.crictl);

    let longer = Pod::with(&execs.crictl, containerd.folder(), "longer", &environment(230));
    let expected = "the environment of the container is longer than 131072 bytes";
    wait_for("the container is left to the runtime", || {
        let call = execs.exec_in(&longer, &["true"], 60);
        assert_eq!((&call["code"], &call["policy"]), (&json!("OK"), &json!([])), "{}", call["message"]);
        (call["forwardedBecause"] == expected).then_some(())
    });
    let status = execs.shim.json(&["status"]);
    let known = status["execPolicies"]["directContainers"].as_array().unwrap();
    let found = known.iter().find(|container| container["id"] == longer.container).unwrap();
    assert_eq!((&found["state"], &found["reason"]), (&json!("forwarded"), &json!(expected)));
    longer.remove(&execs.crictl);
    execs.end();
}
