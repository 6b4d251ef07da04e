//! Messages between probeshim and the helper.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;
use zeroize::Zeroize as _;

/// Number of descriptors of a launch: standard output and error, the status socket, the pidfd of
/// the container's init process, and the directory of the cgroup.
pub const LAUNCH_DESCRIPTORS: usize = 5;

/// Request to the helper.
#[derive(Clone, PartialEq, Message)]
pub struct HelperRequest {
    #[prost(oneof = "HelperCommand", tags = "1, 2, 3, 4, 5, 6")]
    pub command: Option<HelperCommand>,
}

/// Command in a request.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HelperCommand {
    #[prost(message, boxed, tag = "1")]
    Launch(Box<Launch>),
    #[prost(uint64, tag = "2")]
    Kill(u64),
    #[prost(message, tag = "3")]
    Watch(Watch),
    #[prost(uint64, tag = "4")]
    Unwatch(u64),
    /// Requests [`HelperEvent::Pong`].
    #[prost(bool, tag = "5")]
    Ping(bool),
    /// Keeps the list of processes in the empty file that accompanies the command.
    #[prost(bool, tag = "6")]
    ListProcesses(bool),
}

/// Runs a command in a container. Its descriptors accompany it, in the order of
/// [`LAUNCH_DESCRIPTORS`].
#[derive(Clone, PartialEq, Message)]
pub struct Launch {
    /// Number of the exec in later messages.
    #[prost(uint64, tag = "1")]
    pub exec: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub argv: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    pub attributes: Option<Attributes>,
    /// The process is held at its exec and compared with this record. On a difference it is killed
    /// before it executes an instruction of the command. [`Self::expect`] sets it.
    #[prost(message, optional, tag = "4")]
    pub expected: Option<Snapshot>,
}

/// Attributes of a process that runs in a container.
#[derive(Clone, PartialEq, Message)]
pub struct Attributes {
    /// Name of the session keyring to join.
    #[prost(string, optional, tag = "2")]
    pub keyring: Option<String>,
    #[prost(bool, tag = "3")]
    pub no_new_privs: bool,
    #[prost(uint32, tag = "4")]
    pub umask: u32,
    #[prost(message, repeated, tag = "5")]
    pub rlimits: Vec<Rlimit>,
    #[prost(sint32, tag = "6")]
    pub oom_score_adj: i32,
    #[prost(uint32, tag = "7")]
    pub uid: u32,
    #[prost(uint32, tag = "8")]
    pub gid: u32,
    /// Supplementary groups.
    #[prost(uint32, repeated, tag = "9")]
    pub groups: Vec<u32>,
    #[prost(message, optional, tag = "10")]
    pub capabilities: Option<Capabilities>,
    /// AppArmor profile of the command.
    #[prost(string, optional, tag = "11")]
    pub apparmor_profile: Option<String>,
    #[prost(bytes = "vec", tag = "12")]
    pub cwd: Vec<u8>,
    /// Environment, as `NAME=VALUE`.
    #[prost(bytes = "vec", repeated, tag = "13")]
    pub env: Vec<Vec<u8>>,
    /// Seccomp filters, in the order of their installation.
    #[prost(message, repeated, tag = "14")]
    pub filters: Vec<SeccompFilter>,
    /// Ignored signals: bit n-1 stands for signal n.
    #[prost(fixed64, tag = "15")]
    pub ignored_signals: u64,
    /// HOME, if the OCI runtime reads it from `/etc/passwd` of the container. The command is not
    /// executed if that has another value now.
    #[prost(bytes = "vec", optional, tag = "16")]
    pub home: Option<Vec<u8>>,
    /// HOME that the OCI runtime sets for a user that `/etc/passwd` does not have; empty for none.
    #[prost(bytes = "vec", tag = "18")]
    pub unknown_home: Vec<u8>,
    /// Group that becomes the owner of the pipes. crun sets one, and runc does not.
    #[prost(uint32, optional, tag = "17")]
    pub stream_gid: Option<u32>,
}

/// A resource limit.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Rlimit {
    /// Number of the resource: `RLIMIT_*`.
    #[prost(uint32, tag = "1")]
    pub resource: u32,
    /// Soft limit; the maximum is "unlimited".
    #[prost(fixed64, tag = "2")]
    pub soft: u64,
    /// Hard limit; the maximum is "unlimited".
    #[prost(fixed64, tag = "3")]
    pub hard: u64,
}

/// Sets of capabilities: bit n stands for capability n.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Capabilities {
    #[prost(fixed64, tag = "1")]
    pub bounding: u64,
    #[prost(fixed64, tag = "2")]
    pub effective: u64,
    #[prost(fixed64, tag = "3")]
    pub permitted: u64,
    #[prost(fixed64, tag = "4")]
    pub inheritable: u64,
    #[prost(fixed64, tag = "5")]
    pub ambient: u64,
}

