//! The ends of a container and of its processes.

use rustix::process::{Pid, Signal, kill_process};

use super::{Runtime, is_gone, shell};
use probeshim::cri::v1;

#[tokio::test]
async fn a_stop_sends_its_signal_to_the_group_and_waits() {
    let mut runtime = Runtime::start();
    let script =
        "sh -c 'trap \"echo child > child; exit 0\" TERM; touch trapped; while :; do sleep 0.01; done' &
                  trap 'wait; exit 5' TERM; until test -e trapped; do sleep 0.01; done; touch ready
                  while :; do sleep 0.01; done";
    let id = runtime.runs(&format!("{script}; echo never")).await;
    let folder = runtime.path("root/procrun-containers").join(&id);
    super::until(|| async { folder.join("ready").exists().then_some(()) }).await;
    runtime.stop(&id, 60).await;
    assert_eq!(runtime.status(&id).await.exit_code, 5);
    assert_eq!(runtime.file(&id, "child").await, "child");
    runtime.end().await;
}

#[tokio::test]
async fn a_container_that_ignores_the_stop_signal_is_killed_with_all_descendants() {
    let mut runtime = Runtime::start();
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > far; while :; do sleep 0.01; done' &
                  echo $$ > near; while :; do sleep 0.01; done";
    let id = runtime.runs(script).await;
    let pids = [runtime.file(&id, "near").await, runtime.file(&id, "far").await];
    runtime.stop(&id, 1).await;
    let status = runtime.status(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Error"));
    for pid in pids {
        is_gone(pid).await;
    }
    runtime.end().await;
}

#[tokio::test]
async fn the_stop_signal_of_the_config_is_sent() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let script = "trap 'exit 7' USR1; touch ready; while :; do sleep 0.01; done";
    let mut config = shell("main", script);
    config.stop_signal = v1::Signal::Sigusr1.into();
    let id = runtime.create(("pod", &pod), config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let folder = runtime.path("root/procrun-containers").join(&id);
    super::until(|| async { folder.join("ready").exists().then_some(()) }).await;
    runtime.stop(&id, 60).await;
    assert_eq!(runtime.status(&id).await.exit_code, 7);
    runtime.end().await;
}

#[tokio::test]
async fn all_processes_of_a_container_end_with_its_first_process() {
    let mut runtime = Runtime::start();
    let script =
        "setsid sh -c 'echo $$ > far; exec sleep 1000' & (sh -c 'echo $$ > orphan; exec sleep 1000' &)
                  while ! test -s far || ! test -s orphan; do sleep 0.01; done; exit 4";
    let id = runtime.runs(script).await;
    assert_eq!(runtime.ended(&id).await.exit_code, 4);
    for name in ["far", "orphan"] {
        is_gone(runtime.file(&id, name).await).await;
    }
    runtime.end().await;
}

#[tokio::test]
async fn a_container_ends_if_its_monitor_is_killed() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("echo $$ > pid; echo $PPID > monitor; sleep 1000").await;
    let [pid, monitor] = [runtime.file(&id, "pid").await, runtime.file(&id, "monitor").await];
    let killed = Pid::from_raw(monitor.parse().unwrap()).unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    let status = runtime.ended(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Error"));
    assert!(status.message.contains("monitor"), "{}", status.message);
    is_gone(pid).await;
    runtime.end().await;
}

#[tokio::test]
async fn signals_to_a_monitor_do_not_end_it() {
    let mut runtime = Runtime::start();
    let id = runtime
        .runs("trap 'echo told > told' TERM; echo $PPID > monitor; while :; do sleep 0.01; done")
        .await;
    let monitor = Pid::from_raw(runtime.file(&id, "monitor").await.parse().unwrap()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(monitor, signal).unwrap();
    }
    assert_eq!(runtime.exec(&id, "exit 0", 0).await.unwrap().exit_code, 0);
    // The container does not inherit the ignored signals of its monitor.
    runtime.stop(&id, 1).await;
    assert_eq!(runtime.file(&id, "told").await, "told");
    runtime.end().await;
}
