//! Protocol between probeshim and the helper: one message in each packet of a
//! `SOCK_SEQPACKET` socket, with descriptors as ancillary data.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use prost::Message;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zeroize::{Zeroize as _, Zeroizing};

/// Maximum length of a packet, in bytes. The environment and the arguments of a command make up
/// most of it.
pub(super) const MAX_PACKET_BYTES: usize = 192 << 10;

/// Size of the buffer of each end of the socket for sent packets, in bytes. It has room for a
/// packet with its overhead in the kernel.
pub(super) const SEND_BUFFER_BYTES: usize = 2 * MAX_PACKET_BYTES;

/// Number of descriptors of a launch: standard input, output and error, the status socket, the
/// pidfd of the container's init process, and the directory of the cgroup.
pub(super) const LAUNCH_DESCRIPTORS: usize = 6;

/// Request to the helper.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HelperRequest {
    #[prost(oneof = "HelperCommand", tags = "1, 2, 3, 4, 5")]
    pub(super) command: Option<HelperCommand>,
}

/// Command in a request.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum HelperCommand {
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
}

/// Runs a command in a container. Its descriptors accompany it, in the order of
/// [`LAUNCH_DESCRIPTORS`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct Launch {
    /// Number of the exec in later messages.
    #[prost(uint64, tag = "1")]
    pub(super) exec: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(super) argv: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    pub(super) attributes: Option<Attributes>,
    /// The process is held at its exec and compared with this record. On a difference it is killed
    /// before it executes an instruction of the command.
    #[prost(message, optional, tag = "4")]
    pub(super) expected: Option<Snapshot>,
}

/// Attributes of a process that runs in a container.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attributes {
    /// Name of the session keyring to join.
    #[prost(string, optional, tag = "2")]
    pub(super) keyring: Option<String>,
    #[prost(bool, tag = "3")]
    pub(super) no_new_privs: bool,
    #[prost(uint32, tag = "4")]
    pub(super) umask: u32,
    #[prost(message, repeated, tag = "5")]
    pub(super) rlimits: Vec<Rlimit>,
    #[prost(sint32, tag = "6")]
    pub(super) oom_score_adj: i32,
    #[prost(uint32, tag = "7")]
    pub(super) uid: u32,
    #[prost(uint32, tag = "8")]
    pub(super) gid: u32,
    /// Supplementary groups.
    #[prost(uint32, repeated, tag = "9")]
    pub(super) groups: Vec<u32>,
    #[prost(message, optional, tag = "10")]
    pub(super) capabilities: Option<Capabilities>,
    /// AppArmor profile of the command.
    #[prost(string, optional, tag = "11")]
    pub(super) apparmor_profile: Option<String>,
    #[prost(bytes = "vec", tag = "12")]
    pub(super) cwd: Vec<u8>,
    /// Environment, as `NAME=VALUE`.
    #[prost(bytes = "vec", repeated, tag = "13")]
    pub(super) env: Vec<Vec<u8>>,
    /// Seccomp filters, in the order of their installation.
    #[prost(message, repeated, tag = "14")]
    pub(super) filters: Vec<SeccompFilter>,
    /// Ignored signals: bit n-1 stands for signal n.
    #[prost(fixed64, tag = "15")]
    pub(super) ignored_signals: u64,
    /// HOME, if the OCI runtime reads it from `/etc/passwd` of the container. The command is not
    /// executed if that has another value now.
    #[prost(bytes = "vec", optional, tag = "16")]
    pub(super) home: Option<Vec<u8>>,
    /// HOME that the OCI runtime sets for a user that `/etc/passwd` does not have; empty for none.
    #[prost(bytes = "vec", tag = "18")]
    pub(super) unknown_home: Vec<u8>,
    /// Group that becomes the owner of the pipes. crun sets one, and runc does not.
    #[prost(uint32, optional, tag = "17")]
    pub(super) stream_gid: Option<u32>,
}

/// A resource limit.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Rlimit {
    /// Number of the resource: `RLIMIT_*`.
    #[prost(uint32, tag = "1")]
    pub(super) resource: u32,
    /// Soft limit; the maximum is "unlimited".
    #[prost(fixed64, tag = "2")]
    pub(super) soft: u64,
    /// Hard limit; the maximum is "unlimited".
    #[prost(fixed64, tag = "3")]
    pub(super) hard: u64,
}

/// Sets of capabilities: bit n stands for capability n.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Capabilities {
    #[prost(fixed64, tag = "1")]
    pub(super) bounding: u64,
    #[prost(fixed64, tag = "2")]
    pub(super) effective: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) permitted: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) inheritable: u64,
    #[prost(fixed64, tag = "5")]
    pub(super) ambient: u64,
}

