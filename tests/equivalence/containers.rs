//! Kinds of containers.

pub(crate) mod node;

use std::path::Path;

use probeshim::cri::v1::security_profile::ProfileType;
use probeshim::cri::v1::{
    Capability, ContainerConfig, ContainerMetadata, Int64Value, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig, SecurityProfile,
};
use serde_json::json;

use crate::behaviours::Behaviour;

/// Command of a container that waits.
const WAITS: &str = "trap 'exit 0' TERM; while true; do sleep 1; done";

/// Command of a container whose init process moves to a cgroup below that of the container.
const MOVES: &str = "own=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/init; \
                     mkdir $own && echo 0 >$own/cgroup.procs; \
                     trap 'exit 0' TERM; while true; do sleep 1; done";

/// Name of the kind without settings of its own.
const DEFAULT: &str = "default";

/// Directory in a container that reaches a limit, and the file in it at which that begins. No
/// command creates the file, because its process would count.
pub(crate) const SIGNALS: &str = "/signals";
pub(crate) const GO: &str = "go";

/// Line in the log of a container that has reached its limit.
pub(crate) const FULL: &str = "limit reached";

/// A kind of container.
pub(crate) struct ContainerKind {
    pub(crate) name: String,
    pub(crate) container: ContainerConfig,
    pub(crate) sandbox: PodSandboxConfig,
    /// Whether the pod has another container, which is started before.
    pub(crate) is_sidecar: bool,
    /// End of the name of the runtime handler.
    pub(crate) handler_suffix: &'static str,
    /// Commands that are executed one after the other, instead of all others at the same time.
    pub(crate) in_turn: Option<Vec<Behaviour>>,
    /// Whether the container reaches a limit once [`GO`] exists, and then logs [`FULL`].
    pub(crate) fills: bool,
    /// Part of the reason for which the runtime executes its commands, if it does.
    pub(crate) forwarded_because: Option<&'static str>,
    /// Part of the error of a runtime that does not support the container.
    pub(crate) unsupported_error: Option<&'static str>,
}

