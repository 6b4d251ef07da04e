//! Lifecycle hooks of containers, as the kubelet runs them (`pkg/kubelet/lifecycle/handlers.go`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{ContainerNames, Executor};
use super::{ProbeTarget, address, http};
use crate::cri::v1::ExecSyncRequest;
use crate::gofmt::rpc_error;
use crate::manifest::{ContainerSpec, Hook, HttpGet};

/// User agent of hooks. The version is that of the kubelet whose behaviour is reproduced.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// Container whose hook is run.
#[derive(Clone, Debug)]
pub(crate) struct HookContext {
    pub(crate) names: ContainerNames,
    pub(crate) id: Arc<str>,
    /// Specification of the container.
    pub(crate) container: Arc<ContainerSpec>,
    /// Address of the pod; empty if it is not known.
    pub(crate) address: Arc<str>,
}

/// Reason for which a hook did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookError {
    /// The hook failed with this message.
    Failed(String),
    /// The hook has not ended within the limit, and continues.
    TimedOut,
    /// The hook panicked.
    Panicked,
}

impl HookContext {
    /// Runs a hook, and waits for it until `limit`. As with the kubelet, a hook that takes longer
    /// continues. A hook whose future is dropped is aborted.
    pub(crate) async fn run(
        self,
        hook: Hook,
        executor: Executor,
        limit: Option<Duration>,
    ) -> Result<(), HookError> {
        let mut run = AbortOnDropHandle::new(tokio::spawn(async move {
            let Self { names, id, container, address } = self;
            let target = ProbeTarget { container_id: &id, container: &container, pod_ip: &address };
            run_hook(&hook, &target, &names, &executor).await
        }));
        let ended = match limit {
            Some(limit) => {
                let Ok(ended) = timeout(limit, &mut run).await else {
                    // The hook continues, as with the kubelet.
                    run.detach();
                    return Err(HookError::TimedOut);
                };
                ended
            }
            None => run.await,
        };
        ended.map_err(|_| HookError::Panicked)?.map_err(HookError::Failed)
    }
}

/// Runs a hook without a time limit.
async fn run_hook(
    hook: &Hook,
    target: &ProbeTarget<'_>,
    names: &ContainerNames,
    executor: &Executor,
) -> Result<(), String> {
    match hook {
        Hook::Exec(command) => exec(command, target, names, executor).await,
        Hook::Http(get) => http_get(get, target, executor.redacts()).await,
        Hook::Sleep(seconds) => {
            sleep(Duration::from_secs((*seconds).into())).await;
            Ok(())
        }
        Hook::Tcp => Err("tcpSocket is not a valid handler of hooks".to_owned()),
        Hook::Invalid(reason) => Err(reason.clone()),
    }
}

/// Runs a command. Variables in the command are not expanded, and the runtime gets no timeout.
async fn exec(
    command: &[String],
    target: &ProbeTarget<'_>,
    names: &ContainerNames,
    executor: &Executor,
) -> Result<(), String> {
    let request =
        ExecSyncRequest { container_id: target.container_id.to_owned(), cmd: command.to_vec(), timeout: 0 };
    match executor.exec_sync(names, request, None).await {
        Ok(response) if response.exit_code == 0 => Ok(()),
        Ok(response) => Err(format!("command terminated with exit code {}", response.exit_code)),
        Err(status) => Err(rpc_error(&status)),
    }
}

/// Sends a request. Any response is a success. If a server responds to HTTPS with plain HTTP, the
/// request is repeated over HTTP (`isHTTPResponseError`).
async fn http_get(get: &HttpGet, target: &ProbeTarget<'_>, redact: bool) -> Result<(), String> {
    let port = address::port(&get.port, &target.container.ports).map_err(|error| error.to_string())?;
    let host = get.host.as_deref().unwrap_or(target.pod_ip);
    if host.is_empty() {
        return Err("the address of the pod is not known".to_owned());
    }
    match http::ask_once(get, host, port, USER_AGENT, redact).await {
        Err(reason) if get.is_https && reason.ends_with(http::NOT_HTTPS) => {
            let plain = HttpGet { is_https: false, ..get.clone() };
            http::ask_once(&plain, host, port, USER_AGENT, redact).await
        }
        result => result,
    }
}
