//! What the runtime itself is asked: a list at the start and every ten seconds, and its events for as long as they last.

use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Status};
use tracing::{debug, info, warn};

use super::objects::Source;
use super::runtime::RuntimeInfo;
use crate::containerd::{TaskEvent, TaskEvents, TimestampedEvent};
use crate::cri::{ContainerObservation, LazyStream, MeteredChannel, MeteredRuntimeClient, v1};
use crate::tap::{Observation, Observations};
use crate::terminal::sanitize;

/// From one list to the next.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);

/// How long a subscription to events may take to begin.
const SUBSCRIBE_GRACE: Duration = Duration::from_millis(100);

/// How long the runtime may take to answer one of our questions.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait before a runtime that is gone is asked again: at first, and at most.
const RECONNECT_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Enquiries that are made at once.
const MAX_INSPECTS: usize = 16;

/// Notices that may wait to be taken; the runtime's stream waits then, which it is made for.
const EVENT_QUEUE_CAPACITY: usize = 1_024;

/// Something that the runtime told us.
#[derive(Debug)]
pub enum RuntimeEvent {
    /// It answers, and this is what it is. Whether it tells of the processes that it executes is known from now on.
    Connected {
        /// Which runtime.
        runtime: RuntimeInfo,
        /// Whether its events tell of what it executes.
        has_exec_events: bool,
    },
    /// It, or its stream of events, has gone: of what happens until it is there again, no event will tell.
    Disconnected,
    /// What is so.
    Observed(Source, Observations),
    /// What has become of a process.
    Task(TimestampedEvent),
}

/// Something that somebody wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InspectRequest {
    /// The addresses of a sandbox.
    Sandbox(Arc<str>),
    /// When a container was started, or how it ended.
    Container(Arc<str>),
}

/// Asks the runtime, for as long as somebody takes what it tells.
#[derive(Debug)]
pub struct Watcher {
    channel: MeteredChannel,
    client: MeteredRuntimeClient,
    events: mpsc::Sender<RuntimeEvent>,
    inspect_requests: mpsc::Receiver<InspectRequest>,
}

impl Watcher {
    /// Asks the runtime from now on, until the receiver is dropped. What is to be asked beside what always is comes through `enquiries`.
    #[must_use]
    pub fn start(
        channel: MeteredChannel,
        inspect_requests: mpsc::Receiver<InspectRequest>,
    ) -> mpsc::Receiver<RuntimeEvent> {
        let (events, event_receiver) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let receiver_closed = events.clone();
        let watcher = Self { client: channel.client(), channel, events, inspect_requests };
        tokio::spawn(async move {
            tokio::select! {
                () = watcher.run() => {}
                () = receiver_closed.closed() => {}
            }
        });
        event_receiver
    }

    /// Watches the runtime whenever it is there.
    async fn run(mut self) {
        let mut pause = RECONNECT_BACKOFF.0;
        loop {
            match self.version().await {
                Ok(runtime) => {
                    let began = Instant::now();
                    let ended = self.watch(runtime).await;
                    info!(error = sanitize(ended.message()), "the runtime tells nothing now");
                    self.send(RuntimeEvent::Disconnected).await;
                    // One that answers, and yet cannot be watched, is asked less and less often too.
                    if began.elapsed() > RECONNECT_BACKOFF.1 {
                        pause = RECONNECT_BACKOFF.0;
                    }
                }
                Err(status) => debug!(error = sanitize(status.message()), "the runtime tells nothing yet"),
            }
            sleep(pause).await;
            pause = (2 * pause).min(RECONNECT_BACKOFF.1);
        }
    }

    async fn version(&self) -> Result<RuntimeInfo, Status> {
        let request = v1::VersionRequest { version: "v1".to_owned() };
        Ok(with_timeout(self.client.clone().version(request)).await?.into_inner().into())
    }

