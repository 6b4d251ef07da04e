//! Commands without the runtime that are scripts: the kernel puts their interpreter in front.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::Execs;
use fixtures::wait::wait_for;
use regex::Regex;
use serde_json::{Value, json};

use crate::direct::{direct_all, direct_in, root_of, verified};

/// Body of a script, which fails unless it gets its argument.
const BODY: &str = "[ \"$#,$1\" = \"1,a b\" ] && exit 7\nexit 8\n";

/// Writes an executable file in a container.
fn write(execs: &Execs, pod: &Pod, path: &str, text: &str) {
    let path = root_of(execs, &pod.container).join(path.trim_start_matches('/'));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
}

/// Asserts that a container whose commands are all this one is verified, with files and further
/// fields in its config.
fn is_verified_by(
    execs: &Execs,
    containerd: &Containerd,
    files: &[(&str, &str)],
    program: &str,
    more: &Value,
) {
    let pod = Pod::with(&execs.crictl, containerd.folder(), "script", more);
    for (path, text) in files {
        write(execs, &pod, path, text);
    }
    let call = wait_for(&format!("{files:?} is verified"), || direct_in(execs, &pod, &[program, "a b"]));
    assert_eq!(call["exec"]["exitCode"], 7, "{files:?}: {call}");
    pod.remove(&execs.crictl);
}

#[test]
fn a_container_whose_only_command_is_a_script_is_verified() {
    let (containerd, execs) = need!(direct_all());
    let verified_by = |files: &[(&str, &str)], program: &str, more: &Value| {
        is_verified_by(&execs, &containerd, files, program, more);
    };
    let script = |first: &str| format!("{first}\n{BODY}");
    for first in ["#!/bin/sh", "#!/bin/sh -e", "#! /bin/env sh"] {
        verified_by(&[("/p.sh", &script(first))], "/p.sh", &Value::Null);
    }
    let nested = [("/p.sh", &*script("#!/inner")), ("/inner", "#!/bin/sh\nexec sh \"$@\"\n")];
    verified_by(&nested, "/p.sh", &Value::Null);
    verified_by(&[("/bin/probe", &script("#!/bin/sh"))], "probe", &Value::Null);
    verified_by(&[("/tmp/p.sh", &script("#!/bin/sh"))], "./p.sh", &json!({"working_dir": "/tmp"}));
    execs.end();
}

#[test]
fn a_script_that_cannot_be_executed_fails_as_with_the_runtime() {
    let (containerd, execs) = need!(direct_all());
    let runtime = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let scripts = [("/missing", "#!/no/interpreter\n"), ("/plain", "exit 7\n"), ("/self", "#!/self\n")];
    for (path, text) in scripts {
        write(&execs, &execs.pod, path, text);
    }
    let varies = Regex::new("[0-9a-f]{64}|time=\"[^\"]*\"").unwrap();
    let failure = |crictl: &Crictl, path: &str| {
        let output = crictl.run(&["exec", "-s", &execs.pod.container, path]);
        (output.code, varies.replace_all(&output.stderr, "").into_owned())
    };
    let are_equal = || {
        for (path, _) in scripts {
            let expected = failure(&runtime, path);
            assert!(expected.1.contains("exec"), "{path}: {expected:?}");
            assert_eq!(failure(&execs.crictl, path), expected, "{path}");
            assert_eq!(execs.all().last().unwrap()["policy"], json!([]), "{path}");
        }
    };
    are_equal();
    // No process of these commands exists at an exec, and no cause is known.
    let expected = json!("no process of the runtime was recorded for the command");
    let reason = wait_for("the reason is known", || {
        execs.exec(&["/missing"], 60);
        let status = execs.shim.json(&["status"]);
        let container = status["execPolicies"]["directContainers"][0].clone();
        (container["reason"] != Value::Null).then_some(container["reason"].clone())
    });
    assert_eq!(reason, expected);
    verified(&execs, &["true"]);
    are_equal();
    execs.end();
}
