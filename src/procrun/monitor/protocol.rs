//! Protocol between procrun and a monitor: messages that follow their length, with descriptors as
//! ancillary data of messages that need them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::{Buf as _, BytesMut};
use prost::Message;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::cri::v1::KeyValue;

/// Number of descriptors of a launch: standard output and standard error.
pub(super) const STREAMS: usize = 2;

/// Size of a message's length, in bytes.
const PREFIX: usize = 4;

/// Maximum number of bytes of one read.
const CHUNK: usize = 64 << 10;

/// Request of procrun.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MonitorRequest {
    #[prost(oneof = "MonitorCommand", tags = "1, 2, 3")]
    pub(super) act: Option<MonitorCommand>,
}

/// Command in a request.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum MonitorCommand {
    #[prost(message, tag = "1")]
    Launch(Launch),
    #[prost(message, tag = "2")]
    Signal(Signal),
    #[prost(message, tag = "3")]
    KillAll(KillAll),
}

/// A process to launch. Its output streams are sent as ancillary data.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Launch {
    /// Number that identifies the process in later messages. The process that is launched first is
    /// the container itself.
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) command: Option<Command>,
}

/// Program of a process, with arguments, environment and working directory.
#[derive(Clone, PartialEq, Message)]
pub(in crate::procrun) struct Command {
    /// Absolute path of the program.
    #[prost(string, tag = "1")]
    pub(in crate::procrun) program: String,
    /// Arguments, of which the first is the name of the program.
    #[prost(string, repeated, tag = "2")]
    pub(in crate::procrun) args: Vec<String>,
    /// Complete environment.
    #[prost(message, repeated, tag = "3")]
    pub(in crate::procrun) envs: Vec<KeyValue>,
    /// Absolute path of the working directory.
    #[prost(string, tag = "4")]
    pub(in crate::procrun) directory: String,
}

/// A signal for a launched process.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Signal {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(int32, tag = "2")]
    pub(super) number: i32,
    #[prost(enumeration = "SignalTarget", tag = "3")]
    pub(super) target: i32,
}

/// Receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(in crate::procrun) enum SignalTarget {
    /// The process alone.
    Process = 0,
    /// The process group that the process leads.
    Group = 1,
}

/// Ends the container: every process gets SIGKILL, and none is launched any more.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct KillAll {}

/// Reply of a monitor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MonitorReply {
    #[prost(oneof = "MonitorEvent", tags = "1, 2, 3, 4")]
    pub(super) event: Option<MonitorEvent>,
}

/// Event in a reply.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum MonitorEvent {
    #[prost(message, tag = "1")]
    Launched(Launched),
    #[prost(message, tag = "2")]
    Refused(Refused),
    #[prost(message, tag = "3")]
    Exited(Exited),
    #[prost(message, tag = "4")]
    Orphan(Orphan),
}

/// A process that was launched.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Launched {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
    /// Time of the launch, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) at: i64,
}

/// A process that could not be launched.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Refused {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    /// Error of the operating system.
    #[prost(string, tag = "2")]
    pub(super) reason: String,
}

/// A launched process that has exited. If it was the container itself, all processes below it have
/// exited too.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Exited {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    /// Exit code, or 128 and the number of the signal that ended the process.
    #[prost(int32, tag = "2")]
    pub(super) code: i32,
    /// Time of the exit, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) at: i64,
}

/// A descendant that lost its parent, left the process groups of the launched processes, and has
/// exited.
#[derive(Clone, PartialEq, Message)]
pub(in crate::procrun) struct Orphan {
    #[prost(int32, tag = "1")]
    pub(in crate::procrun) pid: i32,
    /// Name of the program, as the kernel gives it.
    #[prost(string, tag = "2")]
    pub(in crate::procrun) program: String,
    /// Exit code, or 128 and the number of the signal that ended the process.
    #[prost(int32, tag = "3")]
    pub(in crate::procrun) code: i32,
}

/// Assembles messages that arrive in pieces.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    bytes: BytesMut,
}

impl MonitorRequest {
    pub(super) fn for_command(act: MonitorCommand) -> Self {
        Self { act: Some(act) }
    }
}

impl MonitorReply {
    pub(super) fn for_event(event: MonitorEvent) -> Self {
        Self { event: Some(event) }
    }
}

/// Returns a message, preceded by its length.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + length);
    frame.extend(u32::try_from(length).expect("a message of gRPC is shorter").to_be_bytes());
    message.encode(&mut frame).expect("a vector takes any length");
    frame
}

/// Sends the beginning of a frame, and descriptors with its first byte. Returns the number of bytes
/// that were sent.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<usize> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
    }
    let buffers = [IoSlice::new(bytes)];
    Ok(retry_on_intr(|| sendmsg(socket, &buffers, &mut ancillary, SendFlags::NOSIGNAL))?)
}

impl MessageReader {
    /// Reads the available bytes. Returns the descriptors that accompany them, or `None` at the end
    /// of the stream.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<Vec<OwnedFd>>> {
        let mut chunk = vec![0; CHUNK];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut buffers = [IoSliceMut::new(&mut chunk)];
            recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        self.bytes.extend_from_slice(&chunk[..received.bytes]);
        Ok((received.bytes > 0).then_some(descriptors))
    }

    /// Returns the next complete message, if there is one. Fails if it cannot be decoded.
    pub(super) fn next<M: Message + Default>(&mut self) -> io::Result<Option<M>> {
        let Some(length) = self.bytes.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if self.bytes.len() < PREFIX + length {
            return Ok(None);
        }
        self.bytes.advance(PREFIX);
        let message = M::decode(self.bytes.split_to(length));
        message.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}
