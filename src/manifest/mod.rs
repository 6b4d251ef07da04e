//! Kubernetes manifests: reads documents, reports all their errors, and holds what they specify
//! about pods, containers and probes.
//!
//! ```text
//! files ───────────► document ──► reader::pod ──► Pod, ConfigObject ──► PodSet    (pods to run)
//! kubelet's /pods ─►    └──────► reader::spec ─► PodSpec ────────────► Manifests (pods to probe)
//! ```

pub(crate) mod api_pods;
mod config_object;
pub(crate) mod cursor;
pub(crate) mod docker_config;
mod document;
mod document_text;
mod exec_purpose;
mod field_lines;
mod file_contents;
mod files;
mod go_base64;
mod ignored_fields;
pub(crate) mod image_name;
mod index;
mod kubelet_client;
mod misplaced;
mod object_identity;
pub(crate) mod pod;
mod pod_set;
mod pod_spec;
mod probe;
mod probe_hints;
pub(crate) mod quantity;
pub(crate) mod reader;
mod remarks;
mod scale;
mod source;
mod stdin;
pub(crate) mod validation;
mod workload;
mod workload_spec;
mod yaml_error;

pub(crate) use config_object::{ConfigObjects, ObjectError};
pub use document::Manifest;
pub(crate) use document::{Purpose, ReadOptions, read_manifests};
pub use exec_purpose::{ExecPurpose, KnownExec};
pub(crate) use field_lines::FieldLines;
pub use files::Files;
pub(crate) use files::skipped_files;
pub(crate) use index::Manifests;
pub use kubelet_client::KubeletClient;
pub(crate) use pod_set::PodSet;
pub(crate) use pod_spec::GRACE_PERIOD;
pub use pod_spec::{ContainerKind, ContainerPort, ContainerSpec, Env, PodSpec, RestartPolicy, RestartRule};
pub use probe::{GrpcHealth, Handler, Hook, HttpGet, NotUnderstood, Port, Probe, ProbeType, TcpSocket};
pub(crate) use reader::probe::{hook as read_hook, probe as read_probe};
pub(crate) use reader::spec::port as read_port;
pub(crate) use scale::{JobSpec, Scale};
pub use source::Source;
pub(crate) use stdin::{is_stdin, shown_path};
pub(crate) use workload::{Workload, WorkloadKind};
pub(crate) use workload_spec::{PodSlot, WorkloadSpec};
pub(crate) use yaml_error::syntax_error;
