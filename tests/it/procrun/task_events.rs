//! containerd's events about the processes in containers, which procrun publishes.

use std::time::SystemTime;

use fixtures::wait::soon;
use probeshim::containerd::{TaskEvent, TaskEvents, TimestampedEvent};
use probeshim::cri::lazy_channel;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use super::{Runtime, refused, until};

/// The events of a procrun, in the order of their arrival.
struct Subscriber(mpsc::UnboundedReceiver<Result<TimestampedEvent, Status>>);

impl Subscriber {
    fn new(runtime: &Runtime) -> Self {
        let mut events = TaskEvents::new(lazy_channel(&runtime.socket));
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let _ = sender.send(event);
            }
        });
        Self(receiver)
    }

    /// Subscribes, and returns when an event of a command in this container has arrived.
    async fn for_container(runtime: &Runtime, container: &str) -> Self {
        let mut subscriber = Self::new(runtime);
        // The first of these commands may run before the subscription. The exit of a later one is
        // among the events, and no command follows it.
        let mut code = 0;
        while subscriber.0.is_empty() {
            code = 10 + (code + 1) % 200;
            runtime.exec(container, &format!("exit {code}"), 0).await.unwrap();
        }
        code += 1;
        runtime.exec(container, &format!("exit {code}"), 0).await.unwrap();
        let is_last =
            |event: &TaskEvent| matches!(event, TaskEvent::ExecExited { status, .. } if *status == code);
        while !is_last(&subscriber.next().await.event) {}
        subscriber
    }

    async fn next(&mut self) -> TimestampedEvent {
        soon(self.0.recv()).await.unwrap().unwrap()
    }

    /// Returns the pid and the status of the next command, whose events must all come.
    async fn command(&mut self, of: &str) -> (u32, u32) {
        let added = self.next().await;
        let TaskEvent::ExecAdded { container, exec } = &added.event else { panic!("{added:?}") };
        assert_eq!((container.as_str(), exec.len()), (of, 64));
        let started = self.next().await;
        let TaskEvent::ExecStarted { pid, .. } = started.event else { panic!("{started:?}") };
        let exited = self.next().await;
        let TaskEvent::ExecExited { status, .. } = exited.event else { panic!("{exited:?}") };
        assert_eq!(
            exited.event,
            TaskEvent::ExecExited { container: of.to_owned(), exec: exec.clone(), pid, status }
        );
        assert!(added.at <= started.at && started.at <= exited.at && exited.at <= SystemTime::now());
        (pid, status)
    }
}

/// Starts a procrun with a container, and subscribes to its events.
async fn start() -> (Runtime, String, Subscriber) {
    let mut runtime = Runtime::start();
    let container = runtime.runs("sleep 1000").await;
    let events = Subscriber::for_container(&runtime, &container).await;
    (runtime, container, events)
}

#[tokio::test]
async fn each_command_is_added_started_and_exits_in_the_events() {
    let (runtime, id, mut events) = start().await;
    runtime.exec(&id, "echo $$ > pid; exit 3", 0).await.unwrap();
    let pid = runtime.file(&id, "pid").await;
    let (of_event, status) = events.command(&id).await;
    assert_eq!((of_event.to_string(), status), (pid, 3));
    let (code, _) = refused(runtime.exec(&id, "exec sleep 1000", 1).await);
    assert_eq!((code, events.command(&id).await.1), (Code::DeadlineExceeded, 137));
    runtime.end().await;
}

#[tokio::test]
async fn a_command_whose_caller_disconnects_exits_in_the_events() {
    let (runtime, id, mut events) = start().await;
    let call = runtime.begin_exec(&id, "echo $$ > pid; exec sleep 1000", 0);
    runtime.file(&id, "pid").await;
    call.abort();
    assert_eq!(events.command(&id).await.1, 137);
    runtime.end().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_is_only_added() {
    let (mut runtime, id, mut events) = start().await;
    let request = probeshim::cri::v1::ExecSyncRequest {
        container_id: id.clone(),
        cmd: vec!["/no/such/program".to_owned()],
        timeout: 0,
    };
    runtime.client.exec_sync(request).await.unwrap_err();
    assert!(matches!(events.next().await.event, TaskEvent::ExecAdded { .. }));
    runtime.exec(&id, "exit 4", 0).await.unwrap();
    assert_eq!(events.command(&id).await.1, 4);
    runtime.end().await;
}

#[tokio::test]
async fn the_start_and_the_exit_of_a_container_are_published() {
    let (mut runtime, _, mut events) = start().await;
    let pod = runtime.run_pod("second").await;
    let id = runtime
        .create(("second", &pod), super::shell("main", "echo $$ > pid; exec sleep 1000"))
        .await
        .unwrap();
    runtime.start_container(&id).await.unwrap();
    let pid: u32 = runtime.file(&id, "pid").await.parse().unwrap();
    assert_eq!(events.next().await.event, TaskEvent::Started { container: id.clone(), pid });
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(events.next().await.event, TaskEvent::Exit { container: id, pid, status: 143 });
    runtime.end().await;
}

#[tokio::test]
async fn a_procrun_with_synthetic_containers_publishes_no_events() {
    let runtime = Runtime::start_with(|config| config.synthetic = 1);
    let mut events = Subscriber::new(&runtime);
    let refusal = until(|| {
        let next = events.0.try_recv().ok();
        async { next }
    })
    .await
    .unwrap_err();
    assert_eq!(refusal.code(), Code::Unimplemented);
    assert!(refusal.message().contains("--synthetic"), "{refusal}");
    runtime.end().await;
}
