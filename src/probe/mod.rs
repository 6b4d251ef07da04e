//! Probes as they are specified, and where that is written.
//!
//! ```text
//! rules of the config ──┐
//! --manifests files ─────────┼──► read ──► Specs ──► a pod with its probes
//! the kubelet's /pods ──┤                  └──► what is executed in which container, and why
//! annotations ──────────┘
//! ```

mod expand;
mod hook;
mod kubelet;
mod manifests;
pub(crate) mod noted;
mod owner;
mod pod;
mod read;
mod redact;
mod rule;
mod source;
mod spec;
mod specs;
mod value;
mod watch;

pub(crate) use expand::{expand, expand_with, expand_word};
pub use hook::Hook;
pub use kubelet::KubeletClient;
pub(crate) use owner::{Workload, WorkloadKind};
pub(crate) use pod::GRACE_PERIOD;
pub use pod::{ContainerKind, ContainerPort, ContainerSpec, Env, PodSpec, RestartPolicy, RestartRule};
pub use read::annotation::annotation_problems;
pub use read::files::{FileError, Files};
pub(crate) use read::files::{FromDocument, ReadOptions};
pub use read::manifest::Manifest;
pub(crate) use read::manifest::{Object, objects, version};
pub(crate) use read::matches::{matches, selector};
pub(crate) use read::pod::read as read_pod;
pub(crate) use read::probe::probe as read_probe;
pub(crate) use read::{names, node};
pub(crate) use redact::{path_without_query, without_queries};
pub use rule::{Rule, Selector};
pub use source::Source;
pub use spec::{ExecPurpose, KnownExec};
pub use specs::{DescribedProbe, SpecResolver};
pub use value::{GrpcHealth, Handler, HttpGet, Port, Probe, ProbeType, TcpSocket};
pub(crate) use watch::{ProblemTracker, rescan_blocking};
pub use watch::{RefreshTrigger, SpecSources, SpecUpdate};
