//! Commands without the runtime in containers that turn hostile after their verification.

use std::fs;

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::Execs;
use fixtures::wait::wait_for;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::direct::{add_setuid_busybox, direct_all, direct_in, init_of, pod_of_user, root_of, verified};

/// File of a container whose init process is to become hostile.
const GO: &str = "go";

/// Commands that each hostile container gets.
const COMMANDS: usize = 4;

/// Starts a pod, waits until it is verified, and then lets its init process run `script`.
fn hostile(execs: &Execs, containerd: &Containerd, name: &str, script: &str, more: &Value) -> Pod {
    let command = format!("until [ -e /{GO} ]; do sleep 0.1; done; {script}");
    let mut config = json!({"command": ["/bin/sh", "-c", command]});
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let pod = Pod::with(&execs.crictl, containerd.folder(), name, &config);
    wait_for("the container is verified", || direct_in(execs, &pod, &["true"]));
    fs::write(root_of(execs, &pod.container).join(GO), "").unwrap();
    pod
}

/// Waits until the helper has no children.
pub(crate) fn has_no_children(helper: Pid) {
    let pid = helper.as_raw_nonzero();
    wait_for("the helper has no children", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.is_empty().then_some(())
    });
}

#[test]
fn an_init_process_that_sends_signals_to_all_harms_only_its_own_container() {
    let (containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let helper = execs.shim.exec_helper().unwrap();
    // In the namespace of the pod, the signals would end the sandbox and with it the container.
    let own_namespace = json!({"linux": {"security_context": {"namespace_options": {"pid": 1}}}});
    for signals in ["KILL", "STOP", "TRAP", "STOP CONT"] {
        let kills = signals.split(' ').map(|signal| format!("kill -{signal} -1"));
        let script = format!("while true; do {}; done", kills.collect::<Vec<_>>().join("; "));
        let name = signals.to_lowercase().replace(' ', "-");
        let pod = hostile(&execs, &containerd, &name, &script, &own_namespace);
        let init = init_of(&execs, &pod.container);
        for _ in 0..COMMANDS {
            let call = execs.exec_in(&pod, &["true"], 2);
            // The runtime fails too if its process is hit.
            let ends = ["OK", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL"];
            assert!(ends.iter().any(|code| call["code"] == *code), "{signals}: {call}");
            let neighbour = execs.exec(&["true"], 60);
            let found = (&neighbour["policy"], &neighbour["exec"]["exitCode"]);
            assert_eq!(found, (&json!(["direct"]), &json!(0)), "{signals}: {neighbour}");
        }
        assert_eq!(init_of(&execs, &pod.container), init, "{signals}: the init process has ended");
        pod.remove(&execs.crictl);
    }
    has_no_children(helper);
    assert_eq!(execs.shim.exec_helper(), Some(helper));
    execs.end();
}

#[test]
fn a_passwd_file_that_never_ends_holds_a_command_for_its_timeout_only() {
    let (containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let passwd = root_of(&execs, &execs.pod.container).join("etc/passwd");
    let text = fs::read(&passwd).unwrap();
    fs::remove_file(&passwd).unwrap();
    mknodat(CWD, &passwd, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let neighbour = Pod::new(&execs.crictl, containerd.folder(), "neighbour");
    let held = execs.spawn(&["true"], 5);
    wait_for("the neighbour is verified meanwhile", || direct_in(&execs, &neighbour, &["true"]));
    held.output();
    let call = wait_for("the call is recorded", || {
        execs.all().into_iter().find(|call| call["code"] == "DEADLINE_EXCEEDED")
    });
    assert_eq!(call["policy"], json!(["direct"]), "{call}");
    fs::remove_file(&passwd).unwrap();
    fs::write(&passwd, text).unwrap();
    assert_eq!(execs.exec(&["true"], 60)["policy"], json!(["direct"]));
    has_no_children(execs.shim.exec_helper().unwrap());
    neighbour.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_container_that_leaves_its_namespaces_gets_commands_in_those_that_the_runtime_uses() {
    let (containerd, execs) = need!(direct_all());
    let runtime = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let capabilities = json!({"capabilities": {"add_capabilities": ["SYS_ADMIN"]}});
    let more = json!({"linux": {"security_context": capabilities}});
    let leave = "exec unshare -m -i -u -n sh -c 'while true; do sleep 0.1; done'";
    let pod = hostile(&execs, &containerd, "leaves", leave, &more);
    let init = init_of(&execs, &pod.container);
    wait_for("the init process has left its namespaces", || {
        let line = fs::read_to_string(format!("/proc/{init}/cmdline")).unwrap();
        line.starts_with("sh\0-c\0while").then_some(())
    });
    let print = "for name in mnt ipc uts net pid cgroup; do readlink /proc/self/ns/$name; done";
    let arguments = ["exec", "-s", &pod.container, "sh", "-c", print];
    let direct = execs.crictl.ok(&arguments);
    assert_eq!(execs.all().last().unwrap()["policy"], json!(["direct"]));
    assert_eq!(direct.lines().count(), 6, "{direct}");
    assert_eq!(direct, runtime.ok(&arguments));
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_program_that_changes_its_user_gives_later_commands_no_other_user() {
    let (containerd, execs) = need!(direct_all());
    let pod = pod_of_user(&execs, &containerd, "setuid");
    add_setuid_busybox(&execs, &pod, "/su");
    wait_for("the first command is executed without the runtime", || {
        direct_in(&execs, &pod, &["/su", "true"])
    });
    assert_eq!(execs.crictl.ok(&["exec", "-s", &pod.container, "id", "-u"]), "1000");
    assert_eq!(execs.all().last().unwrap()["policy"], json!(["direct"]));
    pod.remove(&execs.crictl);
    execs.end();
}
