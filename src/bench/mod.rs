//! Measures ExecSync of one container, directly and through the relay in turn, and of several
//! containers at increasing rates.

mod figures;
mod node_cpu;
mod storm;

use std::panic;
use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::containerd::TaskEvents;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{ContainerStatusRequest, ExecSyncRequest, VersionRequest};
use crate::cri::{self, lazy_channel, runtime_client};
use crate::execsync::{ExecMeter, Phases};
use crate::inventory::RuntimeInfo;
use crate::socket::SocketPath;

pub(crate) use figures::percentile_ms;
pub use figures::{BenchReport, PathResult, PhaseStats};
pub use storm::{
    FailureCount, Saturation, SaturationReason, StormComparison, StormEndpoint, StormProgress, StormReport,
    StormResult, StormResults, StormSpec, StormStep, run_storm,
};

use figures::Samples;
use node_cpu::NodeCpu;

/// Maximum number of rounds on each path. The paths take turns, so that other load on the node
/// affects both.
const ROUNDS: usize = 10;

/// Maximum number of calls before the measurement.
const WARM_UPS: usize = 3;

/// Time to wait for events after the last call of a round.
const LATE_EVENTS: Duration = Duration::from_millis(500);

/// Parameters of a measurement.
#[derive(Clone, Debug)]
pub struct BenchSpec {
    /// Socket of the runtime.
    pub direct: SocketPath,
    /// Socket of the relay.
    pub relayed: SocketPath,
    /// Id of the container, or a prefix of it.
    pub container: String,
    /// The command to execute.
    pub command: Vec<String>,
    /// Timeout of each ExecSync, in seconds; 0 for none.
    pub timeout: i64,
    /// Number of calls on each path.
    pub calls: usize,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
}

/// Error of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The runtime does not answer, or does not know the container.
    #[error("the runtime returned an error: {}", .0.message())]
    Runtime(#[from] Status),
    /// An endpoint accepts no connections.
    #[error("the endpoint cannot be reached: {}", .0.message())]
    Unreachable(Status),
    /// The runtime returned no status of the container.
    #[error("the runtime returned no status of container {0}")]
    NoContainer(String),
    /// A call before the measurement failed.
    #[error("ExecSync of the command failed: {}", .0.message())]
    Exec(Status),
    /// An error of one of several endpoints.
    #[error("endpoint {name}: {error}")]
    Endpoint {
        /// Name of the endpoint.
        name: String,
        /// The error.
        error: Box<Self>,
    },
    /// The node's processor time cannot be read.
    #[error("cannot read /proc/stat: {0}")]
    Proc(#[from] procfs::ProcError),
}

/// Runs a measurement.
pub async fn run(plan: &BenchSpec) -> Result<BenchReport, BenchError> {
    let mut bench = BenchRun::new(plan).await?;
    bench.warm_up().await?;
    let mut samples = [Samples::default(), Samples::default()];
    for calls in plan.rounds() {
        for (samples, socket) in samples.iter_mut().zip([&plan.direct, &plan.relayed]) {
            bench.round(socket, calls, samples).await?;
        }
    }
    let [direct, relayed] = samples;
    Ok(BenchReport {
        container: bench.container,
        command: plan.command.clone(),
        calls: plan.calls,
        concurrency: plan.concurrency,
        ways: vec![direct.into_way("direct"), relayed.into_way("relay")],
    })
}

/// A measurement in progress.
struct BenchRun<'a> {
    plan: &'a BenchSpec,
    client: RuntimeServiceClient<Channel>,
    /// Full id of the container.
    container: String,
    /// Events of exec instances; `None` for a runtime other than containerd, which has no such
    /// events.
    events: Option<TaskEvents>,
}

impl<'a> BenchRun<'a> {
    async fn new(plan: &'a BenchSpec) -> Result<Self, BenchError> {
        let mut client = runtime_client(&plan.direct);
        let container = whole_id(&mut client, &plan.container).await?;
        let version = client.version(VersionRequest { version: "v1".to_owned() }).await?.into_inner();
        let has_exec_events = RuntimeInfo::from(version).publishes_task_events();
        let events = has_exec_events.then(|| TaskEvents::new(lazy_channel(&plan.direct)));
        Ok(Self { plan, client, container, events })
    }

