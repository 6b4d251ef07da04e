//! Concurrent calls, and callers that disconnect.

use std::time::Duration;

use fixtures::wait::soon;
use probeshim::cri::v1::*;
use tokio::task::JoinSet;
use tonic::Code;

use super::{Runtime, processes_of, refused, shell, until};

#[tokio::test]
async fn commands_started_while_a_container_ends_do_not_hide_its_exit_code() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    let mut lives = JoinSet::new();
    for number in 0..20 {
        let script = format!("sleep 0.{:02}; exit 7", number % 10);
        let id = runtime.create(("pod", &pod), shell(&format!("main-{number}"), &script)).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        let mut client = runtime.client.clone();
        lives.spawn(async move {
            let command = ExecSyncRequest { container_id: id.clone(), cmd: vec!["true".into()], timeout: 0 };
            while client.exec_sync(command.clone()).await.is_ok() {}
            id
        });
    }
    for id in soon(lives.join_all()).await {
        let status = runtime.ended(&id).await;
        assert_eq!((status.exit_code, status.message.as_str()), (7, ""));
    }
    runtime.end().await;
}

#[tokio::test]
async fn a_disconnected_caller_leaves_no_container_half_removed() {
    let mut runtime = Runtime::start();
    let pod = runtime.run_pod("pod").await;
    for number in 0..20 {
        let id = runtime.create(("pod", &pod), shell(&format!("main-{number}"), "sleep 1000")).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        let request = RemoveContainerRequest { container_id: id.clone() };
        let given_up = tokio::time::timeout(
            Duration::from_millis(number % 5),
            runtime.client.remove_container(request.clone()),
        );
        let _ = given_up.await;
        // The removal continues without its caller and completes.
        let client = runtime.client.clone();
        until(|| {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.remove_container(request).await.ok() }
        })
        .await;
    }
    assert_eq!(runtime.containers().await, []);
    runtime.end().await;
}

#[tokio::test]
async fn a_pod_removed_while_a_container_starts_runs_nothing() {
    let mut runtime = Runtime::start_with(|settings| settings.start_delay = Duration::from_secs(3600));
    let pod = runtime.run_pod("pod").await;
    let id = runtime.create(("pod", &pod), shell("main", "sleep 1000")).await.unwrap();
    // The later of two starts is refused, which proves that the other has begun.
    let mut starting: JoinSet<_> = [runtime.client.clone(), runtime.client.clone()]
        .map(|mut client| {
            let request = StartContainerRequest { container_id: id.clone() };
            async move { client.start_container(request).await }
        })
        .into_iter()
        .collect();
    let (_, words) = refused(soon(starting.join_next()).await.unwrap().unwrap());
    assert!(words.ends_with("container is already in starting state"), "{words}");
    let request = RemovePodSandboxRequest { pod_sandbox_id: pod };
    soon(runtime.client.remove_pod_sandbox(request)).await.unwrap();
    let (code, words) = refused(soon(starting.join_next()).await.unwrap().unwrap());
    assert!(code == Code::Unknown && words.ends_with("is not running"), "{words}");
    assert_eq!(processes_of(runtime.folder.path()), Vec::<String>::new());
    assert_eq!(runtime.containers().await, []);
    runtime.end().await;
}

#[tokio::test]
async fn containers_created_while_their_pod_is_removed_are_removed_too() {
    let mut runtime = Runtime::start();
    for round in 0..20 {
        let name = format!("pod-{round}");
        let pod = runtime.run_pod(&name).await;
        let mut meeting = JoinSet::new();
        for number in 0..8 {
            let request = runtime.creation((&name, &pod), shell(&format!("main-{number}"), "true"));
            let mut client = runtime.client.clone();
            meeting.spawn(async move { client.create_container(request).await.map(drop) });
        }
        let (mut client, request) = (runtime.client.clone(), RemovePodSandboxRequest { pod_sandbox_id: pod });
        meeting.spawn(async move { client.remove_pod_sandbox(request).await.map(drop) });
        soon(meeting.join_all()).await;
    }
    assert_eq!(runtime.containers().await, []);
    assert_eq!(std::fs::read_dir(runtime.path("root/procrun-containers")).unwrap().count(), 0);
    runtime.end().await;
}

#[tokio::test]
async fn many_cancelled_calls_do_not_end_the_connection() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    for _ in 0..10 {
        let calls: Vec<_> = (0..60).map(|_| runtime.begin_exec(&id, "sleep 1000", 0)).collect();
        tokio::task::yield_now().await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        assert_eq!(runtime.exec(&id, "exit 3", 0).await.unwrap().exit_code, 3);
    }
    runtime.end().await;
}

#[tokio::test]
async fn exits_of_orphaned_processes_do_not_hide_exit_codes() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("sleep 1000").await;
    let script = "(sleep 0.01 >/dev/null 2>&1 &); (true &); (true &); exit 4";
    for _ in 0..20 {
        let calls: Vec<_> = (0..4).map(|_| runtime.begin_exec(&id, script, 0)).collect();
        for call in calls {
            assert_eq!(soon(call).await.unwrap().unwrap().exit_code, 4);
        }
    }
    let pod = runtime.run_pod("orphans").await;
    for number in 0..40 {
        let script = "(true &); (true &); (true &); exit 5";
        let config = shell(&format!("main-{number}"), script);
        let id = runtime.create(("orphans", &pod), config).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        let status = runtime.ended(&id).await;
        assert_eq!((status.exit_code, status.message.as_str()), (5, ""));
    }
    runtime.end().await;
}

#[tokio::test]
async fn processes_that_fork_endlessly_end_with_their_container() {
    let mut runtime = Runtime::start();
    let id = runtime.runs("for i in 1 2 3; do (while :; do (true &); done) & done; sleep 0.3; exit 3").await;
    assert_eq!(runtime.ended(&id).await.exit_code, 3);
    runtime.end().await;
}

#[tokio::test]
async fn a_pod_can_be_removed_by_several_callers_at_the_same_time() {
    let mut runtime = Runtime::start();
    for round in 0..10 {
        let name = format!("pod-{round}");
        let pod = runtime.run_pod(&name).await;
        let mut meeting = JoinSet::new();
        for number in 0..12 {
            let request = runtime.creation((&name, &pod), shell(&format!("main-{number}"), "true"));
            let mut client = runtime.client.clone();
            meeting.spawn(async move { client.create_container(request).await.map(drop).or(Ok(())) });
            if number % 4 == 3 {
                let request = RemovePodSandboxRequest { pod_sandbox_id: pod.clone() };
                let mut client = runtime.client.clone();
                meeting.spawn(async move { client.remove_pod_sandbox(request).await.map(drop) });
            }
        }
        for removed in soon(meeting.join_all()).await {
            let removed: Result<(), tonic::Status> = removed;
            removed.unwrap();
        }
    }
    assert_eq!(runtime.containers().await, []);
    runtime.end().await;
}
