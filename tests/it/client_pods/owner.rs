//! A client that creates pods through the relay.

use std::collections::HashMap;
use std::time::Duration;

use fixtures::http2::{self, framed};
use fixtures::wait::soon;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::cri::v1::*;
use probeshim::cri::{runtime_client, unary_message};
use probeshim::socket::SocketPath;
use prost::Message as _;
use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::SHORT;
use crate::admin::until_shown;
use crate::program::Place;

/// A client whose containers probeshim restarts.
pub(crate) struct Owner {
    pub(crate) client: RuntimeServiceClient<Channel>,
    pub(crate) place: Place,
}

/// A pod that has been created, with the id of its sandbox.
pub(crate) struct Made {
    pub(crate) config: PodSandboxConfig,
    pub(crate) id: String,
}

impl Owner {
    pub(crate) fn of(place: Place) -> Self {
        let socket = SocketPath::new(&place.at("shim.sock")).unwrap();
        Self { client: runtime_client(&socket), place }
    }

    /// Returns the config of a sandbox.
    pub(crate) fn config(&self, name: &str, annotations: &[(&str, &str)]) -> PodSandboxConfig {
        let own = |(key, text): &(&str, &str)| (format!("probeshim.io/{key}"), (*text).to_owned());
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                namespace: "it".to_owned(),
                // Users copy pod configs with the same uid.
                uid: "uid".to_owned(),
                attempt: 0,
            }),
            log_directory: self.place.at("logs").join(name).display().to_string(),
            annotations: annotations.iter().map(own).collect(),
            ..PodSandboxConfig::default()
        }
    }

    pub(crate) async fn run(&mut self, name: &str, annotations: &[(&str, &str)]) -> Made {
        let config = self.config(name, annotations);
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let id = self.client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
        Made { config, id }
    }

    pub(crate) async fn create(&mut self, pod: &Made, name: &str, script: &str) -> String {
        self.create_attempt(pod, name, script, 0).await
    }

    pub(crate) async fn create_attempt(
        &mut self,
        pod: &Made,
        name: &str,
        script: &str,
        attempt: u32,
    ) -> String {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned(), attempt }),
            image: Some(ImageSpec { image: "image".to_owned(), ..ImageSpec::default() }),
            command: ["sh", "-c", script].map(str::to_owned).into(),
            log_path: format!("{name}.log"),
            ..ContainerConfig::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: pod.id.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        self.client.create_container(request).await.unwrap().into_inner().container_id
    }

    /// Sends a `CreateContainer` request with these bytes, and returns the container's id.
    pub(crate) async fn create_raw(&mut self, request: Vec<u8>) -> String {
        let stream = UnixStream::connect(self.place.at("shim.sock")).await.unwrap();
        let mut client = http2::client::Client::over(stream).await;
        let answer = client.call("/runtime.v1.RuntimeService/CreateContainer", framed(false, &request));
        let (_, mut body) = http2::client::head(answer).await;
        let mut bytes = Vec::new();
        while let Some(more) = soon(body.data()).await {
            bytes.extend(more.unwrap());
        }
        CreateContainerResponse::decode(unary_message(&bytes).unwrap()).unwrap().container_id
    }

    pub(crate) async fn start(&mut self, id: String) {
        self.client.start_container(StartContainerRequest { container_id: id }).await.unwrap();
    }

    /// Creates and starts a pod with one container.
    pub(crate) async fn pod(&mut self, name: &str, script: &str, annotations: &[(&str, &str)]) -> Made {
        let pod = self.run(name, annotations).await;
        let id = self.create(&pod, "main", script).await;
        self.start(id).await;
        pod
    }

    /// Returns a client that bypasses the relay.
    pub(crate) fn direct(self) -> Self {
        let socket = SocketPath::new(&self.place.at("runtime.sock")).unwrap();
        Self { client: runtime_client(&socket), ..self }
    }

    pub(crate) async fn sandboxes(&mut self) -> Vec<PodSandbox> {
        let listed = self.client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
        listed.into_inner().items
    }

    /// Removes all pods.
    pub(crate) async fn remove_all(&mut self) {
        for sandbox in self.sandboxes().await {
            let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.id };
            self.client.remove_pod_sandbox(request).await.unwrap();
        }
    }

    /// Returns the containers of a pod in the order of their attempts.
    pub(crate) async fn containers(&mut self, pod: &str) -> Vec<Container> {
        let names: HashMap<String, String> = self
            .sandboxes()
            .await
            .into_iter()
            .map(|sandbox| (sandbox.id, sandbox.metadata.unwrap().name))
            .collect();
        let listed = self.client.list_containers(ListContainersRequest::default()).await.unwrap();
        let mut containers = listed.into_inner().containers;
        containers.retain(|it| names.get(&it.pod_sandbox_id).is_some_and(|name| name == pod));
        containers.sort_by_key(attempt);
        containers
    }

    /// Removes a sandbox. The runtime refuses it as long as probeshim removes an earlier instance
    /// of a container of the sandbox. Clients repeat the call, as the kubelet does.
    pub(crate) async fn remove_sandbox(&mut self, id: &str) {
        soon(async {
            loop {
                let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
                match self.client.remove_pod_sandbox(request).await {
                    Ok(_) => return,
                    Err(status) => {
                        assert!(status.message().contains("already in removing state"), "{status}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        })
        .await;
    }

    /// Waits until a container of a pod runs whose attempt is at least `least`.
    pub(crate) async fn runs(&mut self, pod: &str, least: u32) -> Container {
        soon(async {
            loop {
                let containers = self.containers(pod).await;
                let running: Vec<_> = containers.into_iter().filter(is_running).collect();
                assert!(running.len() <= 1, "two containers run at the same time: {running:#?}");
                if let Some(container) = running.into_iter().find(|it| attempt(it) >= least) {
                    return container;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// Waits until a container of a pod has been started whose attempt is at least `least`. The
    /// container may have ended since.
    pub(crate) async fn has_started(&mut self, pod: &str, least: u32) -> Container {
        soon(async {
            loop {
                let containers = self.containers(pod).await;
                let is_started =
                    |it: &Container| is_running(it) || it.state() == ContainerState::ContainerExited;
                if let Some(container) =
                    containers.into_iter().find(|it| attempt(it) >= least && is_started(it))
                {
                    return container;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// Waits until the newest container of a pod has ended.
    pub(crate) async fn has_ended(&mut self, pod: &str) -> Container {
        soon(async {
            loop {
                let newest = self.containers(pod).await.pop();
                if let Some(ended) = newest.filter(|it| it.state() == ContainerState::ContainerExited) {
                    return ended;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// Waits until the attempts of a pod's containers are exactly these.
    pub(crate) async fn has_attempts(&mut self, pod: &str, attempts: &[u32]) {
        soon(async {
            while self.containers(pod).await.iter().map(attempt).ne(attempts.iter().copied()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// Waits until probeshim reports that a client has released a pod's container.
    pub(crate) async fn is_let_go(&self, pod: &str) {
        until_shown(&self.place, &["status"], |status| {
            let shown = status["pods"].as_array()?.iter().find(|shown| shown["name"] == pod)?;
            let reason = "stopped or removed by a client";
            (shown["containers"].as_array()?.last()?["notRestartable"] == reason).then_some(())
        })
        .await;
    }

    /// Waits until a container of another pod has ended and has been restarted, so that pending
    /// restarts have happened before.
    pub(crate) async fn another_is_restarted(&mut self, name: &str) {
        self.pod(name, SHORT, &[]).await;
        self.has_started(name, 1).await;
    }
}

pub(crate) fn attempt(container: &Container) -> u32 {
    container.metadata.as_ref().unwrap().attempt
}

pub(crate) fn is_running(container: &Container) -> bool {
    container.state() == ContainerState::ContainerRunning
}
