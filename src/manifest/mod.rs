//! Documents of Kubernetes: reads them with all their problems, and holds what they specify of pods, containers and probes.
//!
//! ```text
//! files, the kubelet's /pods ──► document ──► probed_pod, probe_reader ──► PodSpec
//!                                    └──────► pod_reader ───────────────► Pod
//! ```

pub(crate) mod cursor;
mod document;
mod exec_purpose;
mod files;
mod index;
mod kubelet_client;
mod lifecycle;
pub(crate) mod pod;
pub(crate) mod pod_reader;
mod pod_spec;
mod probe;
mod probe_reader;
mod probed_pod;
pub(crate) mod quantity;
mod source;
pub(crate) mod validation;
mod workload;

pub use document::Manifest;
pub(crate) use document::{Object, objects, read as read_document, version};
pub use exec_purpose::{ExecPurpose, KnownExec};
pub use files::{FileError, Files};
pub(crate) use files::{FromDocument, ReadOptions, read as read_file};
pub(crate) use index::Manifests;
pub use kubelet_client::KubeletClient;
pub use lifecycle::Hook;
pub(crate) use pod_spec::GRACE_PERIOD;
pub use pod_spec::{ContainerKind, ContainerPort, ContainerSpec, Env, PodSpec, RestartPolicy, RestartRule};
pub use probe::{GrpcHealth, Handler, HttpGet, Port, Probe, ProbeType, TcpSocket};
pub(crate) use probe_reader::{hook as read_hook, probe as read_probe};
pub(crate) use probed_pod::{port as read_port, read as read_pod};
pub use source::Source;
pub(crate) use workload::{Workload, WorkloadKind};
