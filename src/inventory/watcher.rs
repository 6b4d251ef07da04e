//! Observes the runtime directly: lists at the start and every ten seconds, and its event streams
//! while they last.

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

/// Interval between lists.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);

/// Time allowed for a subscription to events to start.
const SUBSCRIBE_GRACE: Duration = Duration::from_millis(100);

/// Timeout of internal calls to the runtime.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay before the runtime is connected again: initial and maximum.
const RECONNECT_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Maximum number of concurrent inspect requests.
const MAX_INSPECTS: usize = 16;

/// Maximum number of events that wait for the receiver. If the queue is full, the runtime's stream
/// waits.
const EVENT_QUEUE_CAPACITY: usize = 1_024;

/// An event from the runtime.
#[derive(Debug)]
pub enum RuntimeEvent {
    /// The runtime answers.
    Connected {
        /// Name and version of the runtime.
        runtime: RuntimeInfo,
        /// Whether the runtime's events report exec instances.
        has_exec_events: bool,
    },
    /// The connection to the runtime or its event stream was lost. Events are missed until the
    /// runtime is connected again.
    Disconnected,
    /// The runtime has not answered a list within ten seconds. Its event stream may continue: that
    /// of a process that is stopped does not end.
    Unresponsive,
    /// Observations with their source.
    Observed(Source, Observations),
    /// An event about an exec instance.
    Task(TimestampedEvent),
}

/// A request for the status of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InspectRequest {
    /// Requests the addresses of a sandbox.
    Sandbox(Arc<str>),
    /// Requests the start time of a container, or its exit.
    Container(Arc<str>),
}

/// Observes the runtime until the receiver of its events is dropped.
#[derive(Debug)]
pub struct Watcher {
    channel: MeteredChannel,
    client: MeteredRuntimeClient,
    events: mpsc::Sender<RuntimeEvent>,
    inspect_requests: mpsc::Receiver<InspectRequest>,
}

impl Watcher {
    /// Starts to observe the runtime until the returned receiver is dropped. Additional inspect
    /// requests arrive on `inspect_requests`.
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

    /// Watches the runtime whenever it responds.
    async fn run(mut self) {
        let mut pause = RECONNECT_BACKOFF.0;
        loop {
            match self.version().await {
                Ok(runtime) => {
                    let connected_at = Instant::now();
                    let error = self.watch(runtime).await;
                    info!(error = sanitize(error.message()), "runtime disconnected");
                    self.send(RuntimeEvent::Disconnected).await;
                    // The delay also grows if the runtime responds but cannot be watched.
                    if connected_at.elapsed() > RECONNECT_BACKOFF.1 {
                        pause = RECONNECT_BACKOFF.0;
                    }
                }
                Err(status) => debug!(error = sanitize(status.message()), "runtime not ready"),
            }
            sleep(pause).await;
            pause = (2 * pause).min(RECONNECT_BACKOFF.1);
        }
    }

    async fn version(&self) -> Result<RuntimeInfo, Status> {
        let request = v1::VersionRequest { version: "v1".to_owned() };
        Ok(with_timeout(self.client.clone().version(request)).await?.into_inner().into())
    }

    /// Watches the runtime as long as its event stream lasts; without events, as long as it
    /// responds. Returns the error that ended it.
    async fn watch(&mut self, runtime: RuntimeInfo) -> Status {
        let watched_since = Instant::now();
        let mut task_events =
            runtime.publishes_task_events().then(|| TaskEvents::new(self.channel.channel()));
        let mut container_events = self.container_events(&runtime);
        // A subscription takes a moment to start, and grpc-go does not report its start.
        let has_exec_events = task_events.is_some();
        let subscribe_grace = sleep(if has_exec_events { SUBSCRIBE_GRACE } else { Duration::ZERO });
        let mut subscribe_grace = pin!(subscribe_grace);
        let mut connected_sent = false;
        let mut relist_ticks = interval(RELIST_INTERVAL);
        relist_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The list runs concurrently with the event streams, which must not wait for it.
        let mut pending_relist = None;
        let (mut pending_inspects, mut queued_inspects, mut inspects_in_flight) =
            (HashSet::new(), VecDeque::new(), JoinSet::new());
        loop {
            while inspects_in_flight.len() < MAX_INSPECTS
                && let Some(request) = queued_inspects.pop_front()
            {
                inspects_in_flight.spawn(inspect(self.client.clone(), request));
            }
            tokio::select! {
                // The requester repeats its request if it gets no result.
                Some(request) = self.inspect_requests.recv() => if pending_inspects.insert(request.clone()) {
                    queued_inspects.push_back(request);
                },
                Some(Ok((request, inspected))) = inspects_in_flight.join_next() => {
                    pending_inspects.remove(&request);
                    match inspected {
                        Ok(observations) => self.send(RuntimeEvent::Observed(Source::Inspect, observations)).await,
                        Err(status) => debug!(?request, status = sanitize(status.message()), "inspect failed"),
                    }
                }
                () = &mut subscribe_grace, if !connected_sent => {
                    connected_sent = true;
                    self.send(RuntimeEvent::Connected { runtime: runtime.clone(), has_exec_events }).await;
                }
                _ = relist_ticks.tick(), if pending_relist.is_none() => {
                    container_events = container_events.or_else(|| self.container_events(&runtime));
                    pending_relist = Some(Box::pin(list(self.client.clone())));
                }
                listed = poll_relist(&mut pending_relist) => {
                    pending_relist = None;
                    match listed {
                        Ok(observations) => self.send(RuntimeEvent::Observed(Source::List, observations)).await,
                        // The end of the event stream shows whether the runtime ended.
                        Err(status) if task_events.is_some() => {
                            debug!(status = sanitize(status.message()), "relist failed");
                            if status.code() == Code::DeadlineExceeded {
                                self.send(RuntimeEvent::Unresponsive).await;
                            }
                        }
                        Err(status) => return status,
                    }
                }
                event = next_event(&mut task_events) => match event {
                    Ok(event) => self.send(runtime_event(event)).await,
                    Err(status) if status.code() == Code::Unimplemented => {
                        warn!(
                            status = sanitize(status.message()),
                            "the runtime does not report exec events; ExecSync phases are not available"
                        );
                        (task_events, connected_sent) = (None, true);
                        self.send(RuntimeEvent::Connected { runtime: runtime.clone(), has_exec_events: false }).await;
                    }
                    Err(status) => return status,
                },
                event = next_event(&mut container_events) => match event {
                    // An event may be older than its arrival, but not older than the stream.
                    Ok(event) => {
                        let observations = Observations { observed_since: watched_since, items: Observation::of_event(event) };
                        self.send(RuntimeEvent::Observed(Source::Event, observations)).await;
                    }
                    Err(status) => {
                        debug!(status = sanitize(status.message()), "container event stream ended");
                        container_events = None;
                    }
                },
            }
        }
    }

