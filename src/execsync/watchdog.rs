//! Watchdog for stuck execs: overdue and unanswered ExecSyncs, leaked processes and zombies.

use crate::object_ref::{ContainerRef, PodRef};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::evidence::{ProcessInfo, SampleRequest, ZombieReport, Zombies};
use super::tracker::{ExecInFlight, ExecSession, Tracker, UnansweredExec};

/// Delay after which a late response or exit counts as stuck. A runtime starts the timer of an
/// `ExecSync` only once the command runs, and the start can take a second or two on a busy node.
const MARGIN: Duration = Duration::from_secs(5);

/// Time from the end of a call to the first search for its leaked processes, and interval between
/// searches.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of sessions of a container in which leaked processes are searched.
const SESSIONS: usize = 256;

/// Maximum number of execs of a container to which new zombies are attributed: the latest.
const EXECS: usize = 256;

/// The stuck execs, by kind and number.
pub type Stuck = BTreeMap<(StuckKind, u64), StuckExec>;

/// The kind of a stuck exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StuckKind {
    /// A call that is unanswered five seconds after its timeout. The number is that of the call.
    Overdue,
    /// A call that is unanswered five seconds after its command exited. The number is that of the
    /// call.
    Unanswered,
    /// A call that is unanswered five seconds after its command was killed at its timeout. The
    /// number is that of the call.
    TimedOut,
    /// A process that an `ExecSync` started and that still exists five seconds after the call
    /// ended. The number is the pid.
    Leaked,
    /// The zombies that the `ExecSync`s of a container left. The number is that of the first call
    /// to which they were attributed.
    Zombies,
}

/// An exec that is stuck.
#[derive(Clone, Debug, PartialEq)]
pub struct StuckExec {
    /// The kind.
    pub kind: StuckKind,
    /// The number of the call; for zombies, of the last one.
    pub call: u64,
    /// Time of the timeout of an overdue call, of the command's end for an unanswered call, of the
    /// end of the call for a leaked process, or of the first count of zombies.
    pub since: Instant,
    /// The full id of the container.
    pub container_id: Arc<str>,
    /// The pod, as far as it is known.
    pub pod: Option<Arc<PodRef>>,
    /// The container.
    pub container: Option<Arc<ContainerRef>>,
    /// The pid of the command, of the leaked process or of the zombies' parent, if it is known.
    pub pid: Option<u32>,
    /// The command of the call, the command line of the leaked process, or the name of the youngest
    /// zombie.
    pub command: Vec<String>,
    /// The zombies, if they are the problem.
    pub zombies: Option<Zombies>,
}

/// Finds stuck execs; checks every second.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    stuck: Stuck,
    /// Containers in which execs have ended.
    containers: HashMap<Arc<str>, WatchedContainer>,
    pub(super) sample_requests: Vec<SampleRequest>,
}

/// A container in which leaked processes and zombies are searched.
#[derive(Debug)]
struct WatchedContainer {
    /// Sessions in which leaked processes are searched.
    sessions: VecDeque<ExecSession>,
    pod: Option<Arc<PodRef>>,
    container: Option<Arc<ContainerRef>>,
    /// Pids and calls of the latest execs.
    execs: VecDeque<(u32, u64)>,
    /// Number of the entry of the container's zombies in the stuck execs.
    zombies: Option<u64>,
    /// Whether zombies were found that another search has to confirm.
    has_unconfirmed_zombies: bool,
    next: Instant,
}

impl StuckKind {
    /// All kinds.
    pub(super) const ALL: [Self; 5] =
        [Self::Overdue, Self::Unanswered, Self::TimedOut, Self::Leaked, Self::Zombies];

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overdue => "overdue",
            Self::Unanswered => "unanswered",
            Self::TimedOut => "timed-out",
            Self::Leaked => "leaked",
            Self::Zombies => "zombies",
        }
    }

    /// Returns whether processes are stuck, not a call.
    fn is_process(self) -> bool {
        matches!(self, Self::Leaked | Self::Zombies)
    }
}

impl Watchdog {
    pub(super) fn stuck(&self) -> &Stuck {
        &self.stuck
    }

    /// Watches the session of a call that has ended.
    pub(super) fn watch(&mut self, session: ExecSession) {
        let looking = self.containers.entry(session.container.clone()).or_insert_with(|| WatchedContainer {
            sessions: VecDeque::new(),
            pod: session.call.pod.clone(),
            container: session.call.container.clone(),
            execs: VecDeque::new(),
            zombies: None,
            has_unconfirmed_zombies: false,
            next: session.ended_at + CHECK_INTERVAL,
        });
        if looking.execs.len() == EXECS {
            looking.execs.pop_front();
        }
        looking.execs.push_back((session.pid, session.call.id));
        looking.sessions.push_back(session);
        if looking.sessions.len() > SESSIONS {
            // A session without a known leaked process goes first.
            let is_left = |session: &ExecSession| {
                self.stuck
                    .values()
                    .any(|stuck| stuck.kind == StuckKind::Leaked && stuck.call == session.call.id)
            };
            let index = looking.sessions.iter().position(|session| !is_left(session)).unwrap_or(0);
            looking.sessions.remove(index);
        }
    }

