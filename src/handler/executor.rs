//! Internal calls of the prober and the built-in kubelet: commands and stops of containers.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Response, Status};

use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse, StopContainerRequest, StopContainerResponse};
use crate::cri::{
    MeteredRuntimeClient, RUNTIME_REQUEST_TIMEOUT, ignore_not_found, known_cause, with_timeout,
};
use crate::object_ref::{ContainerRef, PodRef};
use crate::policy::Policies;
use crate::relay::MarkSet;
use crate::tap::{EndedCall, InternalCall, InternalCalls, KillRecord};

/// Names of a container and its pod.
#[derive(Clone, Debug, Default)]
pub struct ContainerNames {
    /// Names of the pod.
    pub pod: Arc<PodRef>,
    /// Names of the container.
    pub container: Arc<ContainerRef>,
}

/// Runs commands in containers and stops containers through the runtime.
#[derive(Clone, Debug)]
pub struct Executor {
    backend: ExecBackend,
    internal_calls: Option<InternalCalls>,
    /// Whether messages show only the program of a command, and no output.
    redacts: bool,
    policies: Policies,
}

/// Backend of an [`Executor`].
#[derive(Clone, Debug)]
enum ExecBackend {
    /// Calls to the runtime.
    Runtime(MeteredRuntimeClient),
    /// Answers of a test.
    #[cfg(test)]
    Fake(tests::FakeRuntime),
}

impl Executor {
    /// Returns an executor that calls the runtime with this client and records its calls as
    /// internal calls. `redacts` limits messages to the program of a command, and omits its output.
    #[must_use]
    pub fn new(client: MeteredRuntimeClient, internal_calls: Option<InternalCalls>, redacts: bool) -> Self {
        Self { backend: ExecBackend::Runtime(client), internal_calls, redacts, policies: Policies::default() }
    }

    /// Returns the executor with policies, which may affect its calls.
    #[must_use]
    pub fn with_policies(self, policies: Policies) -> Self {
        Self { policies, ..self }
    }

    pub(crate) fn redacts(&self) -> bool {
        self.redacts
    }

    /// Runs a command. `limit` is the timeout of the call; `None` for no timeout. The status of an
    /// executor that redacts has only the known cause: some runtimes add the output to the message.
    /// The call is returned too, if it is recorded.
    pub(super) async fn exec_sync(
        &self,
        names: &ContainerNames,
        request: ExecSyncRequest,
        limit: Option<Duration>,
    ) -> (Result<ExecSyncResponse, Status>, Option<EndedCall>) {
        let ContainerNames { pod, container } = names.clone();
        let internal_calls = self.internal_calls.as_ref();
        let mut internal_call =
            internal_calls.map(|calls| calls.exec(pod, container, &request.cmd, request.timeout));
        let info = internal_call.as_ref().map(InternalCall::info).cloned();
        let marks = MarkSet::default();
        let exec = |request| {
            if let Some(call) = &mut internal_call {
                call.sent();
            }
            self.backend.exec_sync(request)
        };
        let call = self.policies.apply_to_own(info.as_ref(), request, &marks, exec);
        let result = with_timeout(limit, call).await;
        let ended = internal_call.map(|call| call.marked(marks.take()).end_exec(result.as_ref()));
        (if self.redacts { result.map_err(|status| redacted(&status)) } else { result }, ended)
    }

    /// Stops a container: the runtime sends SIGTERM, and SIGKILL after `grace_period` seconds.
    /// `kill` is set if a probe has failed. A container that no longer exists counts as stopped.
    pub(crate) async fn stop(
        &self,
        names: &ContainerNames,
        container_id: &str,
        grace_period: u32,
        kill: Option<KillRecord>,
    ) -> Result<(), Status> {
        let ContainerNames { pod, container } = names.clone();
        let internal_call = self.internal_calls.as_ref().map(|calls| calls.stop(pod, container, kill));
        let request =
            StopContainerRequest { container_id: container_id.to_owned(), timeout: grace_period.into() };
        let limit = RUNTIME_REQUEST_TIMEOUT + Duration::from_secs(grace_period.into());
        let (info, marks) = (internal_call.as_ref().map(InternalCall::info), MarkSet::default());
        let stop = |request| self.backend.stop_container(request);
        let result = with_timeout(limit, self.policies.apply_to_own(info, request, &marks, stop)).await;
        if let Some(call) = internal_call {
            call.marked(marks.take()).end(result.as_ref().map(drop));
        }
        ignore_not_found(result).map(drop)
    }
}

