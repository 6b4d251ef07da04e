//! The pods of the demo.

use std::path::Path;

use tonic::Status;
use tonic::transport::Channel;

use crate::cri::labels;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, PodSandboxConfig,
    PodSandboxMetadata, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StopContainerRequest,
};

/// A client of the runtime.
pub(super) type Client = RuntimeServiceClient<Channel>;

/// Where the pods are.
const NAMESPACE: &str = "demo";

/// Seconds that a container has to end.
const GRACE: i64 = 2;

/// What a pod does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// What its container runs, in a working directory of its own.
    script: &'static str,
    /// Its exec probe, as a kubelet would have it from the pod's spec.
    pub(super) probe: &'static str,
}

/// A pod that runs.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) spec: Spec,
    sandbox: String,
    pub(super) container: String,
}

/// One that is well, and one that falls ill and recovers, again and again.
pub(super) const PODS: [Spec; 2] = [
    Spec {
        name: "steady",
        script: "trap 'exit 0' TERM; touch healthy; while :; do sleep 0.1; done",
        probe: "cat healthy",
    },
    Spec {
        name: "moody",
        script: "trap 'exit 0' TERM; wait() { n=0; while [ $n -lt $1 ]; do sleep 0.1; n=$((n+1)); done; }; \
                 while :; do touch healthy; wait 70; rm healthy; wait 50; done",
        probe: "cat healthy",
    },
];

impl Pod {
    /// Makes a pod, whose log goes below `folder`.
    pub(super) async fn run(client: &mut Client, spec: &Spec, folder: &Path) -> Result<Self, Status> {
        let uid = format!("demo-{}", spec.name);
        let labels = labels::of_sandbox(spec.name, NAMESPACE, &uid);
        let (name, namespace) = (spec.name.to_owned(), NAMESPACE.to_owned());
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata { name, uid: uid.clone(), namespace, attempt: 0 }),
            log_directory: folder.join("logs").join(spec.name).display().to_string(),
            labels: labels.clone(),
            ..PodSandboxConfig::default()
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let sandbox = client.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: "demo".to_owned(), ..ImageSpec::default() }),
            command: ["sh", "-c", spec.script].map(str::to_owned).into(),
            log_path: "main.log".to_owned(),
            labels: labels::of_container("main", &labels),
            ..ContainerConfig::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container),
            sandbox_config: Some(config),
        };
        let container = client.create_container(request).await?.into_inner().container_id;
        client.start_container(StartContainerRequest { container_id: container.clone() }).await?;
        Ok(Self { spec: *spec, sandbox, container })
    }

    /// Stops it as a kubelet does, and removes it.
    pub(super) async fn remove(self, client: &mut Client) -> Result<(), Status> {
        client.stop_container(StopContainerRequest { container_id: self.container, timeout: GRACE }).await?;
        client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: self.sandbox }).await?;
        Ok(())
    }
}
