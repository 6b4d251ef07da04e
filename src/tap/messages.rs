//! What is read from the messages of watched methods, and nothing else: of a pod's or a container's whole configuration its metadata,
//! without the env, annotations and mounts around it; of a command's output its size.

use prost::{DecodeError, Message};

use super::call::{Call, Container, Exec, ExecResult, Pod};
use crate::cri::v1;

/// Bytes that are kept of the words of a command. Commands are scripts at times, and clients can send what they like.
const LONGEST_COMMAND: usize = 4096;

/// Bytes that are kept of a name or an id.
const LONGEST_NAME: usize = 253;

/// `RunPodSandboxRequest`, as far as it is read.
#[derive(Message)]
struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

/// `CreateContainerRequest`, as far as it is read.
#[derive(Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodConfig>,
}

/// `PodSandboxConfig`, as far as it is read.
#[derive(Message)]
struct PodConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<v1::PodSandboxMetadata>,
}

/// `ContainerConfig`, as far as it is read.
#[derive(Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<v1::ContainerMetadata>,
}

pub(super) fn exec_sync_request(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let request = v1::ExecSyncRequest::decode(message)?;
    call.container_mut().id = Some(name(request.container_id));
    let (command, is_cut) = command(request.cmd);
    let exec = Exec { command, is_cut, timeout_seconds: request.timeout, result: None };
    call.exec = Some(Box::new(exec));
    Ok(())
}

pub(super) fn exec_sync_response(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let response = v1::ExecSyncResponse::decode(message)?;
    if let Some(exec) = &mut call.exec {
        exec.result = Some(ExecResult {
            exit_code: response.exit_code,
            stdout_bytes: response.stdout.len(),
            stderr_bytes: response.stderr.len(),
        });
    }
    Ok(())
}

pub(super) fn run_pod_sandbox_request(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let request = RunPodSandbox::decode(message)?;
    call.pod_mut().set_metadata(request.config);
    Ok(())
}

pub(super) fn run_pod_sandbox_response(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    call.pod_mut().id = Some(name(v1::RunPodSandboxResponse::decode(message)?.pod_sandbox_id));
    Ok(())
}

pub(super) fn create_container_request(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let request = CreateContainer::decode(message)?;
    call.pod_mut().id = Some(name(request.pod_sandbox_id));
    call.pod_mut().set_metadata(request.sandbox_config);
    if let Some(metadata) = request.config.and_then(|config| config.metadata) {
        let container = call.container_mut();
        container.name = Some(name(metadata.name));
        container.attempt = Some(metadata.attempt);
    }
    Ok(())
}

pub(super) fn create_container_response(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    call.container_mut().id = Some(name(v1::CreateContainerResponse::decode(message)?.container_id));
    Ok(())
}

/// Writes the readers of requests that name the pod or the container that they are about, and nothing more.
macro_rules! about {
    ($($reader:ident: $request:ident.$field:ident => $subject:ident;)*) => {$(
        pub(super) fn $reader(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
            call.$subject().id = Some(name(v1::$request::decode(message)?.$field));
            Ok(())
        }
    )*};
}

about! {
    pod_sandbox_status_request: PodSandboxStatusRequest.pod_sandbox_id => pod_mut;
    stop_pod_sandbox_request: StopPodSandboxRequest.pod_sandbox_id => pod_mut;
    remove_pod_sandbox_request: RemovePodSandboxRequest.pod_sandbox_id => pod_mut;
    container_status_request: ContainerStatusRequest.container_id => container_mut;
    start_container_request: StartContainerRequest.container_id => container_mut;
    stop_container_request: StopContainerRequest.container_id => container_mut;
    remove_container_request: RemoveContainerRequest.container_id => container_mut;
}

impl Call {
    fn pod_mut(&mut self) -> &mut Pod {
        self.pod.get_or_insert_default()
    }

    fn container_mut(&mut self) -> &mut Container {
        self.container.get_or_insert_default()
    }
}

impl Pod {
    fn set_metadata(&mut self, config: Option<PodConfig>) {
        if let Some(metadata) = config.and_then(|config| config.metadata) {
            self.namespace = Some(name(metadata.namespace));
            self.name = Some(name(metadata.name));
            self.uid = Some(name(metadata.uid));
        }
    }
}

/// A name or an id, as much of it as is kept.
fn name(text: String) -> String {
    cut(text, LONGEST_NAME)
}

/// The words of a command, as many as are kept, and whether there were more.
fn command(words: Vec<String>) -> (Vec<String>, bool) {
    let mut room = LONGEST_COMMAND;
    let mut kept = Vec::new();
    for word in words {
        if room == 0 {
            return (kept, true);
        }
        let length = word.len();
        let word = cut(word, room);
        let is_cut = word.len() < length;
        // Each word counts one more, for the blank before it, so that their number is bounded as well.
        room = room.saturating_sub(word.len() + 1);
        kept.push(word);
        if is_cut {
            return (kept, true);
        }
    }
    (kept, false)
}

/// The beginning of a text that takes no more than so many bytes.
fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text.shrink_to_fit();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_command_the_beginning_is_kept() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(command(words(&["sh", "-c", ""])), (words(&["sh", "-c", ""]), false));
        let (kept, is_cut) = command(words(&["sh", &"ö".repeat(5000)]));
        assert!(is_cut && kept[1].len() == 4092, "{}", kept[1].len());
        let (kept, is_cut) = command(vec!["x".to_owned(); 500_000]);
        assert!(is_cut && kept.len() == 2048, "{}", kept.len());
    }

    #[test]
    fn a_whole_configuration_is_read_past() {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "n".repeat(300), attempt: 4 }),
            envs: vec![v1::KeyValue { key: "TOKEN".into(), value: b"s3cret".to_vec() }],
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: "p0d".into(),
            config: Some(config),
            sandbox_config: None,
        };
        let read = CreateContainer::decode(&*request.encode_to_vec()).unwrap();
        assert_eq!(read.config.unwrap().metadata.unwrap().attempt, 4);
        assert_eq!(name("n".repeat(300)).len(), 253);
    }
}