impl ExecBackend {
    async fn exec_sync(&self, request: ExecSyncRequest) -> Result<Response<ExecSyncResponse>, Status> {
        match self {
            Self::Runtime(client) => client.clone().exec_sync(request).await,
            #[cfg(test)]
            Self::Fake(fake) => fake.exec(request).await.map(Response::new),
        }
    }

    async fn stop_container(
        &self,
        request: StopContainerRequest,
    ) -> Result<Response<StopContainerResponse>, Status> {
        match self {
            Self::Runtime(client) => client.clone().stop_container(request).await,
            #[cfg(test)]
            Self::Fake(fake) => fake.stop(request).await.map(|()| Response::new(StopContainerResponse {})),
        }
    }
}

/// Returns a status with the same code, and without the parts of its message that may contain
/// arguments or output of a command.
fn redacted(status: &Status) -> Status {
    let hidden = "the message is hidden by --redact-commands";
    Status::new(status.code(), known_cause(status.message()).unwrap_or(hidden))
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use tokio::time::sleep;

    use super::*;

    /// A runtime whose responses and response times are set by a test.
    #[derive(Clone)]
    pub(super) struct FakeRuntime {
        execs: Arc<Execs>,
        stops: Arc<Stops>,
    }

    type Execs = dyn Fn(&ExecSyncRequest) -> (Duration, Result<ExecSyncResponse, Status>) + Send + Sync;
    type Stops = dyn Fn(&StopContainerRequest) -> (Duration, Result<(), Status>) + Send + Sync;

    impl FakeRuntime {
        pub(super) async fn exec(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, Status> {
            let (takes, result) = (self.execs)(&request);
            sleep(takes).await;
            result
        }

        pub(super) async fn stop(&self, request: StopContainerRequest) -> Result<(), Status> {
            let (takes, result) = (self.stops)(&request);
            sleep(takes).await;
            result
        }
    }

    impl fmt::Debug for FakeRuntime {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("FakeRuntime")
        }
    }

    impl Executor {
        /// Returns an executor for tests: `execs` answers commands, and stops succeed immediately.
        pub(crate) fn fake(
            execs: impl Fn(&ExecSyncRequest) -> (Duration, Result<ExecSyncResponse, Status>)
            + Send
            + Sync
            + 'static,
        ) -> Self {
            let fake = FakeRuntime { execs: Arc::new(execs), stops: Arc::new(|_| (Duration::ZERO, Ok(()))) };
            Self {
                backend: ExecBackend::Fake(fake),
                internal_calls: None,
                redacts: false,
                policies: Policies::default(),
            }
        }

        /// Returns the executor as one that records its calls as internal calls.
        pub(crate) fn with_internal_calls(self, internal_calls: InternalCalls) -> Self {
            Self { internal_calls: Some(internal_calls), ..self }
        }

        /// Returns the executor as one that redacts.
        pub(crate) fn redacting(self) -> Self {
            Self { redacts: true, ..self }
        }

        /// Returns the executor with `stops` as the answers to stops.
        pub(crate) fn with_stops(
            self,
            stops: impl Fn(&StopContainerRequest) -> (Duration, Result<(), Status>) + Send + Sync + 'static,
        ) -> Self {
            let ExecBackend::Fake(fake) = self.backend else { panic!("it is the runtime's") };
            let fake = FakeRuntime { stops: Arc::new(stops), ..fake };
            Self { backend: ExecBackend::Fake(fake), ..self }
        }
    }
}
