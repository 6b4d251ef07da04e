//! Methods that create, start, stop, remove or inspect one sandbox or container.

use std::collections::HashMap;

use prost::{DecodeError, Message};

use super::{MessageContext, name};
use crate::cri::{ContainerObservation, SandboxObservation, v1};
use crate::tap::observation::Observation;

/// Decoded fields of `RunPodSandboxRequest`.
#[derive(Message)]
struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

/// Decoded fields of `CreateContainerRequest`.
#[derive(Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodMetadata>,
}

/// Decoded fields of `PodSandboxConfig`.
#[derive(Message)]
struct PodConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<v1::PodSandboxMetadata>,
    #[prost(map = "string, string", tag = "6")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "7")]
    annotations: HashMap<String, String>,
}

/// Decoded fields of `PodSandboxConfig` in a `CreateContainerRequest`.
#[derive(Message)]
struct PodMetadata {
    #[prost(message, optional, tag = "1")]
    metadata: Option<v1::PodSandboxMetadata>,
}

/// Decoded fields of `ContainerConfig`.
#[derive(Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<v1::ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<v1::ImageSpec>,
    #[prost(map = "string, string", tag = "9")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "10")]
    annotations: HashMap<String, String>,
}

/// Decoded fields of `PodSandboxStatusResponse`, without the verbose information.
#[derive(Message)]
struct PodSandboxStatus {
    #[prost(message, optional, tag = "1")]
    status: Option<v1::PodSandboxStatus>,
}

/// Decoded fields of `ContainerStatusResponse`, without the verbose information, which contains the
/// whole configuration with environment variables.
#[derive(Message)]
struct ContainerStatusReply {
    #[prost(message, optional, tag = "1")]
    status: Option<v1::ContainerStatus>,
}

type LifecycleMessage = Result<(), DecodeError>;

pub(in crate::tap) fn run_pod_sandbox_request(read: &mut MessageContext, message: &[u8]) -> LifecycleMessage {
    let Some(config) = RunPodSandbox::decode(message)?.config else { return Ok(()) };
    read.set_pod(config.metadata.as_ref());
    read.facts.push(Observation::Sandbox(SandboxObservation {
        metadata: config.metadata,
        is_ready: Some(true),
        labels: Some(config.labels),
        annotations: Some(config.annotations),
        ..SandboxObservation::default()
    }));
    Ok(())
}

pub(in crate::tap) fn run_pod_sandbox_response(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let id = name(v1::RunPodSandboxResponse::decode(message)?.pod_sandbox_id);
    if let Some(Observation::Sandbox(sandbox)) = read.facts.first_mut() {
        sandbox.id.clone_from(&id);
    }
    read.pod().id = Some(id);
    Ok(())
}

pub(in crate::tap) fn pull_image_request(read: &mut MessageContext, message: &[u8]) -> LifecycleMessage {
    let request = v1::PullImageRequest::decode(message)?;
    // A client that pulls an image for no pod sends no config.
    if let Some(config) = request.sandbox_config {
        read.set_pod(config.metadata.as_ref());
    }
    read.set_image(request.image);
    Ok(())
}

pub(in crate::tap) fn image_status_request(read: &mut MessageContext, message: &[u8]) -> LifecycleMessage {
    read.set_image(v1::ImageStatusRequest::decode(message)?.image);
    Ok(())
}

pub(in crate::tap) fn remove_image_request(read: &mut MessageContext, message: &[u8]) -> LifecycleMessage {
    read.set_image(v1::RemoveImageRequest::decode(message)?.image);
    Ok(())
}

pub(in crate::tap) fn create_container_request(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let request = CreateContainer::decode(message)?;
    let sandbox = name(request.pod_sandbox_id);
    read.pod().id = Some(sandbox.clone());
    read.set_pod(request.sandbox_config.and_then(|config| config.metadata).as_ref());
    let Some(config) = request.config else { return Ok(()) };
    if let Some(metadata) = &config.metadata {
        let container = read.container();
        container.name = Some(name(metadata.name.clone()));
        container.attempt = Some(metadata.attempt);
    }
    let fact = ContainerObservation::from(v1::Container {
        pod_sandbox_id: sandbox,
        metadata: config.metadata,
        image: config.image,
        labels: config.labels,
        annotations: config.annotations,
        ..v1::Container::default()
    });
    read.facts.push(Observation::Container(ContainerObservation { created_at: None, ..fact }));
    Ok(())
}