    /// Finds overdue and unanswered calls, and requests the processes of sessions.
    pub(super) fn check(&mut self, tracker: &Tracker, now: Instant) {
        let before = mem::take(&mut self.stuck);
        for (container, execs) in tracker.containers() {
            for call in &execs.calls {
                if let Some(overdue) = overdue(call, container, now) {
                    self.stuck.insert((StuckKind::Overdue, call.id), overdue);
                }
                // The earlier finding is kept: a later exec in the container may make the match
                // ambiguous.
                for kind in [StuckKind::Unanswered, StuckKind::TimedOut] {
                    if let Some(known) = before.get(&(kind, call.id)).filter(|_| !call.has_ended()) {
                        self.stuck.insert((kind, call.id), known.clone());
                    }
                }
            }
            for UnansweredExec { call, pid, exited, has_timed_out } in execs.exited_unanswered() {
                if now - exited >= MARGIN {
                    let kind = if has_timed_out { StuckKind::TimedOut } else { StuckKind::Unanswered };
                    let found = StuckExec { pid, ..StuckExec::for_call(kind, call, container, exited) };
                    self.stuck.entry((kind, call.id)).or_insert(found);
                }
            }
        }
        // The end of the command says more than the timeout.
        let known: HashSet<u64> =
            self.stuck.keys().filter(|key| key.0 == StuckKind::TimedOut).map(|key| key.1).collect();
        self.stuck.retain(|(kind, call), _| *kind != StuckKind::Overdue || !known.contains(call));
        self.stuck.extend(before.into_iter().filter(|((kind, _), _)| kind.is_process()));
        for (container, looking) in &mut self.containers {
            if now < looking.next {
                continue;
            }
            looking.next = now + CHECK_INTERVAL;
            let is_due = |session: &&ExecSession| now - session.ended_at >= MARGIN;
            let sessions: HashSet<u32> =
                looking.sessions.iter().filter(is_due).map(|session| session.pid).collect();
            if !sessions.is_empty() || looking.zombies.is_some() || looking.has_unconfirmed_zombies {
                let (container, execs) = (container.clone(), looking.execs.iter().map(|(pid, _)| *pid));
                let execs = execs.collect();
                self.sample_requests.push(SampleRequest::SessionProcesses { container, sessions, execs });
            }
        }
    }

    /// Replaces the leaked processes of a container by those that the sampler found.
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
                zombies: None,
            };
            self.stuck.insert((StuckKind::Leaked, process.pid.into()), left);
        }
        let alive: HashSet<u32> = processes.iter().map(|process| process.session).collect();
        looking.sessions.retain(|session| alive.contains(&session.pid) || now - session.ended_at < MARGIN);
    }

    /// Replaces the zombies of a container by those that the sampler counted.
    pub(super) fn on_zombies(&mut self, container: &Arc<str>, report: ZombieReport, now: Instant) {
        let Some(looking) = self.containers.get_mut(container) else { return };
        looking.has_unconfirmed_zombies = matches!(report, ZombieReport::Unconfirmed(_));
        let zombies = match report {
            ZombieReport::Counted(zombies) | ZombieReport::Unconfirmed(zombies) => zombies,
            ZombieReport::Unchanged | ZombieReport::Unknown => return,
        };
        let key = |number| (StuckKind::Zombies, number);
        let known =
            looking.zombies.take().and_then(|number| Some((number, self.stuck.remove(&key(number))?)));
        let Some(zombies) = zombies else { return };
        let exec = looking.execs.iter().rev().find(|(pid, _)| *pid == zombies.session);
        let call = exec.map(|(_, call)| *call).or(known.as_ref().map(|(_, known)| known.call));
        let Some(call) = call else { return };
        let (number, since) = known.map_or((call, now), |(number, known)| (number, known.since));
        let stuck = StuckExec {
            kind: StuckKind::Zombies,
            call,
            since,
            container_id: container.clone(),
            pod: looking.pod.clone(),
            container: looking.container.clone(),
            pid: Some(zombies.parent.pid),
            command: vec![zombies.name.clone()],
            zombies: Some(zombies),
        };
        looking.zombies = Some(number);
        self.stuck.insert(key(number), stuck);
    }

    /// Called when the processes of a container are gone.
    pub(super) fn container_gone(&mut self, container: &str) {
        self.containers.remove(container);
        self.stuck.retain(|(kind, _), stuck| !kind.is_process() || *stuck.container_id != *container);
    }
}

fn overdue(call: &ExecInFlight, container: &Arc<str>, now: Instant) -> Option<StuckExec> {
    // A timeout beyond the range of the clock is never over.
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
            zombies: None,
        }
    }

    /// Returns the number of calls or processes.
    pub(super) fn count(&self) -> u32 {
        self.zombies.as_ref().map_or(1, |zombies| zombies.count)
    }

    /// Returns whether the number of zombies has reached another power of two. Each is an event.
    #[must_use]
    pub fn has_doubled_since(&self, before: &Self) -> bool {
        self.count().ilog2() > before.count().ilog2()
    }
}
