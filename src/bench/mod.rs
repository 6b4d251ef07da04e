//! ExecSync of one container, measured directly and through the relay in turn.

mod figures;

use std::panic;
use std::pin::pin;
use std::time::Duration;

use procfs::{CurrentSI as _, KernelStats};
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

pub use figures::{BenchReport, PathResult, PhaseStats};

use figures::Samples;

/// Rounds of each way, at most: in turns, so that what else goes on touches both.
const ROUNDS: usize = 10;

/// Calls before anything is measured, at most.
const WARM_UPS: usize = 3;

/// How long events may come after the last call of a round.
const LATE_EVENTS: Duration = Duration::from_millis(500);

/// What is measured.
#[derive(Clone, Debug)]
pub struct BenchSpec {
    /// The runtime.
    pub direct: SocketPath,
    /// The relay before it.
    pub relayed: SocketPath,
    /// The container, by its id or the beginning of it.
    pub container: String,
    /// What is executed.
    pub command: Vec<String>,
    /// In seconds; 0 for none.
    pub timeout: i64,
    /// Calls each way.
    pub calls: usize,
    /// Calls that are in flight at a time.
    pub concurrency: usize,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The runtime does not answer, or does not have the container.
    #[error("the runtime answers: {}", .0.message())]
    Runtime(#[from] Status),
    /// There is no such container, by its own account.
    #[error("the runtime tells nothing of container {0}")]
    NoContainer(String),
    /// The first call failed: so would the others.
    #[error("an ExecSync of the command fails: {}", .0.message())]
    Exec(Status),
    /// The kernel does not tell how busy it is.
    #[error("cannot read /proc/stat: {0}")]
    Proc(#[from] procfs::ProcError),
}

/// Measures.
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

/// A plan, and the runtime that it is about.
struct BenchRun<'a> {
    plan: &'a BenchSpec,
    client: RuntimeServiceClient<Channel>,
    /// Its whole id.
    container: String,
    /// None come of a runtime that tells of no execution.
    events: Option<TaskEvents>,
}

impl<'a> BenchRun<'a> {
    async fn new(plan: &'a BenchSpec) -> Result<Self, BenchError> {
        let mut client = runtime_client(&plan.direct);
        let container = whole_id(&mut client, &plan.container).await?;
        let version = client.version(VersionRequest { version: "v1".to_owned() }).await?.into_inner();
        let tells_execs = RuntimeInfo::from(version).is_containerd();
        let events = tells_execs.then(|| TaskEvents::new(lazy_channel(&plan.direct)));
        Ok(Self { plan, client, container, events })
    }

    /// Makes a call, so that what the first one costs is in neither way; and another, until events are heard of it: a subscription takes a
    /// moment to begin.
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

    /// Makes so many calls, and takes down how they went.
    async fn round(
        &mut self,
        socket: &SocketPath,
        calls: usize,
        samples: &mut Samples,
    ) -> Result<(), BenchError> {
        let mut meter = ExecMeter::new(&self.container, self.events.is_some());
        // A connection for each, as that many clients would have; made before anything is measured.
        let mut clients = Vec::new();
        for _ in 0..self.plan.concurrency.min(calls) {
            let mut client = runtime_client(socket);
            client.version(VersionRequest { version: "v1".to_owned() }).await?;
            clients.push(client);
        }
        let (busy, began) = (busy()?, Instant::now());
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
                    samples.record(took, code == Code::Ok);
                    meter.finish(call, took, cri::Code(u32::from(code as u8)), answer.ok());
                    clients.push(client);
                }
                event = next(&mut self.events) => meter.on_task_event(&event?),
            }
            phases.extend(meter.take_phases(false));
        }
        samples.elapsed(began.elapsed(), self::busy()?.saturating_sub(busy));
        let late = self.late_events(&mut meter, calls.saturating_sub(phases.len()));
        phases.extend(late.await?);
        samples.executions(meter.take_timings());
        for phases in phases {
            samples.phases(&phases);
        }
        Ok(())
    }

    /// Waits a moment for the events of so many calls that have ended, and concludes without those that do not come.
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
        ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: self.command.clone(),
            timeout: self.timeout,
        }
    }

    /// The calls of each round.
    fn rounds(&self) -> Vec<usize> {
        let rounds = self.calls.div_ceil(self.concurrency).clamp(1, ROUNDS);
        let (each, more) = (self.calls / rounds, self.calls % rounds);
        (0..rounds).map(|round| each + usize::from(round < more)).collect()
    }
}

async fn whole_id(client: &mut RuntimeServiceClient<Channel>, named: &str) -> Result<String, BenchError> {
    let request = ContainerStatusRequest { container_id: named.to_owned(), verbose: false };
    let status = client.container_status(request).await?.into_inner().status;
    status.map(|status| status.id).ok_or_else(|| BenchError::NoContainer(named.to_owned()))
}

/// Processor time that the node has spent since its start on anything but waiting.
fn busy() -> Result<Duration, BenchError> {
    let total = KernelStats::current()?.total;
    let ticks =
        [Some(total.user), Some(total.nice), Some(total.system), total.irq, total.softirq, total.steal];
    let ticks: u64 = ticks.into_iter().flatten().sum();
    Ok(Duration::from_millis(ticks * 1000 / procfs::ticks_per_second()))
}

/// The next event; never, where none come.
async fn next(events: &mut Option<TaskEvents>) -> Result<crate::containerd::TimestampedEvent, Status> {
    let Some(events) = events else { return std::future::pending().await };
    events.next().await.unwrap_or_else(|| Err(Status::unavailable("containerd's events have ended")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_divided_into_rounds() {
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