pub(in crate::tap) fn create_container_response(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let id = name(v1::CreateContainerResponse::decode(message)?.container_id);
    if let Some(Observation::Container(container)) = read.facts.first_mut() {
        container.id.clone_from(&id);
    }
    read.container().id = Some(id);
    Ok(())
}

pub(in crate::tap) fn start_container_request(read: &mut MessageContext, message: &[u8]) -> LifecycleMessage {
    let id = name(v1::StartContainerRequest::decode(message)?.container_id);
    read.container_is(id, v1::ContainerState::ContainerRunning);
    Ok(())
}

pub(in crate::tap) fn stop_container_request(read: &mut MessageContext, message: &[u8]) -> LifecycleMessage {
    let id = name(v1::StopContainerRequest::decode(message)?.container_id);
    read.container_is(id, v1::ContainerState::ContainerExited);
    Ok(())
}

pub(in crate::tap) fn remove_container_request(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let id = name(v1::RemoveContainerRequest::decode(message)?.container_id);
    read.facts.push(Observation::ContainerRemoved(id.clone()));
    read.container().id = Some(id);
    Ok(())
}

pub(in crate::tap) fn stop_pod_sandbox_request(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let id = name(v1::StopPodSandboxRequest::decode(message)?.pod_sandbox_id);
    let stopped =
        SandboxObservation { id: id.clone(), is_ready: Some(false), ..SandboxObservation::default() };
    read.facts.push(Observation::Sandbox(stopped));
    read.pod().id = Some(id);
    Ok(())
}

pub(in crate::tap) fn remove_pod_sandbox_request(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let id = name(v1::RemovePodSandboxRequest::decode(message)?.pod_sandbox_id);
    read.facts.push(Observation::SandboxRemoved(id.clone()));
    read.pod().id = Some(id);
    Ok(())
}

pub(in crate::tap) fn pod_sandbox_status_request(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    read.pod().id = Some(name(v1::PodSandboxStatusRequest::decode(message)?.pod_sandbox_id));
    Ok(())
}

pub(in crate::tap) fn pod_sandbox_status_response(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let Some(status) = PodSandboxStatus::decode(message)?.status else { return Ok(()) };
    read.set_pod(status.metadata.as_ref());
    read.facts.push(Observation::Sandbox(status.into()));
    Ok(())
}

pub(in crate::tap) fn container_status_request(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    read.container().id = Some(name(v1::ContainerStatusRequest::decode(message)?.container_id));
    Ok(())
}

pub(in crate::tap) fn container_status_response(
    read: &mut MessageContext,
    message: &[u8],
) -> LifecycleMessage {
    let Some(status) = ContainerStatusReply::decode(message)?.status else { return Ok(()) };
    read.facts.push(Observation::Container(status.into()));
    Ok(())
}

impl MessageContext {
    fn set_pod(&mut self, metadata: Option<&v1::PodSandboxMetadata>) {
        if let Some(metadata) = metadata {
            let pod = self.pod();
            pod.namespace = Some(name(metadata.namespace.clone()));
            pod.name = Some(name(metadata.name.clone()));
            pod.uid = Some(name(metadata.uid.clone()));
        }
    }

    /// Adds the observation that the call brings a container into a state.
    fn container_is(&mut self, id: String, state: v1::ContainerState) {
        let fact =
            ContainerObservation { id: id.clone(), state: Some(state), ..ContainerObservation::default() };
        self.facts.push(Observation::Container(fact));
        self.container().id = Some(id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::tap::Call;

    #[test]
    fn an_observed_create_request_has_attempt_sandbox_and_labels() {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 4 }),
            envs: vec![v1::KeyValue { key: "TOKEN".into(), value: b"s3cret".to_vec() }],
            labels: [("tier".to_owned(), "web".to_owned())].into(),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: "p0d".into(),
            config: Some(config),
            sandbox_config: None,
        };
        let response = v1::CreateContainerResponse { container_id: "c0ffee".into() };
        let mut read = MessageContext::new(Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO));
        create_container_request(&mut read, &request.encode_to_vec()).unwrap();
        create_container_response(&mut read, &response.encode_to_vec()).unwrap();
        assert_eq!(read.call.container.unwrap().attempt, Some(4));
        let [Observation::Container(fact)] = &read.facts[..] else { panic!("{:?}", read.facts) };
        assert_eq!((fact.id.as_str(), fact.sandbox.as_deref()), ("c0ffee", Some("p0d")));
        assert_eq!(fact.state, Some(v1::ContainerState::ContainerCreated));
        assert_eq!(fact.labels.as_ref().unwrap()["tier"], "web");
    }
}