    /// Makes a call, so that the cost of the first call is in neither result. Repeats it until its
    /// events arrive, since a subscription takes a moment to start.
    async fn warm_up(&mut self) -> Result<(), BenchError> {
        for _ in 0..WARM_UPS {
            let (mut meter, mut is_heard) = (ExecMeter::new(&self.container, true), false);
            let mut call = pin!(self.client.exec_sync(self.plan.request(&self.container)));
            let mut answered: Option<Instant> = None;
            while answered.is_none() || !is_heard {
                tokio::select! {
                    answer = &mut call, if answered.is_none() => {
                        answer.map_err(BenchError::Exec)?;
                        answered = Some(Instant::now());
                    }
                    event = next(&mut self.events) => {
                        meter.on_task_event(&event?);
                        is_heard |= !meter.take_timings().is_empty();
                    }
                    () = sleep_until(answered.unwrap_or_else(Instant::now) + LATE_EVENTS), if answered.is_some() => break,
                }
            }
            if is_heard || self.events.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Makes this number of calls, and adds their results to the samples.
    async fn round(
        &mut self,
        socket: &SocketPath,
        calls: usize,
        samples: &mut Samples,
    ) -> Result<(), BenchError> {
        let mut meter = ExecMeter::new(&self.container, self.events.is_some());
        // Each concurrent call has its own connection, as calls of separate clients do. All are
        // opened before the measurement.
        let mut clients = Vec::new();
        for _ in 0..self.plan.concurrency.min(calls) {
            let mut client = runtime_client(socket);
            client.version(VersionRequest { version: "v1".to_owned() }).await?;
            clients.push(client);
        }
        let (cpu, began) = (NodeCpu::read()?, Instant::now());
        let (mut running, mut left, mut phases) = (JoinSet::new(), calls, Vec::new());
        loop {
            while left > 0
                && let Some(mut client) = clients.pop()
            {
                left -= 1;
                let request = self.plan.request(&self.container);
                let call = meter.start(&self.plan.command, self.plan.timeout);
                running.spawn(async move {
                    let began = Instant::now();
                    let answer = client.exec_sync(request).await;
                    (call, began.elapsed(), answer.map(|answer| answer.into_inner().exit_code), client)
                });
            }
            tokio::select! {
                ended = running.join_next() => {
                    let Some(ended) = ended else { break };
                    let (call, took, answer, client) =
                        ended.unwrap_or_else(|panicked| panic::resume_unwind(panicked.into_panic()));
                    let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
                    samples.record(took, answer.as_ref().ok().copied());
                    meter.finish(call, took, cri::Code(u32::from(code as u8)), answer.ok());
                    clients.push(client);
                }
                event = next(&mut self.events) => meter.on_task_event(&event?),
            }
            phases.extend(meter.take_phases(false));
        }
        samples.elapsed(began.elapsed(), NodeCpu::read()?.since(cpu).busy);
        let late = self.late_events(&mut meter, calls.saturating_sub(phases.len()));
        phases.extend(late.await?);
        samples.executions(meter.take_timings());
        for phases in phases {
            samples.phases(&phases);
        }
        Ok(())
    }

    /// Waits a moment for the late events of this number of completed calls, and returns their
    /// phases. Calls whose events do not arrive are concluded without them.
    async fn late_events(&mut self, meter: &mut ExecMeter, calls: usize) -> Result<Vec<Phases>, BenchError> {
        let mut phases = Vec::new();
        let until = Instant::now() + LATE_EVENTS;
        while phases.len() < calls
            && let Ok(event) = timeout_at(until, next(&mut self.events)).await
        {
            meter.on_task_event(&event?);
            phases.extend(meter.take_phases(false));
        }
        phases.extend(meter.take_phases(true));
        Ok(phases)
    }
}

impl BenchSpec {
    fn request(&self, container: &str) -> ExecSyncRequest {
        exec_sync_request(container, &self.command, self.timeout)
    }

    /// Returns the number of calls of each round.
    fn rounds(&self) -> Vec<usize> {
        let rounds = self.calls.div_ceil(self.concurrency).clamp(1, ROUNDS);
        let (each, more) = (self.calls / rounds, self.calls % rounds);
        (0..rounds).map(|round| each + usize::from(round < more)).collect()
    }
}

fn exec_sync_request(container: &str, command: &[String], timeout: i64) -> ExecSyncRequest {
    ExecSyncRequest { container_id: container.to_owned(), cmd: command.to_vec(), timeout }
}

async fn whole_id(client: &mut RuntimeServiceClient<Channel>, named: &str) -> Result<String, BenchError> {
    let request = ContainerStatusRequest { container_id: named.to_owned(), verbose: false };
    let status = client.container_status(request).await?.into_inner().status;
    status.map(|status| status.id).ok_or_else(|| BenchError::NoContainer(named.to_owned()))
}

/// Returns the next event; never completes if there are no events.
async fn next(events: &mut Option<TaskEvents>) -> Result<crate::containerd::TimestampedEvent, Status> {
    let Some(events) = events else { return std::future::pending().await };
    events.next().await.unwrap_or_else(|| Err(Status::unavailable("containerd's event stream has ended")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_calls_are_divided_into_rounds() {
        let socket = SocketPath::parse("/a.sock").unwrap();
        for (calls, concurrency, rounds) in
            [(20, 1, vec![2; 10]), (3, 1, vec![1, 1, 1]), (25, 10, vec![9, 8, 8]), (5, 10, vec![5])]
        {
            let plan = BenchSpec {
                direct: socket.clone(),
                relayed: socket.clone(),
                container: String::new(),
                command: Vec::new(),
                timeout: 0,
                calls,
                concurrency,
            };
            assert_eq!(plan.rounds(), rounds, "{calls} {concurrency}");
        }
    }
}
