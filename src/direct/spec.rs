//! Specification of a container, as the runtime reports it: the parts of containerd's verbose
//! `ContainerStatus` that determine how a command runs in the container.

use exec_helper::protocol::Capabilities;
use rustix::thread::CapabilitySet;
use serde::Deserialize;

/// Type of the runtimes whose containers are processes of this node that runc or crun starts.
const RUNC_SHIM: &str = "io.containerd.runc.v2";

/// `CAP_SYS_PTRACE`. With it, a container could take over the helper's child before that has given
/// up its privileges.
const TRACES: u64 = 1 << 19;

/// `CAP_SYS_ADMIN`. A container that has it gains nothing by that.
const ADMINISTERS: u64 = 1 << 21;

/// Flag of a seccomp filter that keeps speculative execution as it is: `1 << 2` in the kernel.
const SPEC_ALLOW: &str = "SECCOMP_FILTER_FLAG_SPEC_ALLOW";

/// The part of `info` in a verbose `ContainerStatus` response that probeshim reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    #[serde(default)]
    pid: i32,
    runtime_type: Option<String>,
    runtime_options: Option<RuntimeOptions>,
    runtime_spec: Option<RuntimeSpec>,
}

#[derive(Debug, Default, Deserialize)]
struct RuntimeOptions {
    #[serde(default, alias = "NoNewKeyring")]
    no_new_keyring: bool,
}

