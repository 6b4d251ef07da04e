//! What is read from the messages of watched methods. Nothing else of them is kept: no env, no annotations, no output.

use prost::{DecodeError, Message};

use super::call::{Call, Container, Exec, ExecResult, Pod};
use crate::cri::v1;

pub(super) fn exec(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let request = v1::ExecSyncRequest::decode(message)?;
    call.container_mut().id = Some(request.container_id);
    let exec = Exec { command: request.cmd, timeout_seconds: request.timeout, result: None };
    call.exec = Some(Box::new(exec));
    Ok(())
}

pub(super) fn exec_result(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
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

pub(super) fn pod(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let request = v1::RunPodSandboxRequest::decode(message)?;
    call.pod_mut().is_named_by(request.config);
    Ok(())
}

pub(super) fn pod_id(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    call.pod_mut().id = Some(v1::RunPodSandboxResponse::decode(message)?.pod_sandbox_id);
    Ok(())
}

pub(super) fn container(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    let request = v1::CreateContainerRequest::decode(message)?;
    call.pod_mut().id = Some(request.pod_sandbox_id);
    call.pod_mut().is_named_by(request.sandbox_config);
    if let Some(metadata) = request.config.and_then(|config| config.metadata) {
        let container = call.container_mut();
        container.name = Some(metadata.name);
        container.attempt = Some(metadata.attempt);
    }
    Ok(())
}

pub(super) fn container_id(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
    call.container_mut().id = Some(v1::CreateContainerResponse::decode(message)?.container_id);
    Ok(())
}

/// Writes the readers of requests that name the pod or the container that they are about, and nothing more.
macro_rules! about {
    ($($reader:ident: $request:ident.$field:ident => $subject:ident;)*) => {$(
        pub(super) fn $reader(call: &mut Call, message: &[u8]) -> Result<(), DecodeError> {
            call.$subject().id = Some(v1::$request::decode(message)?.$field);
            Ok(())
        }
    )*};
}

about! {
    pod_status: PodSandboxStatusRequest.pod_sandbox_id => pod_mut;
    stop_pod: StopPodSandboxRequest.pod_sandbox_id => pod_mut;
    remove_pod: RemovePodSandboxRequest.pod_sandbox_id => pod_mut;
    container_status: ContainerStatusRequest.container_id => container_mut;
    start_container: StartContainerRequest.container_id => container_mut;
    stop_container: StopContainerRequest.container_id => container_mut;
    remove_container: RemoveContainerRequest.container_id => container_mut;
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
    fn is_named_by(&mut self, config: Option<v1::PodSandboxConfig>) {
        if let Some(metadata) = config.and_then(|config| config.metadata) {
            self.namespace = Some(metadata.namespace);
            self.name = Some(metadata.name);
            self.uid = Some(metadata.uid);
        }
    }
}