    /// Subscribes to the events of the CRI. They report earlier what the next list reports too.
    fn container_events(&self, runtime: &RuntimeInfo) -> Option<LazyStream<v1::ContainerEventResponse>> {
        let mut client = self.client.clone();
        let call = async move { client.get_container_events(v1::GetEventsRequest {}).await };
        runtime.broadcasts_events().then(|| LazyStream::new(call))
    }

    async fn send(&self, event: RuntimeEvent) {
        // Without a receiver the watcher is about to end.
        let _ = self.events.send(event).await;
    }
}

/// Requests the status of one object.
async fn inspect(
    mut client: MeteredRuntimeClient,
    request: InspectRequest,
) -> (InspectRequest, Result<Observations, Status>) {
    let observed_since = Instant::now();
    let observation = match &request {
        InspectRequest::Sandbox(id) => {
            let status_request =
                v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
            let response = with_timeout(client.pod_sandbox_status(status_request)).await;
            response.map(|response| {
                response.into_inner().status.map(|status| Observation::Sandbox(status.into()))
            })
        }
        InspectRequest::Container(id) => {
            let status_request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
            let response = with_timeout(client.container_status(status_request)).await;
            response.map(|response| {
                response.into_inner().status.map(|status| Observation::Container(status.into()))
            })
        }
    };
    (
        request,
        observation
            .map(|observation| Observations { observed_since, items: observation.into_iter().collect() }),
    )
}

/// Lists all sandboxes and containers.
async fn list(mut client: MeteredRuntimeClient) -> Result<Observations, Status> {
    let observed_since = Instant::now();
    // Containers are listed first, so that each of them is in a sandbox of the list of sandboxes.
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

/// Waits for the pending list. Waits forever if there is none.
async fn poll_relist<F>(listing: &mut Option<F>) -> Result<Observations, Status>
where
    F: Future<Output = Result<Observations, Status>> + Unpin,
{
    match listing {
        Some(listing) => listing.await,
        None => pending().await,
    }
}

/// Converts an event of containerd, about a container's init process or about an exec instance.
fn runtime_event(event: TimestampedEvent) -> RuntimeEvent {
    match container_observation(&event.event) {
        Some(observation) => RuntimeEvent::Observed(
            Source::Event,
            Observations { observed_since: Instant::now(), items: vec![observation] },
        ),
        None => RuntimeEvent::Task(event),
    }
}

/// Returns the observation in an event of containerd about a container's init process.
fn container_observation(event: &TaskEvent) -> Option<Observation> {
    let (container, state, exit) = match event {
        TaskEvent::Started { container, .. } => (container, v1::ContainerState::ContainerRunning, None),
        TaskEvent::Exit { container, status, .. } => {
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

/// Waits for the next event. Waits forever if there is no stream. The end of the stream is an
/// error.
async fn next_event<S, T>(events: &mut Option<S>) -> Result<T, Status>
where
    S: Stream<Item = Result<T, Status>> + Unpin,
{
    let Some(events) = events else { return pending().await };
    events.next().await.unwrap_or_else(|| Err(Status::unavailable("the event stream has ended")))
}

async fn with_timeout<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let result = timeout(CALL_TIMEOUT, call).await;
    result.unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no response within {CALL_TIMEOUT:?}"))))
}
