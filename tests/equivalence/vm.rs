//! Comparison on runc and crun in a virtual machine, which has AppArmor and all controllers of
//! cgroup v2. It adds the kinds of containers that need them.

use std::env;
use std::process::Command;

use fixtures::machine::{program_under_test, tool};
use fixtures::need;
use fixtures::vm::{Payload, Vm};
use serde_json::{Value, json};

use crate::containers::node::{APPARMOR_PROFILES, LIMITED};
use crate::{KINDS, OCI_RUNTIMES, images};

/// A wrapper of an OCI runtime, which vm.sh has sealed. Debian's crun refuses specifications of
/// versions newer than its own.
const OLDER_VERSION: &str = r#"#!/bin/sh
bundle=$(printf '%s\n' "$@" | grep -A1 -x -e '--bundle' -e '-b' | tail -n 1)
[ -n "$bundle" ] && sed -E -i 's/"ociVersion": ?"[^"]*"/"ociVersion":"1.0.2"/' "$bundle/config.json"
exec "/payload/sealed/$(basename "$0")" "$@"
"#;

#[test]
fn a_command_is_the_same_with_and_without_runc_and_crun_in_a_virtual_machine() {
    let vm = need!(Vm::new());
    let outcome = vm.run(need!(payload()));
    for name in OCI_RUNTIMES {
        println!("{name}:\n{}\n", outcome.text(name));
    }
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
}

fn payload() -> Result<Payload, String> {
    let payload = Payload::new(include_str!("vm.sh"))
        .tool("containerd-2.2")?
        .program("probeshim", program_under_test())
        .program("equivalence", env::current_exe().unwrap())
        .images(&images()?)
        .file("kinds", env::var(KINDS).unwrap_or_default().as_bytes());
    let handler = |name: &str, program: &str, options: &str| {
        format!(
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}]\n\
             runtime_type = \"io.containerd.runc.v2\"\n{options}\
             options = {{ SystemdCgroup = true, BinaryName = \"{program}\" }}\n"
        )
    };
    let limits = "base_runtime_spec = \"/payload/limited.json\"\n";
    let handlers = OCI_RUNTIMES.map(|name| {
        let program = format!("/payload/oci/{name}");
        let name = format!("matrix-{name}");
        handler(&name, &program, "") + &handler(&(name + LIMITED), &program, limits)
    });
    Ok(OCI_RUNTIMES
        .iter()
        .fold(payload, |payload, name| payload.executable(&format!("oci/{name}"), OLDER_VERSION.as_bytes()))
        .file("limited.json", limited_spec()?.to_string().as_bytes())
        .file("seal.pl", include_bytes!("seal.pl"))
        .file("handlers.toml", handlers.concat().as_bytes())
        .file("apparmor", apparmor_profiles().as_bytes()))
}

/// Returns containerd's specification of a container, with a umask and resource limits that differ
/// from those of containerd. Fails if a program is missing.
fn limited_spec() -> Result<Value, String> {
    let output = Command::new(tool("containerd-2.2")?.join("ctr")).args(["oci", "spec"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut spec: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rlimit = |name: &str, soft: u64, hard: u64| json!({"type": name, "soft": soft, "hard": hard});
    spec["process"]["rlimits"] = json!([
        // With a lower soft limit, a command of runc before 1.2 has one or the other: Go raises the
        // limit of `runc init` while `runc exec` sets it.
        rlimit("RLIMIT_NOFILE", 1000, 1000),
        rlimit("RLIMIT_CORE", 0, 0),
        rlimit("RLIMIT_NPROC", 1500, 2000),
        rlimit("RLIMIT_STACK", 4 << 20, 1 << 30),
        rlimit("RLIMIT_MEMLOCK", 1 << 16, 1 << 16),
        rlimit("RLIMIT_FSIZE", 1 << 26, 1 << 27),
    ]);
    spec["process"]["user"]["umask"] = json!(0o27);
    Ok(spec)
}

/// Returns the profiles in the language of AppArmor.
fn apparmor_profiles() -> String {
    let [denies, complains] = APPARMOR_PROFILES;
    let common = "network, capability, file, signal, ptrace, umount,";
    format!(
        "profile {denies} flags=(attach_disconnected,mediate_deleted) {{\n\
           {common}\n  deny /tmp/** w,\n  deny capability mknod,\n}}\n\
         profile {complains} flags=(attach_disconnected,mediate_deleted,complain) {{\n\
           {common}\n}}\n"
    )
}
