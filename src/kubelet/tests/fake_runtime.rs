//! A runtime in memory. Sandboxes are ready and containers run immediately. A container ends if it
//! is stopped with a timeout of at most two seconds, the minimum of a kubelet. A command never
//! ends.

mod images;

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tonic::{Code, Status};

use crate::cri::v1::{
    Container, ContainerConfig, ContainerState, ContainerStatus, ContainerStatusRequest,
    ContainerStatusResponse, CreateContainerRequest, CreateContainerResponse, DnsConfig,
    ListContainersRequest, ListContainersResponse, ListPodSandboxRequest, ListPodSandboxResponse, PodSandbox,
    PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus, PodSandboxStatusRequest,
    PodSandboxStatusResponse, PullImageRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, RunPodSandboxResponse, RuntimeCondition, RuntimeHandler, RuntimeStatus,
    StartContainerRequest, StatusResponse, StopContainerRequest, StopPodSandboxRequest, VersionResponse,
};

use images::FakeImages;

/// A runtime in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeRuntime(Arc<Mutex<Objects>>, Arc<Notify>);

#[derive(Debug, Default)]
struct Objects {
    sandboxes: Vec<PodSandbox>,
    containers: Vec<(Container, i64)>,
    /// Configuration of each container that was created.
    created: Vec<ContainerConfig>,
    sandboxes_created: usize,
    /// DNS configuration of each sandbox that was created.
    sandbox_dns: Vec<DnsConfig>,
    lacks_network: bool,
    /// Handlers of the runtime and their features.
    handlers: Vec<RuntimeHandler>,
    /// Number of Status calls.
    status_calls: usize,
    /// Number of commands that were executed, and of those in flight.
    execs: usize,
    execs_in_flight: usize,
    /// Whether containers that are stopped exit with 0, and the stop fails nevertheless.
    failing_stops: bool,
    /// Pod name and timeout of each StopContainer call.
    stops: Vec<(String, i64)>,
    images: FakeImages,
}

impl FakeRuntime {
    /// Serves the CRI on a socket until the test ends.
    pub(super) fn serve(&self, socket: &Path) {
        let (listener, runtime) = (UnixListener::bind(socket).unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let runtime = runtime.clone();
                let service = service_fn(move |request| runtime.clone().answer(request));
                let connection =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
    }

    /// Returns the pod name and timeout of each StopContainer call, in order.
    pub(super) fn stops(&self) -> Vec<(String, i64)> {
        self.0.lock().unwrap().stops.clone()
    }

    /// Lets all stops fail, although the containers exit with 0.
    pub(super) fn fail_stops(&self) {
        self.0.lock().unwrap().failing_stops = true;
    }

    /// Returns the number of commands that were executed, and of those in flight.
    pub(super) fn execs(&self) -> (usize, usize) {
        let objects = self.0.lock().unwrap();
        (objects.execs, objects.execs_in_flight)
    }

    /// Waits for the next StopContainer call, or start or end of a command.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.1.notified()
    }

    /// Sets whether the network is ready.
    pub(super) fn set_network_ready(&self, is_ready: bool) {
        self.0.lock().unwrap().lacks_network = !is_ready;
    }

    /// Sets the handlers of the runtime and their features.
    pub(super) fn set_handlers(&self, handlers: Vec<RuntimeHandler>) {
        self.0.lock().unwrap().handlers = handlers;
    }

    /// Returns the number of Status calls.
    pub(super) fn status_calls(&self) -> usize {
        self.0.lock().unwrap().status_calls
    }

    /// Returns the number of containers that were created.
    pub(super) fn created(&self) -> usize {
        self.0.lock().unwrap().created.len()
    }

    /// Returns the configuration of each container that was created, in order.
    pub(super) fn container_configs(&self) -> Vec<ContainerConfig> {
        self.0.lock().unwrap().created.clone()
    }

    /// Returns the DNS configuration of each sandbox that was created, in order.
    pub(super) fn sandbox_dns(&self) -> Vec<DnsConfig> {
        self.0.lock().unwrap().sandbox_dns.clone()
    }

