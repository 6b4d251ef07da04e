//! Synthetic pods: they exist from the start, and their containers answer ExecSync without a
//! process.

use super::clock;
use super::container::ContainerBackend;
use super::engine::Engine;
use super::error::CriError;
use super::sandbox::ProcrunSandbox;
use crate::cri::{labels, v1};

/// Namespace of all synthetic pods.
const NAMESPACE: &str = "synthetic";

/// Adds `count` pods with one running container each, labelled like those of a kubelet.
pub(super) fn populate(engine: &Engine, count: u32) {
    for number in 0..count {
        add_pod(engine, number).expect("nothing else has these names");
    }
}

fn add_pod(engine: &Engine, number: u32) -> Result<(), CriError> {
    let (name, uid) = (format!("synthetic-{number}"), format!("00000000-0000-0000-0000-{number:012}"));
    let labels = labels::sandbox_labels(&name, NAMESPACE, &uid);
    let metadata = v1::PodSandboxMetadata {
        name: name.clone(),
        uid: uid.clone(),
        namespace: NAMESPACE.to_owned(),
        attempt: 0,
    };
    let sandbox_config = v1::PodSandboxConfig {
        metadata: Some(metadata),
        labels: labels.clone(),
        ..v1::PodSandboxConfig::default()
    };
    let container_config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "synthetic".to_owned(), ..v1::ImageSpec::default() }),
        labels: labels::container_labels("main", &labels),
        ..v1::ContainerConfig::default()
    };
    let sandbox = engine.sandboxes.add(ProcrunSandbox::new(sandbox_config.clone(), true)?)?;
    let container = engine.create(v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.id.clone(),
        config: Some(container_config),
        sandbox_config: Some(sandbox_config),
    })?;
    container.begin_start()?;
    let _ = container.backend.set(ContainerBackend::Synthetic);
    container.mark_running(clock::now());
    Ok(())
}
