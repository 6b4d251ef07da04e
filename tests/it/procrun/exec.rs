//! The call ExecSync.

use std::fs;
use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::v1::{ExecSyncRequest, ListContainersRequest};
use probeshim::procrun::TimeoutKillScope;
use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use super::{Runtime, is_gone, refused};

/// Script that starts a child which keeps the output open, and exits.
const HOLDS: &str = "echo said; sh -c 'echo $$ > child; exec sleep 1000' & echo $$ > shell; while ! test -s child; do sleep 0.01; done";

/// Timeout in seconds within which `HOLDS` completes on any machine. Some tests wait for its end.
const ENOUGH: i64 = 3;

#[tokio::test]
async fn exec_sync_returns_stdout_stderr_and_the_exit_code() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let answer = runtime.exec(&id, "echo out; echo err >&2; exit 3", 10).await.unwrap();
    assert_eq!(
        (answer.stdout.as_slice(), answer.stderr.as_slice(), answer.exit_code),
        (&b"out\n"[..], &b"err\n"[..], 3)
    );
    let killed = runtime.exec(&id, "kill -15 $$", 10).await.unwrap();
    assert_eq!(killed.exit_code, 143);
    let large =
        runtime.exec(&id, "head -c 8000000 /dev/zero; head -c 8000000 /dev/zero >&2", 0).await.unwrap();
    assert_eq!((large.stdout.len(), large.stderr.len()), (8_000_000, 8_000_000));
    runtime.end().await;
}

#[tokio::test]
async fn exec_sync_reads_output_beyond_16_mib_and_then_fails() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let (code, words) = refused(runtime.exec(&id, "head -c 40000000 /dev/zero", 0).await);
    assert_eq!(code, Code::ResourceExhausted);
    // 16 MiB of the output were kept.
    assert_eq!(words, "grpc: trying to send message larger than max (16777221 vs. 16777216)");
    runtime.end().await;
}

#[tokio::test]
async fn a_timed_out_command_is_killed_alone_and_its_child_holds_the_call() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let call = runtime.begin_exec(&id, &format!("{HOLDS}; exec sleep 1000"), ENOUGH);
    let [shell, child] = [runtime.file(&id, "shell").await, runtime.file(&id, "child").await];
    is_gone(shell).await;
    // The command has ended. Other calls are answered, but not this call.
    runtime.exec(&id, "true", 0).await.unwrap();
    assert!(!call.is_finished());
    assert!(fs::exists(format!("/proc/{child}")).unwrap(), "the child must keep running");
    kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let (code, words) = refused(soon(call).await.unwrap());
    assert_eq!(code, Code::DeadlineExceeded);
    assert_eq!(words, "failed to exec in container: timeout 3s exceeded: context deadline exceeded");
    runtime.end().await;
}

#[tokio::test]
async fn a_kill_of_the_process_group_ends_a_timed_out_call() {
    let mut runtime = Runtime::start_with(|settings| settings.exec_timeout_kills = TimeoutKillScope::Group);
    let id = runtime.runs("sleep 1000").await;
    let (code, _) = refused(runtime.exec(&id, &format!("{HOLDS}; exec sleep 1000"), ENOUGH).await);
    assert_eq!(code, Code::DeadlineExceeded);
    is_gone(runtime.file(&id, "child").await).await;
    runtime.end().await;
}

#[tokio::test]
async fn a_child_that_keeps_the_output_open_holds_a_successful_call() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let begun = tokio::time::Instant::now();
    let call = runtime.begin_exec(&id, HOLDS, ENOUGH);
    let [shell, child] = [runtime.file(&id, "shell").await, runtime.file(&id, "child").await];
    is_gone(shell).await;
    // The timeout of the call has passed too.
    tokio::time::sleep_until(begun + Duration::from_secs(ENOUGH.cast_unsigned() + 1)).await;
    runtime.exec(&id, "true", 0).await.unwrap();
    assert!(!call.is_finished());
    kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let answer = soon(call).await.unwrap().unwrap();
    assert_eq!(
        (answer.stdout.as_slice(), answer.exit_code),
        (&b"said\n"[..], 0),
        "the timeout must apply to the command only"
    );
    runtime.end().await;
}

#[tokio::test]
async fn the_drain_timeout_ends_a_call_that_a_child_holds() {
    let mut runtime =
        Runtime::start_with(|settings| settings.exec_io_drain_timeout = Some(Duration::from_millis(1500)));
    let id = runtime.runs("sleep 1000").await;
    let (code, words) = refused(runtime.exec(&id, HOLDS, 0).await);
    assert_eq!(code, Code::Unknown);
    assert!(words.ends_with("io in 1.5s because io is still held by other processes"), "{words}");
    let (code, _) = refused(runtime.exec(&id, &format!("{HOLDS}; exec sleep 1000"), 1).await);
    assert_eq!(code, Code::DeadlineExceeded);
    runtime.end().await;
}

#[tokio::test]
async fn a_command_is_killed_when_its_caller_disconnects() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let call = runtime.begin_exec(&id, "echo $$ > pid; exec sleep 1000", 0);
    let pid = runtime.file(&id, "pid").await;
    call.abort();
    is_gone(pid).await;
    runtime.end().await;
}

#[tokio::test]
async fn commands_end_with_their_container() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let call = runtime.begin_exec(&id, "touch begun; echo > pid; sleep 1000", 0);
    runtime.file(&id, "pid").await;
    runtime.stop(&id, 0).await;
    assert_eq!(soon(call).await.unwrap().unwrap().exit_code, 137);
    runtime.end().await;
}

#[tokio::test]
async fn synthetic_containers_answer_after_the_delay_without_a_process() {
    let mut runtime = Runtime::start_with(|settings| {
        settings.synthetic = 1000;
        settings.exec_delay = Duration::from_millis(10);
    });
    let containers = runtime
        .client
        .list_containers(ListContainersRequest::default())
        .await
        .unwrap()
        .into_inner()
        .containers;
    assert_eq!(containers.len(), 1000);
    let start = tokio::time::Instant::now();
    let mut exec = async |command: &str| {
        let id = containers[7].id.clone();
        let request = ExecSyncRequest { container_id: id, cmd: vec![command.into()], timeout: 60 };
        runtime.client.exec_sync(request).await.unwrap().into_inner().exit_code
    };
    assert_eq!((exec("true").await, exec("false").await), (0, 1));
    assert!(start.elapsed() >= Duration::from_millis(20));
    runtime.stop(&containers[7].id, 1).await;
    assert_eq!(runtime.status(&containers[7].id).await.exit_code, 143);
    runtime.end().await;
}
