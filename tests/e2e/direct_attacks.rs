//! Containers that attack the exec helper, and the loss of the helper.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::{Execs, process_with};
use fixtures::shim::EXEC_HELPER;
use fixtures::wait::wait_for;
use procfs::process::Process;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::json;

use crate::direct::{direct_all, direct_in, init_of, pod_of_user, root_of, verified};

/// Looks at each process of its pid namespace without pause: opens its program, its memory and its
/// descriptors. Writes down what it could open, and what it could overwrite.
const SPY: &str = r#"
while true; do
  for process in /proc/[0-9]*; do
    case "$(readlink "$process/exe" 2>/dev/null)" in
      *probeshim*|*memfd*)
        echo "program $(readlink "$process/exe")" >>/tmp/seen
        (printf overwritten >"$process/exe") 2>/dev/null && echo "program" >>/tmp/overwritten ;;
    esac
    for descriptor in "$process"/fd/*; do
      case "$(readlink "$descriptor" 2>/dev/null)" in
        /sys/fs/cgroup*|/proc*|*pidfd*) echo "descriptor $(readlink "$descriptor")" >>/tmp/seen ;;
      esac
    done
  done
done"#;

/// Looks at each process of its pid namespace without pause, and writes down its name and that of
/// its mount namespace.
const NAMESPACE_SPY: &str = r#"
while true; do
  for process in /proc/[0-9]*; do
    namespace=$(readlink "$process/ns/mnt") && read -r name <"$process/comm" && echo "$name $namespace" >>/tmp/seen
  done 2>/dev/null
done"#;

/// Returns the running helper of a probeshim.
fn helper(execs: &Execs) -> Pid {
    wait_for("the helper runs", || execs.shim.exec_helper())
}

#[test]
fn a_killed_helper_fails_no_probe_and_leaves_no_process() {
    let (_containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let first = helper(&execs);
    let running = execs.spawn(&["sleep", "4321"], 0);
    let sleeps = wait_for("the command runs", || process_with("sleep", "4321"));
    kill_process(first, Signal::KILL).unwrap();
    let output = running.output();
    let message = "failed to exec in container: the exec helper of probeshim ended while the command ran";
    assert!(output.stderr.contains(message) && output.stderr.contains("Unknown"), "{output:?}");
    wait_for("the command has ended", || process_with("sleep", "4321").is_none().then_some(()));
    assert!(!std::path::Path::new(&format!("/proc/{sleeps}/root/bin")).exists());
    // Calls meanwhile go to the runtime, and later ones to a new helper.
    let next = wait_for("a new helper executes commands", || {
        let call = execs.exec(&["true"], 60);
        assert_eq!(call["code"], "OK", "{call}");
        (call["policy"] == json!(["direct"])).then_some(call)
    });
    assert_eq!(next["exec"]["exitCode"], 0);
    assert_ne!(helper(&execs), first);
    execs.end();
}

#[test]
fn a_helper_at_its_limit_of_open_files_leaves_commands_to_the_runtime_and_goes_on() {
    let (_containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let helper = helper(&execs);
    let open = fs::read_dir(format!("/proc/{}/fd", helper.as_raw_nonzero())).unwrap();
    let numbers = open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap());
    let open = numbers.max().unwrap() + 1;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let set = |current| prlimit(Some(helper), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let before = set(Some(open)).current;
    // Room for none and some of the descriptors of a launch, and for all but that of the process.
    for more in [0, 3, 5] {
        set(Some(open + more));
        let call = execs.exec(&["true"], 60);
        assert_eq!((&call["code"], &call["policy"]), (&json!("OK"), &json!([])), "{more}: {call}");
        let reason = call["forwardedBecause"].as_str().unwrap().to_lowercase();
        assert!(reason.contains("too many open files"), "{more}: {reason}");
    }
    set(before);
    assert_eq!(execs.exec(&["true"], 60)["policy"], json!(["direct"]));
    assert_eq!(execs.shim.exec_helper(), Some(helper));
    execs.end();
}

#[test]
fn a_container_sees_neither_the_program_nor_the_descriptors_of_the_helper() {
    let (containerd, execs) = need!(direct_all());
    let spy =
        Pod::with(&execs.crictl, containerd.folder(), "spy", &json!({"command": ["/bin/sh", "-c", SPY]}));
    wait_for("the container is verified", || direct_in(&execs, &spy, &["true"]));
    for _ in 0..50 {
        let call = execs.exec_in(&spy, &["true"], 60);
        assert_eq!(call["policy"], json!(["direct"]), "{call}");
    }
    for file in ["/tmp/seen", "/tmp/overwritten"] {
        let found = execs.crictl.run(&["exec", "-s", &spy.container, "cat", file]).stdout;
        assert_eq!(found, "", "{file}");
    }
    spy.remove(&execs.crictl);
    // A container that may trace processes is left to the runtime.
    let tracing =
        json!({"linux": {"security_context": {"capabilities": {"add_capabilities": ["SYS_PTRACE"]}}}});
    let tracing = Pod::with(&execs.crictl, containerd.folder(), "tracing", &tracing);
    wait_for("the container is refused", || {
        let call = execs.exec_in(&tracing, &["true"], 60);
        assert_eq!(call["policy"], json!([]), "{call}");
        let reason = call["forwardedBecause"].as_str().unwrap();
        reason.contains("CAP_SYS_PTRACE without CAP_SYS_ADMIN is not supported").then_some(())
    });
    tracing.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_neighbour_that_may_trace_processes_sees_only_namespaces_of_containers() {
    let (containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    // Containers of the pod share a pid namespace.
    let more = json!({
        "command": ["/bin/sh", "-c", NAMESPACE_SPY],
        "linux": {"security_context": {"capabilities": {"add_capabilities": ["SYS_PTRACE"]}}},
    });
    let spy = execs.pod.start_neighbour(&execs.crictl, containerd.folder(), "spy", &more);
    let file = format!("/proc/{}/root/tmp/seen", init_of(&execs, &spy));
    // The child of the helper has the helper's name until it executes the command.
    let seen = wait_for("the spy has seen ten children of the helper", || {
        let call = execs.exec(&["true"], 60);
        assert_eq!(call["policy"], json!(["direct"]), "{call}");
        let seen = fs::read_to_string(&file).unwrap_or_default();
        (seen.lines().filter(|line| line.starts_with(EXEC_HELPER)).count() >= 10).then_some(seen)
    });
    let seen: BTreeSet<&str> = seen.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let namespace = |pid: i64| {
        let link = fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        link.to_str().unwrap().to_owned()
    };
    for container in [&execs.pod.container, &spy] {
        assert!(seen.contains(&*namespace(init_of(&execs, container))), "{container} is not in {seen:?}");
    }
    let helper = helper(&execs).as_raw_nonzero().get();
    for pid in [helper.into(), execs.shim.pid().into(), containerd.pid().into()] {
        assert!(!seen.contains(&*namespace(pid)), "process {pid} of the node is in {seen:?}");
    }
    execs.end();
}

#[test]
fn a_working_directory_that_leads_to_a_descriptor_of_the_helper_is_refused() {
    let (containerd, execs) = need!(direct_all());
    let more = json!({"working_dir": "/work", "image": {"image": BUSYBOX}});
    let pod = Pod::with(&execs.crictl, containerd.folder(), "links", &more);
    wait_for("the container is verified", || direct_in(&execs, &pod, &["true"]));
    for descriptor in 3..24 {
        let link = format!("cd / && rm -rf /work && ln -s /proc/self/fd/{descriptor} /work");
        // The command itself may have no working directory any more.
        execs.crictl.run(&["exec", &pod.container, "sh", "-c", &link]);
        let call = execs.exec_in(&pod, &["ls", "../../.."], 60);
        assert_eq!(call["policy"], json!([]), "descriptor {descriptor}: {call}");
        let reason = call["forwardedBecause"].as_str().unwrap();
        assert!(reason.starts_with("working directory: "), "descriptor {descriptor}: {reason}");
        let mend = "rm -rf /work && mkdir /work";
        let mut mended = std::process::Command::new("chroot");
        let mended =
            mended.arg(root_of(&execs, &pod.container)).args(["/bin/sh", "-c", mend]).status().unwrap();
        assert!(mended.success());
        assert!(direct_in(&execs, &pod, &["true"]).is_some(), "after descriptor {descriptor}");
    }
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_command_of_root_cannot_change_the_null_device_of_the_node() {
    let (containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let (node, own) = (Path::new("/dev/null"), root_of(&execs, &execs.pod.container).join("dev/null"));
    let before = mode(node);
    let change = verified(&execs, &["chmod", "0640", "/proc/self/fd/0"]);
    let after = mode(node);
    fs::set_permissions(node, Permissions::from_mode(before)).unwrap();
    assert_eq!(change["exec"]["exitCode"], 0, "{change}");
    assert_eq!((after, mode(&own)), (before, 0o640));
    // A user without access to the device gets it open, as from the runtime.
    let pod = pod_of_user(&execs, &containerd, "user");
    let null = root_of(&execs, &pod.container).join("dev/null");
    fs::set_permissions(&null, Permissions::from_mode(0o600)).unwrap();
    let read = wait_for("the container is verified", || direct_in(&execs, &pod, &["cat"]));
    assert_eq!(read["exec"]["exitCode"], 0, "{read}");
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_container_without_a_null_device_is_left_to_the_runtime_and_holds_no_call() {
    let (_containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let dev = root_of(&execs, &execs.pod.container).join("dev");
    let (null, saved) = (dev.join("null"), dev.join("saved"));
    fs::rename(&null, &saved).unwrap();
    let is_left = |file: &str, reason: &str| {
        let call = execs.exec(&["true"], 60);
        // The runtime needs some of these files too.
        assert_eq!(call["policy"], json!([]), "{file}: {call}");
        let found = call["forwardedBecause"].as_str().unwrap();
        assert!(found.starts_with("standard input: ") && found.contains(reason), "{file}: {found}");
    };
    is_left("none", "No such file");
    fs::write(&null, "text").unwrap();
    is_left("a regular file", "/dev/null of the container is another file");
    fs::remove_file(&null).unwrap();
    mknodat(CWD, &null, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    is_left("a FIFO", "/dev/null of the container is another file");
    fs::remove_file(&null).unwrap();
    symlink("saved", &null).unwrap();
    is_left("a link", "symbolic links");
    fs::rename(&saved, &null).unwrap();
    assert_eq!(execs.exec(&["true"], 60)["policy"], json!(["direct"]));
    execs.end();
}

#[test]
fn a_container_whose_cgroup_does_not_name_it_is_left_to_the_runtime_with_that_reason() {
    let (_containerd, execs) = need!(direct_all());
    let init = init_of(&execs, &execs.pod.container);
    let mounts = Process::myself().unwrap().mountinfo().unwrap();
    let hierarchy = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2").unwrap().mount_point;
    let cgroups = fs::read_to_string(format!("/proc/{init}/cgroup")).unwrap();
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    let name = format!("probeshim-e2e-{}", std::process::id());
    let other = hierarchy.join(&name);
    fs::create_dir(&other).unwrap();
    let move_to = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), init.to_string()).unwrap();
    move_to(&other);
    let expected = format!("the cgroup of the init process does not name the container: /{name}");
    let reason = wait_for("the container is inspected", || {
        let call = execs.exec(&["true"], 60);
        assert_eq!(call["policy"], json!([]), "{call}");
        let reason = call["forwardedBecause"].as_str().unwrap().to_owned();
        (reason != "unverified: the container is being inspected").then_some(reason)
    });
    move_to(&hierarchy.join(own));
    // The processes of the container that its init process creates are in the other cgroup too.
    wait_for("the cgroup is empty", || fs::remove_dir(&other).ok());
    assert_eq!(reason, expected);
    execs.end();
}

/// Returns the permissions of a file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
