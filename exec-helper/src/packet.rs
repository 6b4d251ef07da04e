//! The socket between probeshim and the helper: one message in each packet of a `SOCK_SEQPACKET`
//! socket, with descriptors as ancillary data.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use prost::Message;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use zeroize::{Zeroize as _, Zeroizing};

use crate::protocol::LAUNCH_DESCRIPTORS;

/// Maximum length of a packet, in bytes. The environment and the arguments of a command make up
/// most of it.
pub const MAX_PACKET_BYTES: usize = 192 << 10;

/// Maximum length of the environment of a command, in bytes. It leaves room for arguments and
/// seccomp filters.
pub const MAX_ENVIRONMENT_BYTES: usize = 128 << 10;

/// Size of the buffer of each end of the socket for sent packets, in bytes. It has room for a
/// packet with its overhead in the kernel.
const SEND_BUFFER_BYTES: usize = 2 * MAX_PACKET_BYTES;

/// Creates the two ends of the socket between probeshim and the helper.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for socket in [&one, &other] {
        // Without CAP_NET_ADMIN, it remains the system's default, which is enough unless it was
        // lowered.
        let _ = set_socket_send_buffer_size_force(socket, SEND_BUFFER_BYTES);
    }
    Ok((one, other))
}

/// Sends a message with descriptors. Fails with `InvalidInput` if the message is too long.
pub fn send(
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
pub fn receive<M: Message + Default>(
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
