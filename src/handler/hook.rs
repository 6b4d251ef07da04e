//! Lifecycle hooks of containers, as the kubelet runs them (`pkg/kubelet/lifecycle/handlers.go`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{ContainerNames, Executor};
use super::{MAX_OUTPUT_BYTES, ProbeTarget, address, exec, http};
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::gofmt::{quote, rpc_error};
use crate::manifest::{ContainerSpec, Hook, HttpGet};
use crate::redact::path_without_query;

/// User agent of hooks. The version is that of the kubelet whose behaviour is reproduced.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// Container whose hook is run.
#[derive(Clone, Debug)]
pub(crate) struct HookContext {
    pub(crate) names: ContainerNames,
    pub(crate) id: Arc<str>,
    /// Specification of the container.
    pub(crate) container: Arc<ContainerSpec>,
    /// Address that the runtime reports for the sandbox; empty if there is none, as in the host's
    /// network.
    pub(crate) address: Arc<str>,
}

/// Reason for which a hook did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookError {
    /// The hook failed with this message, which is the kubelet's (`handlers.go`: `Run`).
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
        Hook::Exec(command) => run_command(command, target, names, executor).await,
        Hook::Http(get) => http_get(get, target, names, executor.redacts()).await,
        Hook::Sleep(seconds) => {
            sleep(Duration::from_secs((*seconds).into())).await;
            Ok(())
        }
        Hook::Tcp => Err("tcpSocket is not a valid handler of hooks".to_owned()),
        Hook::Invalid(reason) => Err(reason.clone()),
    }
}

/// Runs a command. Variables in the command are not expanded, and the runtime gets no timeout. The
/// message of an executor that redacts has only the program, and no output.
async fn run_command(
    command: &[String],
    target: &ProbeTarget<'_>,
    names: &ContainerNames,
    executor: &Executor,
) -> Result<(), String> {
    let request =
        ExecSyncRequest { container_id: target.container_id.to_owned(), cmd: command.to_vec(), timeout: 0 };
    let (answered, _) = executor.exec_sync(names, request, None).await;
    let shown = if executor.redacts() { &command[..command.len().min(1)] } else { command };
    let (error, output) = match answered {
        Ok(response) if response.exit_code == 0 => return Ok(()),
        Ok(mut response) => {
            if executor.redacts() {
                (response.stdout, response.stderr) = (Vec::new(), Vec::new());
            }
            (exit_error(shown, &response), exec::output(&response))
        }
        Err(status) => (rpc_error(&status), String::new()),
    };
    let (command, subject, output) = (shown.join(" "), subject(names), quote(&output));
    Err(format!("Exec lifecycle hook ([{command}]) for {subject} failed - error: {error}, message: {output}"))
}

/// Returns the error of a command that has failed (cri-client: `remote_runtime.go`: `execSync`).
fn exit_error(command: &[String], response: &ExecSyncResponse) -> String {
    let stderr = &response.stderr[..response.stderr.len().min(MAX_OUTPUT_BYTES)];
    let (command, stderr) = (command.join(" "), String::from_utf8_lossy(stderr));
    format!("command '{command}' exited with {}: {stderr}", response.exit_code)
}

/// Returns the container and the pod of a hook, as messages name them.
fn subject(names: &ContainerNames) -> String {
    let ContainerNames { pod, container } = names;
    let [container, name, namespace, uid] = [&container.name, &pod.name, &pod.namespace, &pod.uid]
        .map(|text| text.as_deref().unwrap_or_default());
    format!("Container {container:?} in Pod \"{name}_{namespace}({uid})\"")
}

/// Sends a request.
async fn http_get(
    get: &HttpGet,
    target: &ProbeTarget<'_>,
    names: &ContainerNames,
    redact: bool,
) -> Result<(), String> {
    request(get, target, redact).await.map_err(|error| {
        let path = if redact { path_without_query(&get.path) } else { get.path.as_str().into() };
        format!("HTTP lifecycle hook ({path}) for {} failed - error: {error}", subject(names))
    })
}

