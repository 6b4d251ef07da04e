//! The calls that are measured.

use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use probeshim::cri::{runtime_client, v1};
use probeshim::socket::SocketPath;
use prost::Message;

/// A call, and the number of its repetitions.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) message: Bytes,
    /// Number of calls in each turn, a multiple of 32.
    pub(crate) calls: usize,
}

/// Number of calls in each turn of a case whose calls take microseconds.
const MANY: usize = 1600;

/// Number of calls in each turn of a case whose calls take milliseconds.
const FEW: usize = 64;

const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";

/// A command that is typical of probes.
const PROBE: [&str; 3] = ["sh", "-c", "test -f /tmp/healthy && curl -fsS http://localhost:8080/healthz"];

/// The calls that are measured on one runtime.
pub(crate) struct Cases {
    /// The smallest call.
    pub(crate) version: Case,
    /// A call with a large response.
    pub(crate) list: Case,
    /// A call whose messages are captured and decoded.
    pub(crate) synthetic: Case,
    /// A call that starts a process.
    pub(crate) real: Case,
}

impl Cases {
    /// Returns the cases, and creates a container with a process for them. The other containers of
    /// the runtime answer without a process.
    pub(crate) async fn on(runtime: &Path) -> Self {
        let mut client = runtime_client(&SocketPath::new(runtime).unwrap());
        let containers = client.list_containers(v1::ListContainersRequest::default()).await.unwrap();
        let synthetic = containers.into_inner().containers.remove(0).id;
        let metadata = v1::PodSandboxMetadata { name: "bench".into(), ..Default::default() };
        let pod = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let request = v1::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
        let pod_sandbox_id = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
        let container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "bench".into(), ..Default::default() }),
            command: vec!["sleep".into(), "1000000".into()],
            ..Default::default()
        };
        let request =
            v1::CreateContainerRequest { pod_sandbox_id, config: Some(container), sandbox_config: Some(pod) };
        let real = client.create_container(request).await.unwrap().into_inner().container_id;
        client.start_container(v1::StartContainerRequest { container_id: real.clone() }).await.unwrap();
        Self {
            version: Self::version(),
            list: Self::list(),
            synthetic: Self::synthetic(synthetic),
            real: Case {
                name: "ExecSync of true",
                path: EXEC_SYNC,
                message: exec(real, &["true"]),
                calls: FEW,
            },
        }
    }

    /// Returns an `ExecSync` in each container of a runtime whose containers answer without a
    /// process.
    pub(crate) async fn of_each(runtime: &Path) -> Vec<Case> {
        let mut client = runtime_client(&SocketPath::new(runtime).unwrap());
        let containers = client.list_containers(v1::ListContainersRequest::default()).await.unwrap();
        containers
            .into_inner()
            .containers
            .into_iter()
            .map(|container| Self::synthetic(container.id))
            .collect()
    }

    fn synthetic(container: String) -> Case {
        Case {
            name: "ExecSync without a process",
            path: EXEC_SYNC,
            message: exec(container, &PROBE),
            calls: MANY,
        }
    }

    pub(crate) fn version() -> Case {
        Case {
            name: "Version",
            path: "/runtime.v1.RuntimeService/Version",
            message: framed(&v1::VersionRequest::default()),
            calls: MANY,
        }
    }

    pub(crate) fn list() -> Case {
        Case {
            name: "ListContainers with 100 containers",
            path: "/runtime.v1.RuntimeService/ListContainers",
            message: framed(&v1::ListContainersRequest::default()),
            calls: MANY,
        }
    }

    pub(crate) fn all(&self) -> [&Case; 4] {
        [&self.version, &self.list, &self.synthetic, &self.real]
    }
}

fn exec(id: String, words: &[&str]) -> Bytes {
    let cmd = words.iter().map(ToString::to_string).collect();
    framed(&v1::ExecSyncRequest { container_id: id, cmd, timeout: 1 })
}

fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    frame.freeze()
}
