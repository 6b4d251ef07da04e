//! Exchange of requests and events with a monitor over one socket.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::process::{LaunchError, Start};
use super::protocol::{Exited, MessageReader, MonitorEvent, MonitorReply, Orphan, send};

/// A request that is to be sent, with its descriptors.
#[derive(Debug)]
pub(super) struct OutgoingFrame {
    pub(super) frame: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Callers that wait for the launch or the exit of a process, by the process's number.
#[derive(Debug, Default)]
pub(super) struct PendingReplies {
    pub(super) launches: HashMap<u64, oneshot::Sender<Result<Start, LaunchError>>>,
    pub(super) exits: HashMap<u64, oneshot::Sender<Exited>>,
}

impl PendingReplies {
    fn tell(&mut self, event: MonitorEvent, orphan: &impl Fn(Orphan)) {
        match event {
            MonitorEvent::Launched(launched) => {
                if let Some(waiting) = self.launches.remove(&launched.process) {
                    let _ = waiting.send(Ok(Start { pid: launched.pid, at: launched.at }));
                }
            }
            MonitorEvent::Refused(refused) => {
                self.exits.remove(&refused.process);
                if let Some(waiting) = self.launches.remove(&refused.process) {
                    let _ = waiting.send(Err(LaunchError::Refused(refused.reason)));
                }
            }
            MonitorEvent::Exited(exited) => {
                if let Some(waiting) = self.exits.remove(&exited.process) {
                    let _ = waiting.send(exited);
                }
            }
            MonitorEvent::Orphan(left) => orphan(left),
        }
    }

    pub(super) fn forget(&mut self, number: u64) {
        self.launches.remove(&number);
        self.exits.remove(&number);
    }

    pub(super) fn forget_all(&mut self) {
        self.launches.clear();
        self.exits.clear();
    }
}

/// Sends requests and dispatches events until the monitor has closed its end. A failed request does
/// not end the exchange, because the monitor's last event may still arrive. If `ending` is
/// cancelled, no more requests are sent, and the monitor ends.
pub(super) async fn run_io(
    socket: &UnixStream,
    outgoing: mpsc::UnboundedReceiver<OutgoingFrame>,
    awaited: &Mutex<PendingReplies>,
    orphan: impl Fn(Orphan),
    ending: &CancellationToken,
) {
    let ordering = async {
        tokio::select! {
            () = write(socket, outgoing) => {}
            () = ending.cancelled() => {}
        }
        // The monitor ends when it reads the end of the requests.
        let _ = SockRef::from(socket).shutdown(Shutdown::Write);
    };
    let mut reading = std::pin::pin!(read(socket, awaited, orphan));
    tokio::select! {
        () = &mut reading => {}
        () = ordering => reading.await,
    }
}

/// Sends requests until all senders are dropped or the socket fails.
async fn write(socket: &UnixStream, mut orders: mpsc::UnboundedReceiver<OutgoingFrame>) {
    while let Some(OutgoingFrame { frame, descriptors }) = orders.recv().await {
        let first = socket.async_io(Interest::WRITABLE, || send(socket.as_fd(), &frame, &descriptors)).await;
        let Ok(sent) = first else { return };
        let mut rest = &frame[sent..];
        while !rest.is_empty() {
            let more = socket.async_io(Interest::WRITABLE, || send(socket.as_fd(), rest, &[])).await;
            let Ok(sent) = more else { return };
            rest = &rest[sent..];
        }
    }
}

/// Dispatches events until the monitor has closed its end.
async fn read(socket: &UnixStream, awaited: &Mutex<PendingReplies>, orphan: impl Fn(Orphan)) {
    let mut inbox = MessageReader::default();
    loop {
        let received = socket.async_io(Interest::READABLE, || inbox.receive(socket.as_fd())).await;
        let Ok(Some(_)) = received else { return };
        loop {
            match inbox.next::<MonitorReply>() {
                Ok(Some(MonitorReply { event: Some(event) })) => {
                    awaited.lock().unwrap_or_else(PoisonError::into_inner).tell(event, &orphan);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The peer does not speak the protocol, so it is not a monitor.
                Err(_) => return,
            }
        }
    }
}