impl ContainerKind {
    fn new(name: impl Into<String>) -> Self {
        let context = LinuxContainerSecurityContext {
            seccomp: Some(profile(ProfileType::RuntimeDefault, "")),
            ..LinuxContainerSecurityContext::default()
        };
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            command: ["/bin/sh", "-c", WAITS].map(str::to_owned).to_vec(),
            log_path: "main.log".to_owned(),
            linux: Some(LinuxContainerConfig { resources: None, security_context: Some(context) }),
            ..ContainerConfig::default()
        };
        let sandbox = PodSandboxConfig {
            linux: Some(LinuxPodSandboxConfig {
                security_context: Some(LinuxSandboxSecurityContext::default()),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        };
        Self {
            name: name.into(),
            container,
            sandbox,
            is_sidecar: false,
            handler_suffix: "",
            in_turn: None,
            fills: false,
            forwarded_because: None,
            unsupported_error: None,
        }
    }

    /// Returns the other container of a pod with a sidecar.
    pub(crate) fn other() -> Self {
        Self::new("other").config(|config| {
            config.metadata = Some(ContainerMetadata { name: "other".to_owned(), attempt: 0 });
            "other.log".clone_into(&mut config.log_path);
        })
    }

    /// Changes the security context of the container.
    fn context(mut self, change: impl FnOnce(&mut LinuxContainerSecurityContext)) -> Self {
        let linux = self.container.linux.get_or_insert_default();
        change(linux.security_context.get_or_insert_default());
        self
    }

    /// Changes the config of the container.
    fn config(mut self, change: impl FnOnce(&mut ContainerConfig)) -> Self {
        change(&mut self.container);
        self
    }

    /// Shares namespaces of the container and its pod.
    fn namespaces(mut self, options: NamespaceOption) -> Self {
        let linux = self.sandbox.linux.get_or_insert_default();
        linux.security_context.get_or_insert_default().namespace_options = Some(options.clone());
        self.context(|context| context.namespace_options = Some(options))
    }

    fn resources(mut self, resources: LinuxContainerResources) -> Self {
        self.container.linux.get_or_insert_default().resources = Some(resources);
        self
    }

    fn in_turn(self, behaviours: impl IntoIterator<Item = Behaviour>) -> Self {
        Self { in_turn: Some(behaviours.into_iter().collect()), ..self }
    }

    /// Lets the container reach a limit by a script, which has to leave a process behind.
    fn fills(self, script: &str) -> Self {
        let script = format!("until [ -e {SIGNALS}/{GO} ]; do sleep 1; done; {script}; echo '{FULL}'; wait");
        let kind = self.config(|config| config.command = vec!["/bin/sh".to_owned(), "-c".to_owned(), script]);
        Self { fills: true, ..kind }
    }

    fn privileged(mut self) -> Self {
        let linux = self.sandbox.linux.get_or_insert_default();
        linux.security_context.get_or_insert_default().privileged = true;
        self.context(|context| {
            context.privileged = true;
            context.seccomp = Some(profile(ProfileType::Unconfined, ""));
        })
    }

    /// Returns whether this is the kind without settings of its own.
    pub(crate) fn is_default(&self) -> bool {
        self.name == DEFAULT
    }

    /// Returns the kinds that need nothing but containerd. Their seccomp profiles are written to a
    /// directory.
    pub(crate) fn common(folder: &Path) -> Vec<Self> {
        let mut all = vec![
            Self::new(DEFAULT),
            Self::new("unconfined").context(|context| {
                context.seccomp = Some(profile(ProfileType::Unconfined, ""));
            }),
            Self::new("privileged").privileged(),
            Self::new("read-only root").context(|context| context.readonly_rootfs = true),
            Self::new("nothing masked").context(|context| {
                context.masked_paths.clear();
                context.readonly_paths.clear();
            }),
            Self::new("init in a cgroup of its own").privileged().config(|config| {
                config.command = ["/bin/sh", "-c", MOVES].map(str::to_owned).to_vec();
            }),
            Self::new("standard input").config(|config| config.stdin = true),
            Self::new("terminal").config(|config| config.tty = true),
        ];
        all.extend(users());
        all.extend(capabilities());
        all.extend(shared_namespaces());
        all.extend(configs());
        all.extend(pairs());
        all.extend(seccomp_profiles(folder));
        all
    }
}

/// Users, groups and `no_new_privs`.
fn users() -> Vec<ContainerKind> {
    let user = |uid: i64| Some(Int64Value { value: uid });
    let mut kinds = vec![
        ContainerKind::new("user name")
            .context(|context| "www-data".clone_into(&mut context.run_as_username)),
        ContainerKind::new("groups of root")
            .context(|context| context.supplemental_groups = vec![5, 6, 70_000]),
        ContainerKind::new("group").context(|context| {
            context.run_as_user = user(1000);
            context.run_as_group = user(44);
        }),
        ContainerKind::new("group and groups").context(|context| {
            context.run_as_user = user(1000);
            context.run_as_group = user(44);
            context.supplemental_groups = vec![1, 2, 3];
        }),
        ContainerKind::new("user of the image's groups").context(|context| context.run_as_user = user(1000)),
        ContainerKind::new("unknown user").context(|context| context.run_as_user = user(12_345)),
        ContainerKind::new("highest user").context(|context| context.run_as_user = user(2_147_483_647)),
    ];
    for uid in [0, 33] {
        kinds.push(ContainerKind::new(format!("no_new_privs as {uid}")).context(|context| {
            context.run_as_user = user(uid);
            context.no_new_privs = true;
        }));
        kinds.push(ContainerKind::new(format!("no_new_privs, unconfined, as {uid}")).context(|context| {
            context.run_as_user = user(uid);
            context.no_new_privs = true;
            context.seccomp = Some(profile(ProfileType::Unconfined, ""));
        }));
    }
    kinds
}

/// Name of a set of capabilities, and the capabilities that are added, dropped and made ambient.
type CapabilitySet =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Sets of capabilities, of root and of another user.
fn capabilities() -> Vec<ContainerKind> {
    let sets: [CapabilitySet; 8] = [
        ("all added", &["ALL"], &[], &[]),
        ("all dropped", &[], &["ALL"], &[]),
        ("one", &["NET_ADMIN"], &["ALL"], &[]),
        ("one dropped", &[], &["CHOWN"], &[]),
        ("some", &["SYS_TIME", "SYS_PTRACE"], &["MKNOD", "SETUID", "SETGID"], &[]),
        ("without setpcap", &[], &["SETPCAP"], &[]),
        ("ambient", &["NET_RAW"], &["ALL"], &["NET_RAW"]),
        ("several ambient", &["KILL", "CHOWN"], &[], &["KILL", "CHOWN"]),
    ];
    let mut kinds = Vec::new();
    for (name, added, dropped, ambient) in sets {
        let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        for uid in [0, 1000] {
            let kind = ContainerKind::new(format!("capabilities {name} as {uid}")).context(|context| {
                context.run_as_user = Some(Int64Value { value: uid });
                context.capabilities = Some(Capability {
                    add_capabilities: texts(added),
                    drop_capabilities: texts(dropped),
                    add_ambient_capabilities: texts(ambient),
                });
            });
            let traces = added.contains(&"SYS_PTRACE");
            kinds.push(ContainerKind { forwarded_because: traces.then_some("CAP_SYS_PTRACE"), ..kind });
        }
    }
    kinds
}

fn shared_namespaces() -> Vec<ContainerKind> {
    let node = NamespaceMode::Node.into();
    let options = || NamespaceOption { pid: NamespaceMode::Container.into(), ..NamespaceOption::default() };
    vec![
        ContainerKind::new("network of the host").namespaces(NamespaceOption { network: node, ..options() }),
        ContainerKind::new("processes of the host").namespaces(NamespaceOption { pid: node, ..options() }),
        ContainerKind::new("IPC of the host").namespaces(NamespaceOption { ipc: node, ..options() }),
        ContainerKind::new("all of the host").namespaces(NamespaceOption {
            network: node,
            pid: node,
            ipc: node,
            ..NamespaceOption::default()
        }),
        ContainerKind::new("processes of the pod")
            .namespaces(NamespaceOption { pid: NamespaceMode::Pod.into(), ..options() }),
        ContainerKind { is_sidecar: true, ..ContainerKind::new("sidecar") },
        ContainerKind {
            is_sidecar: true,
            ..ContainerKind::new("sidecar, processes of the pod")
                .namespaces(NamespaceOption { pid: NamespaceMode::Pod.into(), ..options() })
        },
        // The id of the other container is filled in once it exists.
        ContainerKind { is_sidecar: true, ..ContainerKind::new("processes of the other container") }.context(
            |context| {
                context.namespace_options =
                    Some(NamespaceOption { pid: NamespaceMode::Target.into(), ..options() });
            },
        ),
        ContainerKind::new("privileged, all of the host").privileged().namespaces(NamespaceOption {
            network: node,
            pid: node,
            ipc: node,
            ..NamespaceOption::default()
        }),
    ]
}

/// Environments and working directories.
fn configs() -> Vec<ContainerKind> {
    let env = |variables: &[(&str, &str)]| {
        let variables: Vec<KeyValue> = variables
            .iter()
            .map(|(key, value)| KeyValue { key: (*key).to_owned(), value: value.as_bytes().to_vec() })
            .collect();
        move |config: &mut ContainerConfig| config.envs = variables
    };
    let long = "x".repeat(32 << 10);
    vec![
        ContainerKind::new("environment").config(env(&[("A", "1"), ("EMPTY", ""), ("SPACED", "a b\tc\n")])),
        ContainerKind::new("variable twice").config(env(&[("A", "1"), ("A", "2")])),
        ContainerKind::new("long environment").config(env(&[("LONG", &long)])),
        ContainerKind::new("HOME").config(env(&[("HOME", "/tmp")])),
        ContainerKind::new("PATH").config(env(&[("PATH", "/nowhere:/bin")])),
        ContainerKind::new("PATH with the working directory").config(env(&[("PATH", ":/bin:.")])),
        ContainerKind::new("text beyond ASCII").config(env(&[("GREETING", "grüß dich, 世界")])),
        ContainerKind::new("working directory").config(|config| "/tmp".clone_into(&mut config.working_dir)),
        ContainerKind::new("new working directory")
            .config(|config| "/made/for/it".clone_into(&mut config.working_dir)),
    ]
}

/// Combinations of users, capabilities, `no_new_privs` and seccomp.
fn pairs() -> Vec<ContainerKind> {
    let mut kinds = Vec::new();
    for uid in [0, 1000] {
        for no_new_privs in [false, true] {
            for (name, dropped) in [("some", &["NET_RAW"][..]), ("all", &["ALL"][..])] {
                let privileges = if no_new_privs { "no_new_privs" } else { "privileges" };
                let name = format!("{privileges}, {name} dropped, read-only, as {uid}");
                kinds.push(ContainerKind::new(name).context(|context| {
                    context.run_as_user = Some(Int64Value { value: uid });
                    context.no_new_privs = no_new_privs;
                    context.readonly_rootfs = true;
                    context.capabilities = Some(Capability {
                        drop_capabilities: dropped.iter().map(ToString::to_string).collect(),
                        ..Capability::default()
                    });
                }));
            }
        }
    }
    kinds
}

/// Seccomp profiles of the node, with and without `no_new_privs`.
fn seccomp_profiles(folder: &Path) -> Vec<ContainerKind> {
    let refused = json!([{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]);
    let logged = json!([{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_LOG"}]);
    let profiles = [
        ("that refuses calls", json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": refused})),
        (
            "that logs",
            json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"], "syscalls": logged}),
        ),
        (
            "that allows speculation",
            json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_SPEC_ALLOW"], "syscalls": refused}),
        ),
    ];
    let mut kinds = Vec::new();
    for (name, text) in profiles {
        let path = folder.join(format!("seccomp {name}.json"));
        std::fs::write(&path, text.to_string()).unwrap();
        for no_new_privs in [false, true] {
            let privileges = if no_new_privs { ", no_new_privs" } else { "" };
            let kind = ContainerKind::new(format!("seccomp {name}{privileges}")).context(|context| {
                context.no_new_privs = no_new_privs;
                context.seccomp = Some(profile(ProfileType::Localhost, path.to_str().unwrap()));
            });
            // runc before 1.2 knows no flags.
            let unsupported_error = text["flags"].is_array().then_some("seccomp flags are not yet supported");
            kinds.push(ContainerKind { unsupported_error, ..kind });
        }
    }
    kinds
}

fn profile(kind: ProfileType, path: &str) -> SecurityProfile {
    SecurityProfile { profile_type: kind.into(), localhost_ref: path.to_owned() }
}