/// A seccomp filter.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SeccompFilter {
    /// Instructions, as the kernel has them: 8 bytes each.
    #[prost(bytes = "vec", tag = "1")]
    pub program: Vec<u8>,
    /// Flags of the installation: `SECCOMP_FILTER_FLAG_*`.
    #[prost(fixed64, tag = "2")]
    pub flags: u64,
}

/// Fields of a process in `/proc`, sorted by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Snapshot {
    #[prost(message, repeated, tag = "1")]
    pub fields: Vec<SnapshotField>,
}

/// A field of a process in `/proc`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SnapshotField {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Records the attributes of the process that the runtime starts for a command. The directories of
/// the cgroups accompany it.
#[derive(Clone, PartialEq, Message)]
pub struct Watch {
    /// Number of the watch in later messages.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub argv: Vec<Vec<u8>>,
    /// Pid of the init process, whose parent is the shim of the container.
    #[prost(int32, tag = "3")]
    pub init: i32,
}

/// Reply of the helper.
#[derive(Clone, PartialEq, Message)]
pub struct HelperReply {
    #[prost(oneof = "HelperEvent", tags = "1, 2, 3, 4, 5")]
    pub event: Option<HelperEvent>,
}

/// Event in a reply.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HelperEvent {
    #[prost(message, tag = "1")]
    Exited(Exited),
    #[prost(message, tag = "2")]
    NotStarted(NotStarted),
    #[prost(message, tag = "3")]
    Recorded(Recorded),
    #[prost(message, tag = "4")]
    NotRecorded(NotRecorded),
    #[prost(bool, tag = "5")]
    Pong(bool),
}

/// A process that has exited. The status socket shows whether it had executed the command.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Exited {
    #[prost(uint64, tag = "1")]
    pub exec: u64,
    /// Exit code, or 128 and the number of the signal that ended the process.
    #[prost(int32, tag = "2")]
    pub code: i32,
    /// Time at which the process was created, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub created_at: i64,
    /// Time at which the helper noticed the exit, in nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub ended_at: i64,
}

/// A command that was not executed. No instruction of it has run.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NotStarted {
    #[prost(uint64, tag = "1")]
    pub exec: u64,
    /// The step that failed, with the error.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Differences from the record, if these are the reason.
    #[prost(message, repeated, tag = "3")]
    pub differences: Vec<Difference>,
}

/// A field that differs between the runtime's process and the helper's.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Difference {
    #[prost(string, tag = "1")]
    pub field: String,
    /// Value of the runtime's process.
    #[prost(string, tag = "2")]
    pub runtime: String,
    /// Value of the helper's process.
    #[prost(string, tag = "3")]
    pub direct: String,
}

/// The process that the runtime started for a watched command, at its exec.
#[derive(Clone, PartialEq, Message)]
pub struct Recorded {
    #[prost(uint64, tag = "1")]
    pub watch: u64,
    /// Name of the OCI runtime.
    #[prost(string, tag = "2")]
    pub runtime: String,
    #[prost(message, optional, tag = "3")]
    pub snapshot: Option<Snapshot>,
    #[prost(message, repeated, tag = "4")]
    pub filters: Vec<SeccompFilter>,
    /// Path of the OCI runtime's program; empty if it is unknown.
    #[prost(string, tag = "5")]
    pub program: String,
}

/// A watched command whose process was not recorded.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NotRecorded {
    #[prost(uint64, tag = "1")]
    pub watch: u64,
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Whether no process of the container can be recorded, for the same reason.
    #[prost(bool, tag = "3")]
    pub is_lasting: bool,
}

/// State of a launched process, which it sends on its status socket.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChildStatus {
    /// Time at which all attributes were applied and the process was about to execute the command,
    /// in nanoseconds since 1970; 0 before.
    #[prost(int64, tag = "1")]
    pub executed_at: i64,
    /// The step that failed, with the error; empty without an error.
    #[prost(string, tag = "2")]
    pub error: String,
}

impl Snapshot {
    /// Returns the value of a field.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.value[..])
    }

    /// Returns the value of a field that is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.value(name)?).ok()
    }
}

impl HelperRequest {
    #[must_use]
    pub fn for_command(command: HelperCommand) -> Self {
        Self { command: Some(command) }
    }
}

impl HelperReply {
    pub(crate) fn for_event(event: HelperEvent) -> Self {
        Self { event: Some(event) }
    }
}

// Texts that may be secret are overwritten, since later children of the helper get a copy of its
// memory.

impl Drop for Launch {
    fn drop(&mut self) {
        self.argv.zeroize();
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        self.env.zeroize();
    }
}

impl Drop for SnapshotField {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.argv.zeroize();
    }
}

/// Returns the time in the unit of the messages: nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
