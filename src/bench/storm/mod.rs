//! Offers exec probes to runtimes at increasing rates, to find the rates at which they saturate.

mod calls;
mod load;
mod report;
mod target;

use std::time::Duration;

use tokio::time::sleep;

use super::node_cpu::NodeCpu;
use super::{BenchError, exec_sync_request};
use crate::cri::RUNTIME_REQUEST_TIMEOUT;
use crate::cri::v1::ExecSyncRequest;
use crate::socket::SocketPath;

pub use report::{
    FailureCount, Saturation, SaturationReason, StormComparison, StormReport, StormResult, StormResults,
    StormStep,
};

use target::StormTarget;

/// Maximum number of samples of the idle node.
const MAX_IDLE_SAMPLES: u32 = 10;

/// Time of each sample of the idle node.
const IDLE_SAMPLE: Duration = Duration::from_secs(1);

/// Parameters of a storm of exec probes.
#[derive(Clone, Debug)]
pub struct StormSpec {
    /// The endpoints, at least one. In each step they are measured one after the other, so that a
    /// machine that changes its speed changes it for all. The others are compared with the first.
    pub endpoints: Vec<StormEndpoint>,
    /// The command of all calls. Calls to one container are identical, so they can be coalesced.
    pub command: Vec<String>,
    /// Timeout of each ExecSync in whole seconds, from 1, as `timeoutSeconds` of a probe.
    pub timeout_seconds: u32,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Number of calls to each container of each endpoint before the first step, one at a time.
    pub warm_up: usize,
    /// Rates of the steps in calls per second, in the order of the steps.
    pub rates: Vec<u32>,
    /// Time for which the calls of a step are offered.
    pub step_duration: Duration,
    /// Whether no more calls are offered to an endpoint after its first saturated step.
    pub until_saturated: bool,
}

/// An endpoint of a storm.
#[derive(Clone, Debug)]
pub struct StormEndpoint {
    /// Name of the endpoint in the report, different from those of the other endpoints.
    pub name: String,
    /// Socket to which the calls are sent: that of a runtime or of a relay.
    pub socket: SocketPath,
    /// Ids of the containers, or prefixes of them. The calls are spread over the containers.
    pub containers: Vec<String>,
}

/// The part of a storm that begins.
#[derive(Clone, Copy, Debug)]
pub enum StormProgress<'a> {
    /// The processor time of the node without calls is measured.
    IdleNode {
        /// Time for which it is measured.
        duration: Duration,
    },
    /// Calls are offered to an endpoint.
    Step {
        /// Number of the step, from 1.
        step: usize,
        /// Offered calls per second.
        rate: u32,
        /// Name of the endpoint.
        endpoint: &'a str,
    },
}

impl StormSpec {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.into())
    }

    /// Returns the time after which a call is given up. The kubelet gives the runtime this time
    /// beyond the timeout to clean up.
    fn deadline(&self) -> Duration {
        self.timeout() + RUNTIME_REQUEST_TIMEOUT
    }

    /// Returns the number of samples of the idle node, which take as long as a step, or less.
    fn idle_samples(&self) -> u32 {
        u32::try_from(self.step_duration.as_secs()).unwrap_or(u32::MAX).clamp(1, MAX_IDLE_SAMPLES)
    }

    fn request(&self, container: &str) -> ExecSyncRequest {
        exec_sync_request(container, &self.command, self.timeout_seconds.into())
    }
}

/// Measures the idle node, then runs the steps of a storm, one after the other. The part of a step
/// for an endpoint begins when all calls of the previous part have ended. `on_progress` is called
/// before each part.
pub async fn run_storm(
    spec: &StormSpec,
    mut on_progress: impl FnMut(StormProgress),
) -> Result<StormReport, BenchError> {
    let mut targets = Vec::new();
    for endpoint in &spec.endpoints {
        targets.push(StormTarget::new(spec, endpoint).await?);
    }
    for target in &mut targets {
        target.warm_up(spec).await?;
    }
    let samples = spec.idle_samples();
    on_progress(StormProgress::IdleNode { duration: samples * IDLE_SAMPLE });
    let idle_node = idle_node(samples).await?;
    for (step, &rate) in (1..).zip(&spec.rates) {
        let is_offered = |target: &&mut StormTarget| !(spec.until_saturated && target.is_saturated(spec));
        for target in targets.iter_mut().filter(is_offered) {
            on_progress(StormProgress::Step { step, rate, endpoint: target.name() });
            target.step(spec, rate, idle_node).await?;
        }
    }
    let results = targets.into_iter().map(|target| target.into_result(spec)).collect();
    Ok(StormReport::new(spec, idle_node, results))
}

/// Returns the processor time of the node in the quietest of several samples: at first, it may
/// still clean up after the calls of the warm-up.
async fn idle_node(samples: u32) -> Result<NodeCpu, BenchError> {
    let mut quietest: Option<NodeCpu> = None;
    for _ in 0..samples {
        let before = NodeCpu::read()?;
        sleep(IDLE_SAMPLE).await;
        let sample = NodeCpu::read()?.since(before);
        quietest = Some(quietest.map_or(sample, |quietest| quietest.quieter(sample)));
    }
    Ok(quietest.unwrap_or_default())
}
