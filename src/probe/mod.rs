//! Probes as they are specified, and where that is written.
//!
//! ```text
//! rules of the config ──┐
//! --manifests files ─────────┼──► read ──► Specs ──► a pod with its probes
//! the kubelet's /pods ──┤                  └──► what is executed in which container, and why
//! annotations ──────────┘
//! ```

mod definition;
mod exec_purpose;
mod expand;
pub(crate) mod kubelet_annotations;
mod kubelet_client;
mod lifecycle;
mod manifest_index;
mod pod_spec;
mod read;
mod resolver;
mod rule;
mod source;
mod watch;
mod workload;

pub use definition::{GrpcHealth, Handler, HttpGet, Port, Probe, ProbeType, TcpSocket};
pub use exec_purpose::{ExecPurpose, KnownExec};
pub(crate) use expand::{expand, expand_with, expand_word};
pub use kubelet_client::KubeletClient;
pub use lifecycle::Hook;
pub(crate) use pod_spec::GRACE_PERIOD;
pub use pod_spec::{ContainerKind, ContainerPort, ContainerSpec, Env, PodSpec, RestartPolicy, RestartRule};
pub use read::annotation::annotation_problems;
pub use read::files::{FileError, Files};
pub(crate) use read::files::{FromDocument, ReadOptions};
pub use read::manifest::Manifest;
pub(crate) use read::manifest::{Object, objects, version};
pub(crate) use read::pod::read as read_pod;
pub(crate) use read::probe::probe as read_probe;
pub(crate) use read::selector::{matches, selector};
pub(crate) use read::{cursor, validation};
pub use resolver::{DescribedProbe, SpecResolver};
pub use rule::{Rule, Selector};
pub use source::Source;
pub(crate) use watch::{ProblemTracker, record_problem, rescan_blocking};
pub use watch::{RefreshTrigger, SpecSources};
pub(crate) use workload::{Workload, WorkloadKind};
