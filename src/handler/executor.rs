//! What the runtime does for us: commands are executed, containers are stopped.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Response, Status};

use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse, StopContainerRequest, StopContainerResponse};
use crate::cri::{Code, MeteredRuntimeClient, RUNTIME_REQUEST_TIMEOUT, ignore_not_found, with_timeout};
use crate::object_ref::{ContainerRef, PodRef};
use crate::tap::{ExecResult, InternalCalls, KillRecord};

/// Whose container it is that something is done in.
#[derive(Clone, Debug, Default)]
pub struct ContainerNames {
    /// The pod.
    pub pod: Arc<PodRef>,
    /// The container.
    pub container: Arc<ContainerRef>,
}

/// Has the runtime execute commands and stop containers.
#[derive(Clone, Debug)]
pub struct Executor {
    backend: ExecBackend,
    internal_calls: Option<InternalCalls>,
    /// Whether of commands only the program is told, and nothing of what they write.
    redacts: bool,
}

/// How it is done.
#[derive(Clone, Debug)]
enum ExecBackend {
    /// The runtime does it.
    Runtime(MeteredRuntimeClient),
    /// A test answers.
    #[cfg(test)]
    Fake(tests::FakeRuntime),
}

impl Executor {
    /// Has it done through this client, and tells of it. `redacts`: of commands only the program is told, and nothing of what they write.
    #[must_use]
    pub fn new(client: MeteredRuntimeClient, internal_calls: Option<InternalCalls>, redacts: bool) -> Self {
        Self { backend: ExecBackend::Runtime(client), internal_calls, redacts }
    }

    pub(crate) fn redacts(&self) -> bool {
        self.redacts
    }

    /// Executes a command, with a limit for the answer if there is one.
    pub(super) async fn exec_sync(
        &self,
        names: &ContainerNames,
        request: ExecSyncRequest,
        limit: Option<Duration>,
    ) -> Result<ExecSyncResponse, Status> {
        let ContainerNames { pod, container } = names.clone();
        let internal_calls = self.internal_calls.as_ref();
        let internal_call =
            internal_calls.and_then(|calls| calls.exec(pod, container, &request.cmd, request.timeout));
        let result = with_timeout(limit, self.backend.exec_sync(request)).await;
        if let Some(call) = internal_call {
            call.end(code(&result), result.as_ref().ok().map(exec_result));
        }
        result
    }

    /// Stops a container, for a probe that has failed if there is one: SIGTERM, and SIGKILL once its grace period is over, in seconds. One
    /// that is gone has been stopped.
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
        let result = with_timeout(limit, self.backend.stop_container(request)).await;
        if let Some(call) = internal_call {
            call.end(code(&result), None);
        }
        ignore_not_found(result).map(drop)
    }
}

fn code<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().map_or_else(|status| Code::from(status.code()), |_| Code::OK)
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

/// What an answer is remembered by.
fn exec_result(response: &ExecSyncResponse) -> ExecResult {
    ExecResult {
        exit_code: response.exit_code,
        stdout_bytes: response.stdout.len(),
        stderr_bytes: response.stderr.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use tokio::time::sleep;

    use super::*;

    /// Answers as a test says, after as long as it says.
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
        /// An executor for tests: `execs` answers commands, and stops succeed at once.
        pub(crate) fn fake(
            execs: impl Fn(&ExecSyncRequest) -> (Duration, Result<ExecSyncResponse, Status>)
            + Send
            + Sync
            + 'static,
        ) -> Self {
            let fake = FakeRuntime { execs: Arc::new(execs), stops: Arc::new(|_| (Duration::ZERO, Ok(()))) };
            Self { backend: ExecBackend::Fake(fake), internal_calls: None, redacts: false }
        }

        /// The same executor, in which `stops` answers stops.
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