/// Sends a request to the hook's host, or to the address of the sandbox. In the host's network a
/// sandbox has no address, so a hook without a host fails there (`runHTTPHandler`). Any response is
/// a success. If a server responds to HTTPS with plain HTTP, the request is repeated over HTTP
/// (`isHTTPResponseError`).
async fn request(get: &HttpGet, target: &ProbeTarget<'_>, redact: bool) -> Result<(), String> {
    let port = address::port(&get.port, &target.container.ports).map_err(|error| error.to_string())?;
    let host = get.host.as_deref().unwrap_or(target.pod_ip);
    if host.is_empty() {
        return Err("failed to find networking container: the sandbox has no IP address".to_owned());
    }
    match http::ask_once(get, host, port, USER_AGENT, redact).await {
        Err(reason) if get.is_https && reason.ends_with(http::NOT_HTTPS) => {
            let plain = HttpGet { is_https: false, ..get.clone() };
            http::ask_once(&plain, host, port, USER_AGENT, redact).await
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::handler::exec::tests::answer;
    use crate::manifest::Port;
    use crate::object_ref::{ContainerRef, PodRef};

    /// Runs a hook of the container `main`, whose sandbox has no address.
    async fn run(hook: Hook, executor: Executor) -> Result<(), HookError> {
        let text = |text: &str| Some(text.to_owned());
        let pod = PodRef { id: None, namespace: text("test"), name: text("web"), uid: text("uid") };
        let container = ContainerRef { id: text("c"), name: text("main"), attempt: Some(0) };
        let context = HookContext {
            names: ContainerNames { pod: pod.into(), container: container.into() },
            id: "c".into(),
            container: ContainerSpec::named("main").into(),
            address: "".into(),
        };
        context.run(hook, executor, None).await
    }

    /// Returns the error of a hook.
    async fn error_of(hook: Hook, executor: Executor) -> HookError {
        run(hook, executor).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_hook_is_repeated_over_http_if_the_server_has_no_tls_and_any_response_is_a_success() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let mut first_bytes = Vec::new();
            for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"]
            {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 4096];
                assert!(stream.read(&mut buffer).await.unwrap() > 0);
                first_bytes.push(buffer[0]);
                stream.write_all(answer.as_bytes()).await.unwrap();
                let _ = stream.read(&mut buffer).await;
            }
            first_bytes
        });
        let get = HttpGet {
            path: "/".to_owned(),
            port: Port::Number(port),
            host: Some("127.0.0.1".to_owned()),
            is_https: true,
            headers: Vec::new(),
        };
        let executor = Executor::fake(|_| (Duration::ZERO, answer(0, "", "")));
        assert_eq!(run(Hook::Http(get), executor).await, Ok(()));
        // A TLS handshake begins with 0x16, the second request is plain HTTP.
        assert_eq!(served.await.unwrap(), [0x16, b'G']);
    }

    #[tokio::test]
    async fn a_failed_command_of_a_hook_has_the_message_of_the_kubelet() {
        let hook = || Hook::Exec(["sh", "-c", "x"].map(str::to_owned).into());
        let executor = || Executor::fake(|_| (Duration::ZERO, answer(1, "out\n", "\"err\"")));
        let subject = "Container \"main\" in Pod \"web_test(uid)\"";
        for (executor, expected) in [
            (
                executor(),
                format!(
                    "Exec lifecycle hook ([sh -c x]) for {subject} failed - error: command 'sh -c x' exited \
                     with 1: \"err\", message: \"out\\n\\\"err\\\"\""
                ),
            ),
            (
                executor().redacting(),
                format!(
                    "Exec lifecycle hook ([sh]) for {subject} failed - error: command 'sh' exited with 1: , \
                     message: \"\""
                ),
            ),
        ] {
            assert_eq!(error_of(hook(), executor).await, HookError::Failed(expected));
        }
    }

    /// In the host's network the sandbox has no address.
    #[tokio::test]
    async fn a_request_of_a_hook_without_a_host_fails_if_the_sandbox_has_no_address() {
        let get = HttpGet {
            path: "/stop?token=abc".to_owned(),
            port: Port::Number(80),
            host: None,
            is_https: false,
            headers: Vec::new(),
        };
        let error = error_of(Hook::Http(get), Executor::fake(|_| (Duration::ZERO, answer(0, "", "")))).await;
        let expected = "HTTP lifecycle hook (/stop?token=abc) for Container \"main\" in Pod \"web_test(uid)\" \
                        failed - error: failed to find networking container: the sandbox has no IP address";
        assert_eq!(error, HookError::Failed(expected.to_owned()));
    }
}
