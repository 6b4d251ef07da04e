//! An endpoint to which a storm sends its calls.

use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::load::StormLoad;
use super::{StormEndpoint, StormResult, StormSpec, StormStep};
use crate::bench::node_cpu::NodeCpu;
use crate::bench::{BenchError, whole_id};
use crate::cri::runtime_client;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;

/// An endpoint with its connection, and the results of its steps so far.
#[derive(Debug)]
pub(super) struct StormTarget<'a> {
    endpoint: &'a StormEndpoint,
    /// The only connection: the kubelet has one for all its probes.
    client: RuntimeServiceClient<Channel>,
    /// Full ids of the containers.
    containers: Vec<String>,
    steps: Vec<StormStep>,
}

impl<'a> StormTarget<'a> {
    /// Connects to an endpoint and looks its containers up.
    pub(super) async fn new(spec: &StormSpec, endpoint: &'a StormEndpoint) -> Result<Self, BenchError> {
        let (mut client, mut containers) = (runtime_client(&endpoint.socket), Vec::new());
        for container in &endpoint.containers {
            let id = whole_id(&mut client, container).await.map_err(|error| match error {
                BenchError::Runtime(status) if status.code() == Code::Unavailable => {
                    BenchError::Unreachable(status)
                }
                error => error,
            });
            containers.push(id.map_err(|error| with_endpoint(spec, endpoint, error))?);
        }
        Ok(Self { endpoint, client, containers, steps: Vec::new() })
    }

    pub(super) fn name(&self) -> &'a str {
        &self.endpoint.name
    }

    /// Calls each container, so that the cost of its first calls is in no result.
    pub(super) async fn warm_up(&mut self, spec: &StormSpec) -> Result<(), BenchError> {
        for container in &self.containers {
            for _ in 0..spec.warm_up {
                let call = self.client.exec_sync(spec.request(container)).await;
                let failed = |status: Status| with_endpoint(spec, self.endpoint, BenchError::Exec(status));
                call.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Offers calls at a rate, and adds the step to the results when all have ended.
    pub(super) async fn step(
        &mut self,
        spec: &StormSpec,
        rate: u32,
        idle_node: NodeCpu,
    ) -> Result<(), BenchError> {
        let deadline = spec.deadline();
        let load = StormLoad { rate, duration: spec.step_duration, concurrency: spec.concurrency, deadline };
        let (before, began) = (NodeCpu::read()?, Instant::now());
        let calls = load.offer(|call| {
            let container = &self.containers[call % self.containers.len()];
            let mut request = tonic::Request::new(spec.request(container));
            request.set_timeout(deadline);
            let mut client = self.client.clone();
            async move { client.exec_sync(request).await }
        });
        let calls = calls.await;
        let cpu = NodeCpu::read()?.since(before);
        self.steps.push(StormStep::new(rate, calls, began.elapsed(), cpu, idle_node));
        Ok(())
    }

    /// Returns whether a step so far is saturated.
    pub(super) fn is_saturated(&self, spec: &StormSpec) -> bool {
        self.steps.iter().any(|step| step.saturation(spec.timeout()).is_some())
    }

    pub(super) fn into_result(self, spec: &StormSpec) -> StormResult {
        StormResult::new(spec, self.endpoint, self.containers, self.steps)
    }
}

/// Adds the name of its endpoint to an error, if there are several endpoints.
fn with_endpoint(spec: &StormSpec, endpoint: &StormEndpoint, error: BenchError) -> BenchError {
    if spec.endpoints.len() == 1 {
        return error;
    }
    BenchError::Endpoint { name: endpoint.name.clone(), error: Box::new(error) }
}
