//! What procrun and a monitor say to each other: messages behind their length, with descriptors beside those that need them.

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

/// Descriptors that go with a launch: standard output and standard error.
pub(super) const STREAMS: usize = 2;

/// Bytes of a message's length.
const PREFIX: usize = 4;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// What procrun asks for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MonitorRequest {
    #[prost(oneof = "MonitorCommand", tags = "1, 2, 3")]
    pub(super) act: Option<MonitorCommand>,
}

/// One thing to do.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum MonitorCommand {
    #[prost(message, tag = "1")]
    Launch(Launch),
    #[prost(message, tag = "2")]
    Signal(Signal),
    #[prost(message, tag = "3")]
    KillAll(KillAll),
}

/// A process to launch; its output streams come beside the message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Launch {
    /// The number by which it is spoken of. The first one that is launched is the container itself.
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) command: Option<Command>,
}

/// What a process runs.
#[derive(Clone, PartialEq, Message)]
pub(in crate::procrun) struct Command {
    /// The absolute path of its program.
    #[prost(string, tag = "1")]
    pub(in crate::procrun) program: String,
    /// Its words, of which the first is what it is called.
    #[prost(string, repeated, tag = "2")]
    pub(in crate::procrun) args: Vec<String>,
    /// All of its environment.
    #[prost(message, repeated, tag = "3")]
    pub(in crate::procrun) envs: Vec<KeyValue>,
    /// Its working directory, absolute.
    #[prost(string, tag = "4")]
    pub(in crate::procrun) directory: String,
}

/// A signal to send to a process that was launched.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Signal {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(int32, tag = "2")]
    pub(super) number: i32,
    #[prost(enumeration = "SignalTarget", tag = "3")]
    pub(super) target: i32,
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(in crate::procrun) enum SignalTarget {
    /// The process alone.
    Process = 0,
    /// The process group that it leads.
    Group = 1,
}

/// The end of the container: SIGKILL to every process, and no new ones.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct KillAll {}

/// What a monitor tells.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MonitorReply {
    #[prost(oneof = "MonitorEvent", tags = "1, 2, 3, 4")]
    pub(super) event: Option<MonitorEvent>,
}

/// One thing that happened.
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

/// A process that runs.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Launched {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
    /// Since when, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) at: i64,
}

/// A process that could not be launched.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Refused {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    /// The error of the operating system.
    #[prost(string, tag = "2")]
    pub(super) reason: String,
}

/// A process that has ended, and all below it too where it was the container.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Exited {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    /// Its exit code, or 128 and the signal that ended it.
    #[prost(int32, tag = "2")]
    pub(super) code: i32,
    /// When, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) at: i64,
}

/// A descendant that had lost its parent and left the process groups of those that were launched, and has ended.
#[derive(Clone, PartialEq, Message)]
pub(in crate::procrun) struct Orphan {
    #[prost(int32, tag = "1")]
    pub(in crate::procrun) pid: i32,
    /// What the kernel calls its program.
    #[prost(string, tag = "2")]
    pub(in crate::procrun) program: String,
    /// Its exit code, or 128 and the signal that ended it.
    #[prost(int32, tag = "3")]
    pub(in crate::procrun) code: i32,
}

/// Messages that arrive in pieces.
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

/// A message behind its length.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + length);
    frame.extend(u32::try_from(length).expect("a message of gRPC is shorter").to_be_bytes());
    message.encode(&mut frame).expect("a vector takes any length");
    frame
}

/// Sends the beginning of a frame, and descriptors with its first byte; returns how much was sent.
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
    /// Reads what is there; returns the descriptors that came with it, or `None` at the end.
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

    /// The next message that is whole.
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
