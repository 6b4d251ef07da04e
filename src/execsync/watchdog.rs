//! The wedge watchdog: `ExecSync`s that should have been answered, and processes that should be gone.

use crate::object_ref::{ContainerRef, PodRef};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::evidence::{ProcessInfo, SampleRequest};
use super::tracker::{ExecInFlight, ExecSession, Tracker};

/// By how much something may be late before it is taken for stuck. A runtime starts the timer of an `ExecSync` only once the command runs,
/// and starting it can take a second or two on a busy node.
const MARGIN: Duration = Duration::from_secs(5);

/// How long after a call its container is looked at for what it left, and how often while something is.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Sessions of one container that are looked for.
const SESSIONS: usize = 256;

/// What is stuck, in the order in which it began.
pub type Stuck = BTreeMap<(StuckKind, u64), StuckExec>;

/// In which way something is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StuckKind {
    /// A call outlives its timeout by more than five seconds. The number is the call's.
    Overdue,
    /// A command exited more than five seconds ago, and its call has not been answered. The number is the call's.
    Unanswered,
    /// A process that an `ExecSync` started is still there, though the call ended more than five seconds ago. The number is the process's.
    Leaked,
}

/// Something that is stuck.
#[derive(Clone, Debug, PartialEq)]
pub struct StuckExec {
    /// In which way.
    pub kind: StuckKind,
    /// The call.
    pub call: u64,
    /// Since when: when its timeout was over, its command had exited, or it ended.
    pub since: Instant,
    /// The whole id of the container.
    pub container_id: Arc<str>,
    /// The pod, as far as it is known.
    pub pod: Option<Arc<PodRef>>,
    /// The container.
    pub container: Option<Arc<ContainerRef>>,
    /// The process, where it is known.
    pub pid: Option<u32>,
    /// What it executes, or what is left of it.
    pub command: Vec<String>,
}

/// Looks for what is stuck, every second.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    stuck: Stuck,
    /// What calls that have ended executed, by container.
    containers: HashMap<Arc<str>, WatchedContainer>,
    pub(super) sample_requests: Vec<SampleRequest>,
}

/// A container that is looked at.
#[derive(Debug)]
struct WatchedContainer {
    sessions: VecDeque<ExecSession>,
    next: Instant,
}

impl StuckKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overdue => "overdue",
            Self::Unanswered => "unanswered",
            Self::Leaked => "leaked",
        }
    }
}

impl Watchdog {
    pub(super) fn stuck(&self) -> &Stuck {
        &self.stuck
    }

    /// A call is over: what it executed should be, too.
    pub(super) fn watch(&mut self, session: ExecSession) {
        let looking = self.containers.entry(session.container.clone()).or_insert_with(|| WatchedContainer {
            sessions: VecDeque::new(),
            next: session.ended_at + CHECK_INTERVAL,
        });
        looking.sessions.push_back(session);
        if looking.sessions.len() > SESSIONS {
            // Rather one of which nothing is known to be left.
            let is_left = |session: &ExecSession| {
                self.stuck
                    .values()
                    .any(|stuck| stuck.kind == StuckKind::Leaked && stuck.call == session.call.id)
            };
            let index = looking.sessions.iter().position(|session| !is_left(session)).unwrap_or(0);
            looking.sessions.remove(index);
        }
    }

    /// Looks at the calls that go on, and asks about processes.
    pub(super) fn check(&mut self, tracker: &Tracker, now: Instant) {
        let before = mem::take(&mut self.stuck);
        for (container, execs) in tracker.containers() {
            for call in &execs.calls {
                if let Some(overdue) = overdue(call, container, now) {
                    self.stuck.insert((StuckKind::Overdue, call.id), overdue);
                }
                // What its command was is known better now than it will be: others may come and go in the container.
                if let Some(known) =
                    before.get(&(StuckKind::Unanswered, call.id)).filter(|_| !call.has_ended())
                {
                    self.stuck.insert((StuckKind::Unanswered, call.id), known.clone());
                }
            }
            for (call, pid, exited) in execs.exited_unanswered() {
                if now - exited >= MARGIN {
                    let found = StuckExec {
                        pid,
                        ..StuckExec::for_call(StuckKind::Unanswered, call, container, exited)
                    };
                    self.stuck.entry((StuckKind::Unanswered, call.id)).or_insert(found);
                }
            }
        }
        self.stuck.extend(before.into_iter().filter(|((kind, _), _)| *kind == StuckKind::Leaked));
        for (container, looking) in &mut self.containers {
            if now < looking.next {
                continue;
            }
            looking.next = now + CHECK_INTERVAL;
            let is_due = |session: &&ExecSession| now - session.ended_at >= MARGIN;
            let sessions: HashSet<u32> =
                looking.sessions.iter().filter(is_due).map(|session| session.pid).collect();
            if !sessions.is_empty() {
                self.sample_requests
                    .push(SampleRequest::SessionProcesses { container: container.clone(), sessions });
            }
        }
    }

    /// What is left of the sessions that were asked about.
    pub(super) fn on_leftovers(&mut self, container: &Arc<str>, processes: &[ProcessInfo], now: Instant) {
        let is_left_here =
            |stuck: &StuckExec| stuck.kind == StuckKind::Leaked && stuck.container_id == *container;
        self.stuck.retain(|_, stuck| !is_left_here(stuck));
        let Some(looking) = self.containers.get_mut(container) else { return };
        for process in processes {
            let session = looking.sessions.iter().rev().find(|session| session.pid == process.session);
            let Some(ExecSession { call, ended_at, .. }) = session else { continue };
            let left = StuckExec {
                kind: StuckKind::Leaked,
                call: call.id,
                since: *ended_at,
                container_id: container.clone(),
                pod: call.pod.clone(),
                container: call.container.clone(),
                pid: Some(process.pid),
                command: process.command.clone(),
            };
            self.stuck.insert((StuckKind::Leaked, process.pid.into()), left);
        }
        let alive: HashSet<u32> = processes.iter().map(|process| process.session).collect();
        looking.sessions.retain(|session| alive.contains(&session.pid) || now - session.ended_at < MARGIN);
        if looking.sessions.is_empty() {
            self.containers.remove(container);
        }
    }

    /// A container has no processes any more.
    pub(super) fn container_gone(&mut self, container: &str) {
        self.containers.remove(container);
        self.stuck.retain(|(kind, _), stuck| *kind != StuckKind::Leaked || *stuck.container_id != *container);
    }
}

fn overdue(call: &ExecInFlight, container: &Arc<str>, now: Instant) -> Option<StuckExec> {
    // One that lasts for centuries is never over.
    let due = call.started_at().checked_add(call.exec.timeout()?)?;
    (!call.has_ended() && now >= due + MARGIN)
        .then(|| StuckExec::for_call(StuckKind::Overdue, call, container, due))
}

impl StuckExec {
    fn for_call(kind: StuckKind, call: &ExecInFlight, container: &Arc<str>, since: Instant) -> Self {
        let place = call.context();
        Self {
            kind,
            call: call.id,
            since,
            container_id: container.clone(),
            pod: place.pod.clone(),
            container: place.container.clone(),
            pid: None,
            command: call.exec.command.clone(),
        }
    }
}
