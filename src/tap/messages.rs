//! What is read from the messages of watched methods, and nothing else: of a pod's or a container's whole configuration its metadata,
//! without the env, annotations and mounts around it; of a command's output its size.

use bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use super::call::{Call, Container, Exec, ExecResult, Pod};
use crate::cri::v1;

/// Bytes that are kept of the words of a command. Commands are scripts at times, and clients can send what they like.
const LONGEST_COMMAND: usize = 4096;

/// Bytes that are kept of a name or an id.
const LONGEST_NAME: usize = 253;

/// `ExecSyncRequest`, whose words are kept only as long as there is room: half a million of them fit into a mebibyte.
#[derive(Debug, Default)]
struct ExecSync {
    container_id: String,
    command: Command,
    timeout: i64,
}

/// The words of a command, as many as are kept.
#[derive(Debug, Default)]
struct Command {
    words: Vec<String>,
    bytes: usize,
    is_cut: bool,
}

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
    let ExecSync { container_id, command: Command { words, is_cut, .. }, timeout } =
        ExecSync::decode(message)?;
    call.container_mut().id = Some(name(container_id));
    let exec = Exec { command: words, is_cut, timeout_seconds: timeout, result: None };
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

impl Message for ExecSync {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => encoding::string::merge(wire_type, &mut self.container_id, buf, context),
            2 if self.command.is_cut => encoding::skip_field(wire_type, tag, buf, context),
            2 => {
                let mut word = String::new();
                encoding::string::merge(wire_type, &mut word, buf, context)?;
                self.command.add(word);
                Ok(())
            }
            3 => encoding::int64::merge(wire_type, &mut self.timeout, buf, context),
            _ => encoding::skip_field(wire_type, tag, buf, context),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    // It is only ever read.
    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn encoded_len(&self) -> usize {
        0
    }
}

impl Command {
    /// Keeps a word, or as much of it as there is room for.
    fn add(&mut self, word: String) {
        let (room, length) = (LONGEST_COMMAND.saturating_sub(self.bytes), word.len());
        if room == 0 {
            self.is_cut = true;
            return;
        }
        let word = cut(word, room);
        self.is_cut = word.len() < length;
        // Each word counts one more, for the blank before it, so that their number is bounded as well.
        self.bytes += word.len() + 1;
        self.words.push(word);
    }
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

    fn read(words: &[&str]) -> ExecSync {
        let cmd = words.iter().map(ToString::to_string).collect();
        let request = v1::ExecSyncRequest { container_id: "c0ffee".into(), cmd, timeout: 7 };
        let read = ExecSync::decode(&*request.encode_to_vec()).unwrap();
        assert_eq!((read.container_id.as_str(), read.timeout), ("c0ffee", 7));
        read
    }

    #[test]
    fn of_a_long_command_the_beginning_is_kept() {
        let Command { words, is_cut, .. } = read(&["sh", "-c", ""]).command;
        assert_eq!((words, is_cut), (["sh", "-c", ""].map(str::to_owned).into(), false));
        let Command { words, is_cut, .. } = read(&["sh", &"ö".repeat(5000), "more"]).command;
        assert!(is_cut && words.len() == 2 && words[1].len() == 4092, "{}", words[1].len());
        let Command { words, is_cut, .. } = read(&vec!["x"; 300_000]).command;
        assert!(is_cut && words.len() == 2048, "{}", words.len());
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
