//! Checks that calls pass through probeshim as they pass without it.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::finding::Finding;
use super::node::main_pid;
use super::systemctl::ServiceManager;
use crate::admin::Client;
use crate::admin::api::CallsQuery;
use crate::cri::v1::{
    Container, Image, ListContainersRequest, ListImagesRequest, ListPodSandboxRequest, PodSandbox,
    VersionRequest,
};
use crate::cri::{image_client, runtime_client};
use crate::https;
use crate::socket::SocketPath;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the body of a kubelet's `/healthz`.
const MAX_HEALTH_BYTES: usize = 1 << 16;

/// Interval between attempts of a check.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Time in which an exec probe of the kubelet is awaited. Its default period is ten seconds.
const PROBE_WAIT: Duration = Duration::from_secs(12);

/// Subjects of the checks after a kubelet was switched.
pub(super) struct SwitchChecks<'a> {
    /// The manager of the kubelet's unit.
    pub(super) manager: &'a dyn ServiceManager,
    /// Unit of the kubelet.
    pub(super) unit: String,
    /// Socket of the runtime.
    pub(super) upstream: SocketPath,
    /// Socket of probeshim.
    pub(super) listen: SocketPath,
    /// Address of the kubelet's `/healthz`; `None` if it is disabled.
    pub(super) healthz: Option<SocketAddr>,
    /// The admin socket of probeshim.
    pub(super) admin: SocketPath,
}

impl SwitchChecks<'_> {
    /// Repeats each check until it succeeds or `deadline` has passed.
    pub(super) async fn run(&self, deadline: Instant) -> Vec<Finding> {
        let mut findings = vec![
            self.repeat("health", deadline, || self.is_kubelet_healthy(), HEALTH_REMEDY).await,
            self.repeat("lists", deadline, || self.are_lists_equal(), LISTS_REMEDY).await,
            self.repeat("calls", deadline, || self.is_call_seen(None), CALLS_REMEDY).await,
        ];
        let probe_deadline = deadline.min(Instant::now() + PROBE_WAIT);
        let probe = self.repeat("probe", probe_deadline, || self.is_call_seen(Some("ExecSync")), "").await;
        findings.push(match probe.remedy {
            None => probe,
            Some(_) => Finding::warning(
                "probe",
                format!("no exec probe of the kubelet was seen within {} s", PROBE_WAIT.as_secs()),
                "expected if no container has an exec probe, or its delay or period is longer",
            ),
        });
        findings
    }

    async fn repeat<F: Future<Output = Result<String, String>>>(
        &self,
        check: &'static str,
        deadline: Instant,
        attempt: impl Fn() -> F,
        remedy: &str,
    ) -> Finding {
        match retry(deadline, attempt).await {
            Ok(detail) => Finding::ok(check, detail),
            Err(detail) => Finding::failed(check, detail, remedy),
        }
    }

    async fn is_kubelet_healthy(&self) -> Result<String, String> {
        match self.healthz {
            Some(address) => healthz(address).await,
            None => Ok("the kubelet serves no /healthz".to_owned()),
        }
    }

    /// Compares pods, containers and images as the runtime lists them directly and through
    /// probeshim. They may change between two calls.
    async fn are_lists_equal(&self) -> Result<String, String> {
        let direct = Lists::read(&self.upstream).await?;
        let relayed = Lists::read(&self.listen).await?;
        if direct != relayed {
            return Err("pods, containers or images differ directly and through probeshim".to_owned());
        }
        let [pods, containers, images] = [direct.pods.len(), direct.containers.len(), direct.images.len()];
        Ok(format!(
            "{pods} sandboxes, {containers} containers and {images} images, directly and through probeshim"
        ))
    }

    async fn is_call_seen(&self, method: Option<&str>) -> Result<String, String> {
        // The kubelet may have been started again since the last attempt.
        let pid = main_pid(self.manager, &self.unit).map_err(|error| error.to_string())?;
        let pid = pid.ok_or_else(|| format!("{} does not run", self.unit))?;
        let query = CallsQuery {
            method: method.map(str::to_owned),
            peer: Some(pid.to_string()),
            this_run: true,
            last: Some(1),
            ..CallsQuery::default()
        };
        let calls = Client::new(self.admin.clone()).calls(&query).await.map_err(|error| error.to_string())?;
        let calls: Vec<serde_json::Value> =
            serde_json::from_slice(&calls).map_err(|error| format!("the calls are not JSON: {error}"))?;
        let Some(call) = calls.first() else {
            return Err(format!("no call of the kubelet (pid {pid}) was seen by probeshim"));
        };
        let method = call["method"].as_str().unwrap_or("a call");
        Ok(format!("{method} of the kubelet was seen by probeshim"))
    }
}

const HEALTH_REMEDY: &str = "see the kubelet's log: journalctl --unit kubelet";
const LISTS_REMEDY: &str = "see the log of probeshim: journalctl --unit probeshim";
const CALLS_REMEDY: &str = "see which socket the kubelet uses: its log, and `probeshim doctor`";

/// Objects that a runtime lists, sorted by their ids.
#[derive(PartialEq)]
struct Lists {
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    images: Vec<Image>,
}

