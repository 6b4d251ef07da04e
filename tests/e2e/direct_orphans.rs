//! Commands without the runtime whose helper and probeshim end before them, in any order.

use std::fs;
use std::path::PathBuf;

use fixtures::containerd::Containerd;
use fixtures::crictl::Running;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::scenarios::execs::{Execs, process_with};
use fixtures::wait::wait_for;
use rustix::process::{Pid, Signal, kill_process};

use crate::direct::{add_setuid_busybox, direct_all, direct_in, pod_of_user, verified};

/// Path of a program that changes its privileges at its exec, and then sleeps.
const SETUID: &str = "/setuid/sleep";

/// Starts a command that sleeps, and waits until it does.
fn start(execs: &Execs, pod: &Pod, program: &str, seconds: &str) -> Running {
    let running = execs.crictl.spawn(&["exec", "-s", &pod.container, program, seconds]);
    wait_for("the command runs", || process_with(program, seconds));
    running
}

fn has_ended(program: &str, seconds: &str) {
    wait_for("the command has ended", || process_with(program, seconds).is_none().then_some(()));
}

/// Returns a pod that is verified, of a user other than root, with [`SETUID`].
fn pod_with_setuid(execs: &Execs, containerd: &Containerd) -> Pod {
    let pod = pod_of_user(execs, containerd, "setuid");
    add_setuid_busybox(execs, &pod, SETUID);
    wait_for("the container is verified", || direct_in(execs, &pod, &["true"]));
    pod
}

/// Kills the helper and probeshim, so that neither can react to the end of the other.
fn kill_both(execs: &mut Execs) {
    let (helper, shim) = (execs.shim.exec_helper().unwrap(), execs.shim.pid());
    kill_process(Pid::from_raw(shim.cast_signed()).unwrap(), Signal::STOP).unwrap();
    kill_process(helper, Signal::KILL).unwrap();
    execs.shim.crash();
}

#[test]
fn a_command_ends_when_probeshim_is_killed() {
    let (containerd, mut execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let pod = pod_with_setuid(&execs, &containerd);
    let running = [start(&execs, &execs.pod, "sleep", "7701"), start(&execs, &pod, SETUID, "7702")];
    execs.shim.crash();
    has_ended("sleep", "7701");
    has_ended(SETUID, "7702");
    drop(running.map(Running::output));
    execs.shim.launch();
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_command_ends_when_probeshim_is_killed_and_its_helper_is_stopped() {
    let (_containerd, mut execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let running = start(&execs, &execs.pod, "sleep", "7703");
    let helper = execs.shim.exec_helper().unwrap();
    kill_process(helper, Signal::STOP).unwrap();
    execs.shim.crash();
    has_ended("sleep", "7703");
    wait_for("the helper has ended", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", helper.as_raw_nonzero()));
        stat.is_err().then_some(())
    });
    running.output();
    execs.shim.launch();
    execs.end();
}

#[test]
fn a_command_ends_when_probeshim_and_its_helper_are_killed_at_once_or_at_the_next_start() {
    let (containerd, mut execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let pod = pod_with_setuid(&execs, &containerd);
    let running = [start(&execs, &execs.pod, "sleep", "7704"), start(&execs, &pod, SETUID, "7705")];
    kill_both(&mut execs);
    has_ended("sleep", "7704");
    // The kernel sends no signal of its parent to a process that has changed its privileges.
    assert!(process_with(SETUID, "7705").is_some(), "the program has not changed its privileges");
    execs.shim.launch();
    has_ended(SETUID, "7705");
    drop(running.map(Running::output));
    let lists = PathBuf::from(format!("{}.execs", execs.shim.admin().display()));
    wait_for("the list is removed", || (!lists.exists()).then_some(()));
    // The containers are verified again.
    verified(&execs, &["true"]);
    assert_eq!(fs::read_dir(&lists).unwrap().count(), 1);
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn a_command_that_changes_its_privileges_ends_when_its_helper_is_killed() {
    let (containerd, execs) = need!(direct_all());
    let pod = pod_with_setuid(&execs, &containerd);
    let running = start(&execs, &pod, SETUID, "7706");
    kill_process(execs.shim.exec_helper().unwrap(), Signal::KILL).unwrap();
    has_ended(SETUID, "7706");
    assert!(running.output().stderr.contains("the exec helper of probeshim ended while the command ran"));
    pod.remove(&execs.crictl);
    execs.end();
}