    /// Watches for as long as the runtime's events last; without events, for as long as it answers. Returns what ended it.
    async fn watch(&mut self, runtime: RuntimeInfo) -> Status {
        let started = Instant::now();
        let mut tasks = runtime.is_containerd().then(|| TaskEvents::new(self.channel.channel()));
        let mut containers = self.container_events(&runtime);
        // A subscription takes a moment to begin, and grpc-go does not say when it has.
        let has_exec_events = tasks.is_some();
        let settled = sleep(if has_exec_events { SUBSCRIBE_GRACE } else { Duration::ZERO });
        let mut settled = pin!(settled);
        let mut is_settled = false;
        let mut ticks = interval(RELIST_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Beside the events, which must not wait for it.
        let mut listing = None;
        let (mut pending_inspects, mut waiting, mut answers) =
            (HashSet::new(), VecDeque::new(), JoinSet::new());
        loop {
            while answers.len() < MAX_INSPECTS
                && let Some(request) = waiting.pop_front()
            {
                answers.spawn(inspect(self.client.clone(), request));
            }
            tokio::select! {
                // Who has not been told asks again.
                Some(request) = self.inspect_requests.recv() => if pending_inspects.insert(request.clone()) {
                    waiting.push_back(request);
                },
                Some(Ok((request, inspected))) = answers.join_next() => {
                    pending_inspects.remove(&request);
                    match inspected {
                        Ok(observations) => self.send(RuntimeEvent::Observed(Source::Inspect, observations)).await,
                        Err(status) => debug!(?request, status = sanitize(status.message()), "not told"),
                    }
                }
                () = &mut settled, if !is_settled => {
                    is_settled = true;
                    self.send(RuntimeEvent::Connected { runtime: runtime.clone(), has_exec_events }).await;
                }
                _ = ticks.tick(), if listing.is_none() => {
                    containers = containers.or_else(|| self.container_events(&runtime));
                    listing = Some(Box::pin(list(self.client.clone())));
                }
                listed = pending_list(&mut listing) => {
                    listing = None;
                    match listed {
                        Ok(observations) => self.send(RuntimeEvent::Observed(Source::List, observations)).await,
                        // Its events tell whether it is there.
                        Err(status) if tasks.is_some() => {
                            debug!(status = sanitize(status.message()), "the runtime was not listed");
                        }
                        Err(status) => return status,
                    }
                }
                event = next_event(&mut tasks) => match event {
                    Ok(event) => self.send(runtime_event(event)).await,
                    Err(status) if status.code() == Code::Unimplemented => {
                        warn!(
                            status = sanitize(status.message()),
                            "containerd does not tell of what it executes: phases are not to be had"
                        );
                        (tasks, is_settled) = (None, true);
                        self.send(RuntimeEvent::Connected { runtime: runtime.clone(), has_exec_events: false }).await;
                    }
                    Err(status) => return status,
                },
                event = next_event(&mut containers) => match event {
                    // What it tells may have been so a while ago, but not before the stream began.
                    Ok(event) => {
                        let observations = Observations { observed_since: started, items: Observation::of_event(event) };
                        self.send(RuntimeEvent::Observed(Source::Event, observations)).await;
                    }
                    Err(status) => {
                        debug!(status = sanitize(status.message()), "the runtime's container events have ended");
                        containers = None;
                    }
                },
            }
        }
    }

    /// The events of the CRI, which only hasten what the next list would tell.
    fn container_events(&self, runtime: &RuntimeInfo) -> Option<LazyStream<v1::ContainerEventResponse>> {
        let mut client = self.client.clone();
        let call = async move { client.get_container_events(v1::GetEventsRequest {}).await };
        runtime.broadcasts_events().then(|| LazyStream::new(call))
    }

    async fn send(&self, notice: RuntimeEvent) {
        // Where nobody listens any more, the watcher is about to end.
        let _ = self.events.send(notice).await;
    }
}

/// What somebody wants to know.
async fn inspect(
    mut client: MeteredRuntimeClient,
    request: InspectRequest,
) -> (InspectRequest, Result<Observations, Status>) {
    let observed_since = Instant::now();
    let fact = match &request {
        InspectRequest::Sandbox(id) => {
            let status_request =
                v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
            let answer = with_timeout(client.pod_sandbox_status(status_request)).await;
            answer.map(|answer| answer.into_inner().status.map(|status| Observation::Sandbox(status.into())))
        }
        InspectRequest::Container(id) => {
            let status_request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
            let answer = with_timeout(client.container_status(status_request)).await;
            answer
                .map(|answer| answer.into_inner().status.map(|status| Observation::Container(status.into())))
        }
    };
    (request, fact.map(|fact| Observations { observed_since, items: fact.into_iter().collect() }))
}

/// Everything that is there.
async fn list(mut client: MeteredRuntimeClient) -> Result<Observations, Status> {
    let observed_since = Instant::now();
    // Containers first: none of them can be in a sandbox that is not yet in the other list.
    let containers = with_timeout(client.list_containers(v1::ListContainersRequest { filter: None })).await?;
    let containers: Vec<ContainerObservation> =
        containers.into_inner().containers.into_iter().map(Into::into).collect();
    let sandboxes = with_timeout(client.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None })).await?;
    let sandboxes = sandboxes.into_inner().items.into_iter().map(Into::into).collect();
    Ok(Observations {
        observed_since,
        items: vec![Observation::SandboxList(sandboxes), Observation::ContainerList(containers)],
    })
}

/// The list that was asked for; never, where none was.
async fn pending_list<F>(listing: &mut Option<F>) -> Result<Observations, Status>
where
    F: Future<Output = Result<Observations, Status>> + Unpin,
{
    match listing {
        Some(listing) => listing.await,
        None => pending().await,
    }
}

/// An event of containerd's: of a container's own process, or of what is executed in it.
fn runtime_event(event: TimestampedEvent) -> RuntimeEvent {
    match container_observation(&event.event) {
        Some(fact) => RuntimeEvent::Observed(
            Source::Event,
            Observations { observed_since: Instant::now(), items: vec![fact] },
        ),
        None => RuntimeEvent::Task(event),
    }
}

/// What an event of containerd's tells of a container, if it is about its own process.
fn container_observation(event: &TaskEvent) -> Option<Observation> {
    let (container, state, exit) = match event {
        TaskEvent::Started { container, .. } => (container, v1::ContainerState::ContainerRunning, None),
        TaskEvent::Exit { container, status } => {
            let exit = Some((status.cast_signed(), String::new()));
            (container, v1::ContainerState::ContainerExited, exit)
        }
        _ => return None,
    };
    Some(Observation::Container(ContainerObservation {
        id: container.clone(),
        state: Some(state),
        exit,
        ..ContainerObservation::default()
    }))
}

/// The next event; never, where there are none. A stream that ends is an error.
async fn next_event<S, T>(events: &mut Option<S>) -> Result<T, Status>
where
    S: Stream<Item = Result<T, Status>> + Unpin,
{
    let Some(events) = events else { return pending().await };
    events.next().await.unwrap_or_else(|| Err(Status::unavailable("the stream of events has ended")))
}

async fn with_timeout<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let answered = timeout(CALL_TIMEOUT, answer).await;
    answered.unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer within {CALL_TIMEOUT:?}"))))
}