impl Lists {
    async fn read(socket: &SocketPath) -> Result<Self, String> {
        let failed = |status: tonic::Status| call_error(socket, &status);
        let mut client = runtime_client(socket);
        let pods = client.list_pod_sandbox(ListPodSandboxRequest::default()).await.map_err(failed)?;
        let containers = client.list_containers(ListContainersRequest::default()).await.map_err(failed)?;
        let images = image_client(socket).list_images(ListImagesRequest::default()).await.map_err(failed)?;
        let mut pods = pods.into_inner().items;
        pods.sort_by(|a, b| a.id.cmp(&b.id));
        let mut containers = containers.into_inner().containers;
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        let mut images = images.into_inner().images;
        images.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(Self { pods, containers, images })
    }
}

/// Returns the name and version of the runtime behind a socket.
pub(super) async fn runtime_version(socket: &SocketPath) -> Result<String, String> {
    let mut client = runtime_client(socket);
    let call = client.version(VersionRequest::default());
    let answer = timeout(REQUEST_TIMEOUT, call).await;
    let answer = answer.map_err(|_| format!("{socket} did not answer within {REQUEST_TIMEOUT:?}"))?;
    let version = answer.map_err(|status| call_error(socket, &status))?.into_inner();
    Ok(format!("{} {} at {socket}", version.runtime_name, version.runtime_version))
}

/// Describes a failed call. The errors of a connection name its socket already.
fn call_error(socket: &SocketPath, status: &tonic::Status) -> String {
    let (socket, message) = (socket.to_string(), status.message());
    if message.contains(&socket) { message.to_owned() } else { format!("{socket}: {message}") }
}

/// Waits until a kubelet answers `/healthz` with 200. Returns whether it did before `deadline`.
pub(super) async fn wait_healthy(address: SocketAddr, deadline: Instant) -> bool {
    retry(deadline, || healthz(address)).await.is_ok()
}

/// Repeats an attempt until it succeeds. Returns its last error once `deadline` has passed.
async fn retry<F: Future<Output = Result<String, String>>>(
    deadline: Instant,
    attempt: impl Fn() -> F,
) -> Result<String, String> {
    loop {
        let result = timeout(REQUEST_TIMEOUT, attempt()).await;
        match result.unwrap_or_else(|_| Err(format!("no response within {REQUEST_TIMEOUT:?}"))) {
            Err(_) if Instant::now() < deadline => sleep(RETRY_INTERVAL).await,
            result => return result,
        }
    }
}

/// Returns a sentence about the response of a kubelet's `/healthz`, as an error unless it is 200.
async fn healthz(address: SocketAddr) -> Result<String, String> {
    let url = format!("http://{address}/healthz");
    let failed = |error: &dyn std::fmt::Display| format!("{url}: {error}");
    let parsed = Url::parse(&url).map_err(|error| failed(&error))?;
    let request = Request::get("/healthz").body(Full::default()).map_err(|error| failed(&error))?;
    let response =
        https::send(&parsed, None, request, MAX_HEALTH_BYTES).await.map_err(|error| failed(&error))?;
    let answer = format!("{url} answers {}", response.status().as_u16());
    if response.status() == StatusCode::OK { Ok(answer) } else { Err(answer) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use axum::Router;
    use axum::extract::RawQuery;
    use axum::routing::get;
    use tokio::net::UnixListener;

    use super::*;
    use crate::admin::{API_HEADER, API_VERSION};
    use crate::install::ServiceManagerError;

    /// A manager that reports another process of the kubelet each time.
    struct RestartingKubelet(Cell<u32>);

    impl ServiceManager for RestartingKubelet {
        fn run(&self, _: &[&str]) -> Result<String, ServiceManagerError> {
            let pid = self.0.get();
            self.0.set(pid + 1);
            Ok(format!("{pid}\n"))
        }
    }

    #[tokio::test]
    async fn calls_of_a_kubelet_that_was_started_again_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("admin.sock");
        // Only the second process has made a call.
        let calls = async |RawQuery(query): RawQuery| {
            let is_second = query.is_some_and(|query| query.contains("peer=2"));
            let calls = if is_second { r#"[{"method": "Version"}]"# } else { "[]" };
            ([(API_HEADER, API_VERSION)], calls)
        };
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(axum::serve(listener, Router::new().fallback(get(calls))).into_future());
        let checks = |manager| SwitchChecks {
            manager,
            unit: "kubelet.service".to_owned(),
            upstream: SocketPath::new(&socket).unwrap(),
            listen: SocketPath::new(&socket).unwrap(),
            healthz: None,
            admin: SocketPath::new(&socket).unwrap(),
        };
        let manager = RestartingKubelet(Cell::new(1));
        let running = checks(&manager);
        assert_eq!(
            running.is_call_seen(None).await.unwrap_err(),
            "no call of the kubelet (pid 1) was seen by probeshim"
        );
        assert_eq!(running.is_call_seen(None).await.unwrap(), "Version of the kubelet was seen by probeshim");
        let manager = RestartingKubelet(Cell::new(0));
        assert_eq!(checks(&manager).is_call_seen(None).await.unwrap_err(), "kubelet.service does not run");
        server.abort();
    }
}