    /// Returns whether no sandbox and no container exists.
    pub(super) fn is_empty(&self) -> bool {
        let objects = self.0.lock().unwrap();
        objects.sandboxes.is_empty() && objects.containers.is_empty()
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let body =
            request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message = body.slice(body.len().min(5)..);
        match method.as_str() {
            "StopContainer" => self.stop(&decode(&message)).await,
            "ExecSync" => self.exec().await,
            _ => {}
        }
        let answer = match method.as_str() {
            "PullImage" => self.pull(decode(&message)).await,
            "StopContainer" if self.0.lock().unwrap().failing_stops => Err(Status::internal("stop")),
            "ImageStatus" => self.0.lock().unwrap().images.status(decode(&message)),
            _ => self.0.lock().unwrap().call(&method, &message).ok_or_else(|| Status::unimplemented("")),
        };
        let (status, message) = match answer {
            Ok(message) => (Status::new(Code::Ok, ""), message),
            Err(status) => (status, Vec::new()),
        };
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(message.len().try_into().unwrap());
        frame.put_slice(&message);
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", i32::from(status.code()))
            .header("grpc-message", status.message().replace('"', "%22"))
            .body(Full::new(frame.freeze()));
        Ok(response.unwrap())
    }

    /// Calls a function with the images of the runtime.
    pub(super) fn with_images<T>(&self, access: impl FnOnce(&mut FakeImages) -> T) -> T {
        access(&mut self.0.lock().unwrap().images)
    }

    /// Pulls an image. Other pulls that have been requested start before it ends.
    async fn pull(&self, request: PullImageRequest) -> Result<Vec<u8>, Status> {
        self.with_images(|images| images.start_pull(&request));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.with_images(|images| images.end_pull(request))
    }

    /// Executes a command until its caller cancels the call.
    async fn exec(&self) {
        struct InFlight<'a>(&'a FakeRuntime);
        impl Drop for InFlight<'_> {
            fn drop(&mut self) {
                self.0.0.lock().unwrap().execs_in_flight -= 1;
                self.0.1.notify_waiters();
            }
        }
        {
            let mut objects = self.0.lock().unwrap();
            (objects.execs, objects.execs_in_flight) = (objects.execs + 1, objects.execs_in_flight + 1);
        }
        let _in_flight = InFlight(self);
        self.1.notify_waiters();
        std::future::pending::<()>().await;
    }

    /// Stops a container if the timeout is at most two seconds; otherwise it never returns.
    async fn stop(&self, request: &StopContainerRequest) {
        {
            let mut objects = self.0.lock().unwrap();
            let of = |container: &Container| container.labels["io.kubernetes.pod.name"].clone();
            let known = objects.containers.iter().find(|(it, _)| it.id == request.container_id);
            let pod = known.map(|(container, _)| of(container)).unwrap_or_default();
            objects.stops.push((pod, request.timeout));
        }
        self.1.notify_waiters();
        if request.timeout > 2 {
            std::future::pending::<()>().await;
        }
        for (container, finished) in &mut self.0.lock().unwrap().containers {
            if container.id == request.container_id {
                container.state = ContainerState::ContainerExited.into();
                *finished = 1;
            }
        }
    }
}

impl Objects {
    fn status(&mut self) -> StatusResponse {
        self.status_calls += 1;
        let condition = |(name, status): (&str, bool)| RuntimeCondition {
            r#type: name.to_owned(),
            status,
            ..RuntimeCondition::default()
        };
        let conditions = [("RuntimeReady", true), ("NetworkReady", !self.lacks_network)];
        let status = Some(RuntimeStatus { conditions: conditions.map(condition).to_vec() });
        let runtime_handlers = self.handlers.clone();
        StatusResponse { status, runtime_handlers, ..StatusResponse::default() }
    }

