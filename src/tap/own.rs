//! `ExecSync`s that we make ourselves, seen as those of clients are: they are explained and recorded beside them, and what the runtime
//! executes for them is taken for nobody else's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::Queued;
use super::call::{Call, Container, Exec, ExecResult, Pod};
use super::decoder::{AskedExec, Ended, Sent, Sighting, Told};
use super::metrics::Metrics;
use crate::cri::{Code, MethodName};
use crate::relay::{Ending, Head, Numbers, Peer};

/// The path of what is called.
const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";

/// How many of them are told of each second; of more than any node has, the rest is only counted. No container runtime executes as many.
const MOST: u32 = 200;

/// Tells of our own `ExecSync`s. It waits for nobody: what there is no room for is dropped, and counted.
#[derive(Clone, Debug)]
pub struct OwnExecs {
    queue: mpsc::WeakSender<Queued>,
    numbers: Numbers,
    metrics: Metrics,
    peer: Arc<Peer>,
    second: Arc<Mutex<Second>>,
}

/// A second, and how many have been told of in it.
#[derive(Debug)]
struct Second {
    since: Instant,
    told: u32,
}

/// One that goes on.
#[derive(Debug)]
pub struct OwnExec {
    execs: OwnExecs,
    head: Arc<Head>,
    pod: Arc<Pod>,
    container: Arc<Container>,
    exec: Exec,
}

impl OwnExecs {
    pub(super) fn new(queue: mpsc::WeakSender<Queued>, numbers: Numbers, metrics: Metrics) -> Self {
        let peer = Peer {
            uid: rustix::process::geteuid().as_raw(),
            pid: i32::try_from(std::process::id()).ok(),
            program: Some(env!("CARGO_PKG_NAME").to_owned()),
        };
        let second = Second { since: Instant::now(), told: 0 };
        Self { queue, numbers, metrics, peer: Arc::new(peer), second: Arc::new(Mutex::new(second)) }
    }

    /// A command is about to be executed. `None` where there are too many to tell of each.
    #[must_use]
    pub fn begin(
        &self,
        pod: Arc<Pod>,
        container: Arc<Container>,
        command: &[String],
        timeout_seconds: i64,
    ) -> Option<OwnExec> {
        let now = Instant::now();
        if !self.second.lock().unwrap_or_else(PoisonError::into_inner).has_room(now) {
            self.metrics.own_untold();
            return None;
        }
        let head = Arc::new(Head {
            id: self.numbers.take(),
            peer: Some(self.peer.clone()),
            method: MethodName::of_path(EXEC_SYNC),
            start: SystemTime::now(),
            since: now,
            trace: None,
        });
        let exec = Exec { command: command.to_vec(), is_cut: false, timeout_seconds, result: None };
        self.tell(Sighting::Asked(Box::new(AskedExec {
            head: Arc::downgrade(&head),
            id: head.id,
            sent: Sent { whole: now, sent: now },
            container: Some(container.clone()),
            exec: Box::new(exec.clone()),
        })));
        Some(OwnExec { execs: self.clone(), head, pod, container, exec })
    }

    fn tell(&self, sighting: Sighting) {
        // There is nobody to tell once the tap has gone.
        let Some(queue) = self.queue.upgrade() else { return };
        if let Err(TrySendError::Full(queued) | TrySendError::Closed(queued)) =
            queue.try_send(Queued::Own(Box::new(sighting)))
        {
            self.metrics.dropped(&queued);
        }
    }
}

impl Second {
    fn has_room(&mut self, now: Instant) -> bool {
        if now - self.since >= Duration::from_secs(1) {
            *self = Self { since: now, told: 0 };
        }
        self.told += 1;
        self.told <= MOST
    }
}

impl OwnExec {
    /// It has ended with this code; if it went well, with this result.
    pub fn end(self, code: Code, result: Option<ExecResult>) {
        let Self { execs, head, pod, container, mut exec } = self;
        exec.result = result;
        let call = Call {
            duration: head.since.elapsed(),
            ending: Ending::Answered(Some(code)),
            pod: Some(pod),
            container: Some(container),
            exec: Some(Box::new(exec)),
            ..Call::begun(&head)
        };
        let sent = Some(Sent { whole: head.since, sent: head.since });
        let told = Told { since: head.since, facts: Vec::new() };
        execs.tell(Sighting::Ended(Box::new(Ended { head, sent, call, told })));
    }
}