/// The part of an OCI runtime specification that probeshim reads.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeSpec {
    process: Process,
    linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Process {
    cwd: String,
    capabilities: Option<CapabilityNames>,
    no_new_privileges: bool,
    apparmor_profile: String,
    selinux_label: String,
    env: Vec<String>,
    scheduler: Option<serde_json::Value>,
    io_priority: Option<serde_json::Value>,
    #[serde(rename = "execCPUAffinity")]
    exec_cpu_affinity: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CapabilityNames {
    bounding: Vec<String>,
    effective: Vec<String>,
    permitted: Vec<String>,
    inheritable: Vec<String>,
    ambient: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Linux {
    namespaces: Vec<Namespace>,
    seccomp: Option<Seccomp>,
    personality: Option<serde_json::Value>,
    memory_policy: Option<serde_json::Value>,
    intel_rdt: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Namespace {
    r#type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Seccomp {
    listener_path: String,
    flags: Vec<String>,
}

/// Specification of a container in which commands can run without the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerSpec {
    /// Pid of the init process.
    pub(super) init: i32,
    /// Whether a command joins a session keyring.
    pub(super) joins_keyring: bool,
    pub(super) cwd: String,
    pub(super) capabilities: Capabilities,
    pub(super) no_new_privs: bool,
    pub(super) apparmor_profile: Option<String>,
    /// Whether the environment has HOME. Otherwise the OCI runtime reads it from `/etc/passwd` of
    /// the container.
    pub(super) has_home: bool,
    /// Flags of the installation of seccomp filters that the kernel does not report:
    /// `SECCOMP_FILTER_FLAG_*`.
    pub(super) filter_flags: u64,
}

/// Reason for which commands of a container are left to the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsupported {
    /// The runtime reports no specification.
    #[error("the runtime reports no specification of the container")]
    NoSpec,
    /// The information of the runtime cannot be read.
    #[error("the specification of the container cannot be read: {0}")]
    Unreadable(String),
    /// The container does not run.
    #[error("the container has no init process")]
    NotRunning,
    /// The runtime's handler is not known to start processes of this node.
    #[error("the runtime type is {0}, not io.containerd.runc.v2")]
    RuntimeType(String),
    /// A capability that this version does not know.
    #[error("unknown capability {0:?}")]
    Capability(String),
    /// The specification has no capabilities.
    #[error("the specification has no capabilities")]
    NoCapabilities,
    /// A field of a recorded process that is missing, or has an unknown form.
    #[error("{0} of the runtime's process is unknown")]
    Unrecorded(&'static str),
    /// An OCI runtime whose processes cannot be imitated.
    #[error("the OCI runtime is neither runc nor crun: its process is {0:?}")]
    OciRuntime(String),
    /// A field of the specification that is not supported.
    #[error("{0} is not supported")]
    Field(&'static str),
}

impl ContainerSpec {
    /// Reads the field `info` of a verbose `ContainerStatus` response.
    pub(super) fn read(info: &str) -> Result<Self, Unsupported> {
        let info: Info =
            serde_json::from_str(info).map_err(|error| Unsupported::Unreadable(error.to_string()))?;
        let Info { pid, runtime_type, runtime_options, runtime_spec } = info;
        let spec = runtime_spec.ok_or(Unsupported::NoSpec)?;
        let runtime_type = runtime_type.unwrap_or_else(|| "unknown".to_owned());
        if runtime_type != RUNC_SHIM {
            return Err(Unsupported::RuntimeType(runtime_type));
        }
        let RuntimeSpec { process, linux } = spec;
        let unsupported = [
            ("linux.namespaces of type user", linux.namespaces.iter().any(|it| it.r#type == "user")),
            ("linux.namespaces of type time", linux.namespaces.iter().any(|it| it.r#type == "time")),
            ("linux.personality", linux.personality.is_some()),
            ("linux.memoryPolicy", linux.memory_policy.is_some()),
            ("linux.intelRdt", linux.intel_rdt.is_some()),
            ("process.selinuxLabel", !process.selinux_label.is_empty()),
            ("process.scheduler", process.scheduler.is_some()),
            ("process.ioPriority", process.io_priority.is_some()),
            ("process.execCPUAffinity", process.exec_cpu_affinity.is_some()),
            (
                "linux.seccomp.listenerPath",
                linux.seccomp.as_ref().is_some_and(|seccomp| !seccomp.listener_path.is_empty()),
            ),
        ];
        if let Some((field, _)) = unsupported.into_iter().find(|(_, is_used)| *is_used) {
            return Err(Unsupported::Field(field));
        }
        if pid <= 0 {
            return Err(Unsupported::NotRunning);
        }
        let capabilities = process.capabilities.ok_or(Unsupported::NoCapabilities)?.sets()?;
        if capabilities.bounding & TRACES != 0 && capabilities.bounding & ADMINISTERS == 0 {
            return Err(Unsupported::Field("CAP_SYS_PTRACE without CAP_SYS_ADMIN"));
        }
        let RuntimeOptions { no_new_keyring } = runtime_options.unwrap_or_default();
        let seccomp = linux.seccomp.unwrap_or_default();
        Ok(Self {
            init: pid,
            joins_keyring: !no_new_keyring,
            cwd: process.cwd,
            capabilities,
            no_new_privs: process.no_new_privileges,
            apparmor_profile: Some(process.apparmor_profile).filter(|profile| !profile.is_empty()),
            has_home: process
                .env
                .iter()
                .any(|variable| variable.len() > "HOME=".len() && variable.starts_with("HOME=")),
            filter_flags: if seccomp.flags.iter().any(|flag| flag == SPEC_ALLOW) { 1 << 2 } else { 0 },
        })
    }
}

impl CapabilityNames {
    fn sets(&self) -> Result<Capabilities, Unsupported> {
        let set = |names: &[String]| {
            names.iter().try_fold(0, |set, name| {
                let known = name.strip_prefix("CAP_").and_then(CapabilitySet::from_name);
                Ok(set | known.ok_or_else(|| Unsupported::Capability(name.clone()))?.bits())
            })
        };
        Ok(Capabilities {
            bounding: set(&self.bounding)?,
            effective: set(&self.effective)?,
            permitted: set(&self.permitted)?,
            inheritable: set(&self.inheritable)?,
            ambient: set(&self.ambient)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn info() -> Value {
        json!({
            "pid": 4711,
            "runtimeType": "io.containerd.runc.v2",
            "runtimeOptions": {"binary_name": "/usr/bin/crun"},
            "runtimeSpec": {
                "process": {
                    "user": {"uid": 33, "gid": 33},
                    "args": ["sleep"],
                    "env": ["PATH=/bin", "HOSTNAME=web"],
                    "cwd": "/srv",
                    "capabilities": {"bounding": ["CAP_CHOWN", "CAP_KILL"], "ambient": ["CAP_KILL"]},
                    "noNewPrivileges": true,
                    "apparmorProfile": "cri-containerd.apparmor.d",
                    "oomScoreAdj": 1000,
                },
                "linux": {"namespaces": [{"type": "pid"}], "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"}},
            },
        })
    }

    #[test]
    fn the_specification_of_a_container_is_read_from_the_runtimes_information() {
        let read = ContainerSpec::read(&info().to_string()).unwrap();
        let capabilities =
            Capabilities { bounding: 0b10_0001, ambient: 0b10_0000, ..Capabilities::default() };
        assert_eq!(
            read,
            ContainerSpec {
                init: 4711,
                joins_keyring: true,
                cwd: "/srv".to_owned(),
                capabilities,
                no_new_privs: true,
                apparmor_profile: Some("cri-containerd.apparmor.d".to_owned()),
                has_home: false,
                filter_flags: 0,
            }
        );
    }

    #[test]
    fn a_container_that_needs_the_runtime_is_refused_with_the_reason() {
        let with = |pointer: &str, value: Value| {
            let mut info = info();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            info.pointer_mut(parent).unwrap()[key] = value;
            ContainerSpec::read(&info.to_string()).unwrap_err().to_string()
        };
        for (pointer, value, expected) in [
            ("/runtimeType", json!("io.containerd.kata.v2"), "the runtime type is io.containerd.kata.v2"),
            ("/runtimeType", json!(null), "the runtime type is unknown"),
            ("/runtimeSpec", json!(null), "reports no specification"),
            ("/pid", json!(0), "no init process"),
            ("/runtimeSpec/linux/namespaces", json!([{"type": "user"}]), "type user is not supported"),
            ("/runtimeSpec/linux/seccomp/listenerPath", json!("/run/x"), "listenerPath is not supported"),
            ("/runtimeSpec/process/selinuxLabel", json!("a:b"), "selinuxLabel is not supported"),
            ("/runtimeSpec/process/scheduler", json!({}), "scheduler is not supported"),
            ("/runtimeSpec/process/capabilities", json!(null), "no capabilities"),
            (
                "/runtimeSpec/process/capabilities/bounding",
                json!(["CAP_NEW"]),
                "unknown capability \"CAP_NEW\"",
            ),
            (
                "/runtimeSpec/process/capabilities/bounding",
                json!(["CAP_SYS_PTRACE"]),
                "CAP_SYS_PTRACE without CAP_SYS_ADMIN is not supported",
            ),
            ("/runtimeSpec/process/cwd", json!(1), "cannot be read"),
        ] {
            let reason = with(pointer, value);
            assert!(reason.contains(expected), "{pointer}: {reason}");
        }
        assert!(ContainerSpec::read("{").unwrap_err().to_string().contains("cannot be read"));
    }
}