/// A seccomp filter.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct SeccompFilter {
    /// Instructions, as the kernel has them: 8 bytes each.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) program: Vec<u8>,
    /// Flags of the installation: `SECCOMP_FILTER_FLAG_*`.
    #[prost(fixed64, tag = "2")]
    pub(super) flags: u64,
}

/// Fields of a process in `/proc`, sorted by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Snapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) fields: Vec<SnapshotField>,
}

/// A field of a process in `/proc`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct SnapshotField {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// Records the attributes of the process that the runtime starts for a command. The directories of
/// the cgroups accompany it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Watch {
    /// Number of the watch in later messages.
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(super) argv: Vec<Vec<u8>>,
    /// Pid of the init process, whose parent is the shim of the container.
    #[prost(int32, tag = "3")]
    pub(super) init: i32,
}

/// Reply of the helper.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HelperReply {
    #[prost(oneof = "HelperEvent", tags = "1, 2, 3, 4, 5")]
    pub(super) event: Option<HelperEvent>,
}

/// Event in a reply.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum HelperEvent {
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
pub(super) struct Exited {
    #[prost(uint64, tag = "1")]
    pub(super) exec: u64,
    /// Exit code, or 128 and the number of the signal that ended the process.
    #[prost(int32, tag = "2")]
    pub(super) code: i32,
    /// Time at which the process was created, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) created_at: i64,
    /// Time at which the helper noticed the exit, in nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(super) ended_at: i64,
}

/// A command that was not executed. No instruction of it has run.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct NotStarted {
    #[prost(uint64, tag = "1")]
    pub(super) exec: u64,
    /// The step that failed, with the error.
    #[prost(string, tag = "2")]
    pub(super) reason: String,
    /// Differences from the record, if these are the reason.
    #[prost(message, repeated, tag = "3")]
    pub(super) differences: Vec<Difference>,
}

/// A field that differs between the runtime's process and the helper's.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Difference {
    #[prost(string, tag = "1")]
    pub(super) field: String,
    /// Value of the runtime's process.
    #[prost(string, tag = "2")]
    pub(super) runtime: String,
    /// Value of the helper's process.
    #[prost(string, tag = "3")]
    pub(super) direct: String,
}

/// The process that the runtime started for a watched command, at its exec.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Recorded {
    #[prost(uint64, tag = "1")]
    pub(super) watch: u64,
    /// Name of the OCI runtime.
    #[prost(string, tag = "2")]
    pub(super) runtime: String,
    #[prost(message, optional, tag = "3")]
    pub(super) snapshot: Option<Snapshot>,
    #[prost(message, repeated, tag = "4")]
    pub(super) filters: Vec<SeccompFilter>,
    /// Path of the OCI runtime's program; empty if it is unknown.
    #[prost(string, tag = "5")]
    pub(super) program: String,
}

/// A watched command whose process was not recorded.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct NotRecorded {
    #[prost(uint64, tag = "1")]
    pub(super) watch: u64,
    #[prost(string, tag = "2")]
    pub(super) reason: String,
}

/// State of a launched process, which it sends on its status socket.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ChildStatus {
    /// Time at which all attributes were applied and the process was about to execute the command,
    /// in nanoseconds since 1970; 0 before.
    #[prost(int64, tag = "1")]
    pub(super) executed_at: i64,
    /// The step that failed, with the error; empty without an error.
    #[prost(string, tag = "2")]
    pub(super) error: String,
}

impl HelperRequest {
    pub(super) fn for_command(command: HelperCommand) -> Self {
        Self { command: Some(command) }
    }
}

impl HelperReply {
    pub(super) fn for_event(event: HelperEvent) -> Self {
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

/// Sends a message with descriptors. Fails with `InvalidInput` if the message is too long.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Message,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if message.encoded_len() > MAX_PACKET_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    let bytes = Zeroizing::new(message.encode_to_vec());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LAUNCH_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let buffers = [IoSlice::new(&bytes)];
    let sent = retry_on_intr(|| sendmsg(socket, &buffers, &mut ancillary, SendFlags::NOSIGNAL))?;
    // A packet is sent as a whole or not at all.
    debug_assert_eq!(sent, bytes.len());
    Ok(())
}

/// Receives a message and its descriptors, with `buffer` of [`MAX_PACKET_BYTES`], which is
/// overwritten. There are no descriptors if this process may not open all of them. Returns `None`
/// if the peer has closed its end.
pub(super) fn receive<M: Message + Default>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LAUNCH_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let mut buffers = [IoSliceMut::new(buffer)];
        recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let mut descriptors: Vec<OwnedFd> = rights.flatten().collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the packet is too long"));
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        descriptors.clear();
    }
    let message = M::decode(&buffer[..received.bytes]);
    buffer[..received.bytes].zeroize();
    let message = message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors)))
}