    /// Returns the response to a call; `None` for methods that are not implemented.
    fn call(&mut self, method: &str, message: &Bytes) -> Option<Vec<u8>> {
        Some(match method {
            "Version" => {
                let runtime_name = "fake".to_owned();
                VersionResponse { runtime_name, ..VersionResponse::default() }.encode_to_vec()
            }
            "Status" => self.status().encode_to_vec(),
            "ListImages" => self.images.list(),
            "ListPodSandbox" => {
                let filter = decode::<ListPodSandboxRequest>(message).filter.unwrap_or_default();
                let matches = |it: &&PodSandbox| has_labels(&it.labels, &filter.label_selector);
                let items = self.sandboxes.iter().filter(matches).cloned().collect();
                ListPodSandboxResponse { items }.encode_to_vec()
            }
            "ListContainers" => {
                let filter = decode::<ListContainersRequest>(message).filter.unwrap_or_default();
                let all = self.containers.iter().map(|(container, _)| container);
                let matches = |it: &&Container| has_labels(&it.labels, &filter.label_selector);
                ListContainersResponse { containers: all.filter(matches).cloned().collect() }.encode_to_vec()
            }
            "PodSandboxStatus" => {
                let id = decode::<PodSandboxStatusRequest>(message).pod_sandbox_id;
                let status = self.sandboxes.iter().find(|sandbox| sandbox.id == id).map(sandbox_status);
                PodSandboxStatusResponse { status, ..PodSandboxStatusResponse::default() }.encode_to_vec()
            }
            "ContainerStatus" => {
                let id = decode::<ContainerStatusRequest>(message).container_id;
                let exit_code = if self.failing_stops { 0 } else { 137 };
                let known = self.containers.iter().find(|(it, _)| it.id == id);
                let status = known.map(|container| container_status(container, exit_code));
                ContainerStatusResponse { status, ..ContainerStatusResponse::default() }.encode_to_vec()
            }
            "RunPodSandbox" => {
                let config = decode::<RunPodSandboxRequest>(message).config.unwrap_or_default();
                self.sandboxes_created += 1;
                self.sandbox_dns.extend(config.dns_config);
                let id = format!("sandbox-{}", self.sandboxes_created);
                self.sandboxes.push(PodSandbox {
                    id: id.clone(),
                    metadata: config.metadata,
                    state: PodSandboxState::SandboxReady.into(),
                    labels: config.labels,
                    annotations: config.annotations,
                    ..PodSandbox::default()
                });
                RunPodSandboxResponse { pod_sandbox_id: id }.encode_to_vec()
            }
            "CreateContainer" => {
                let CreateContainerRequest { pod_sandbox_id, config, .. } = decode(message);
                let config = config.unwrap_or_default();
                self.created.push(config.clone());
                let container_id = format!("container-{}", self.created.len());
                let container = Container {
                    id: container_id.clone(),
                    pod_sandbox_id,
                    metadata: config.metadata,
                    image: config.image,
                    labels: config.labels,
                    annotations: config.annotations,
                    ..Container::default()
                };
                self.containers.push((container, 0));
                CreateContainerResponse { container_id }.encode_to_vec()
            }
            "StartContainer" => {
                let id = decode::<StartContainerRequest>(message).container_id;
                for (container, _) in self.containers.iter_mut().filter(|(it, _)| it.id == id) {
                    container.state = ContainerState::ContainerRunning.into();
                }
                Vec::new()
            }
            "StopPodSandbox" => {
                let id = decode::<StopPodSandboxRequest>(message).pod_sandbox_id;
                for sandbox in self.sandboxes.iter_mut().filter(|it| it.id == id) {
                    sandbox.state = PodSandboxState::SandboxNotready.into();
                }
                Vec::new()
            }
            "RemoveContainer" => {
                let id = decode::<RemoveContainerRequest>(message).container_id;
                self.containers.retain(|(container, _)| container.id != id);
                Vec::new()
            }
            "RemovePodSandbox" => {
                let id = decode::<RemovePodSandboxRequest>(message).pod_sandbox_id;
                self.sandboxes.retain(|sandbox| sandbox.id != id);
                Vec::new()
            }
            "StopContainer" => Vec::new(),
            _ => return None,
        })
    }
}

fn decode<M: Message + Default>(message: &Bytes) -> M {
    M::decode(message.clone()).unwrap()
}

fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn sandbox_status(sandbox: &PodSandbox) -> PodSandboxStatus {
    PodSandboxStatus {
        id: sandbox.id.clone(),
        metadata: sandbox.metadata.clone(),
        state: sandbox.state,
        network: Some(PodSandboxNetworkStatus { ip: "192.0.2.7".to_owned(), ..Default::default() }),
        labels: sandbox.labels.clone(),
        ..PodSandboxStatus::default()
    }
}

fn container_status((container, finished_at): &(Container, i64), exit_code: i32) -> ContainerStatus {
    ContainerStatus {
        id: container.id.clone(),
        metadata: container.metadata.clone(),
        state: container.state,
        started_at: 1,
        finished_at: *finished_at,
        exit_code: if *finished_at == 0 { 0 } else { exit_code },
        image: container.image.clone(),
        labels: container.labels.clone(),
        annotations: container.annotations.clone(),
        ..ContainerStatus::default()
    }
}
