//! Offers exec probes to a runtime at increasing rates, to find the rate at which it saturates.

mod calls;
mod load;
mod report;

use std::time::Duration;

use tokio::time::Instant;

use super::node_cpu::NodeCpu;
use super::{BenchError, exec_sync_request, whole_id};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, runtime_client};
use crate::socket::SocketPath;

pub use report::{FailureCount, Saturation, SaturationReason, StormReport, StormStep};

use load::StormLoad;

/// Parameters of a storm of exec probes.
#[derive(Clone, Debug)]
pub struct StormSpec {
    /// Socket to which the calls are sent: that of a runtime or of a relay.
    pub endpoint: SocketPath,
    /// Ids of the containers, or prefixes of them. The calls are spread over the containers.
    pub containers: Vec<String>,
    /// The command of all calls. Calls to one container are identical, so they can be coalesced.
    pub command: Vec<String>,
    /// Timeout of each ExecSync in whole seconds, from 1, as `timeoutSeconds` of a probe.
    pub timeout_seconds: u32,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Rates of the steps in calls per second, in the order of the steps.
    pub rates: Vec<u32>,
    /// Time for which the calls of a step are offered.
    pub step_duration: Duration,
}

impl StormSpec {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.into())
    }
}

/// Runs the steps of a storm, one after the other. A step begins when all calls of the previous one
/// have ended. `on_step` receives the number of each step, from 1, and its rate, before the step
/// begins.
pub async fn run_storm(
    spec: &StormSpec,
    mut on_step: impl FnMut(usize, u32),
) -> Result<StormReport, BenchError> {
    // The kubelet has one connection for all its probes.
    let mut client = runtime_client(&spec.endpoint);
    let mut containers = Vec::new();
    for container in &spec.containers {
        containers.push(whole_id(&mut client, container).await?);
    }
    let request = |container: &str| exec_sync_request(container, &spec.command, spec.timeout_seconds.into());
    // The cost of the first call of a container is in no result.
    for container in &containers {
        client.exec_sync(request(container)).await.map_err(BenchError::Exec)?;
    }
    // The kubelet gives the runtime this time beyond the timeout to clean up.
    let deadline = spec.timeout() + RUNTIME_REQUEST_TIMEOUT;
    let mut steps = Vec::new();
    for (number, &rate) in (1..).zip(&spec.rates) {
        on_step(number, rate);
        let load = StormLoad { rate, duration: spec.step_duration, concurrency: spec.concurrency, deadline };
        let (before, began) = (NodeCpu::read()?, Instant::now());
        let calls = load
            .offer(|call| {
                let mut request = tonic::Request::new(request(&containers[call % containers.len()]));
                request.set_timeout(deadline);
                let mut client = client.clone();
                async move { client.exec_sync(request).await }
            })
            .await;
        steps.push(StormStep::new(rate, calls, began.elapsed(), NodeCpu::read()?.since(before)));
    }
    Ok(StormReport::new(spec, containers, steps))
}
