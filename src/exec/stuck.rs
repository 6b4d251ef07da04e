//! The wedge watchdog: `ExecSync`s that should have been answered, and processes that should be gone.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::evidence::{Ask, Process};
use super::tracker::{InFlight, Session, Tracker};
use crate::tap::{Container, Pod};

/// By how much something may be late before it is taken for stuck. A runtime starts the timer of an `ExecSync` only once the command runs, and
/// starting it can take a second or two on a busy node.
const MARGIN: Duration = Duration::from_secs(5);

/// How long after a call its container is looked at for what it left, and how often while something is.
const LOOK: Duration = Duration::from_secs(5);

/// Sessions of one container that are looked for.
const SESSIONS: usize = 256;

/// What is stuck, in the order in which it began.
pub type Stuck = BTreeMap<(Kind, u64), StuckExec>;

/// In which way something is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A call outlives its timeout by more than five seconds. The number is the call's.
    Overdue,
    /// A command exited more than five seconds ago, and its call has not been answered. The number is the call's.
    Unanswered,
    /// A process that an `ExecSync` started is still there, though the call ended more than five seconds ago. The number is the process's.
    Left,
}

/// Something that is stuck.
#[derive(Clone, Debug, PartialEq)]
pub struct StuckExec {
    /// In which way.
    pub kind: Kind,
    /// The call.
    pub call: u64,
    /// Since when: when its timeout was over, its command had exited, or it ended.
    pub since: Instant,
    /// The pod, as far as it is known.
    pub pod: Option<Arc<Pod>>,
    /// The container.
    pub container: Option<Arc<Container>>,
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
    places: HashMap<Arc<str>, Looking>,
    pub(super) asks: Vec<Ask>,
}

/// A container that is looked at.
#[derive(Debug)]
struct Looking {
    sessions: VecDeque<Session>,
    next: Instant,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overdue => "overdue",
            Self::Unanswered => "unanswered",
            Self::Left => "left",
        }
    }
}

impl Watchdog {
    pub(super) fn stuck(&self) -> &Stuck {
        &self.stuck
    }

    /// A call is over: what it executed should be, too.
    pub(super) fn watch(&mut self, session: Session) {
        let looking = self
            .places
            .entry(session.container.clone())
            .or_insert_with(|| Looking { sessions: VecDeque::new(), next: session.ended + LOOK });
        looking.sessions.push_back(session);
        if looking.sessions.len() > SESSIONS {
            looking.sessions.pop_front();
        }
    }

    /// Looks at the calls that go on, and asks about processes.
    pub(super) fn tick(&mut self, tracker: &Tracker, now: Instant) {
        let mut stuck: Stuck = mem::take(&mut self.stuck);
        stuck.retain(|(kind, _), _| *kind == Kind::Left);
        for (_, scene) in tracker.scenes() {
            let overdue = scene.calls.iter().filter_map(|call| overdue(call, now));
            stuck.extend(overdue.map(|call| ((Kind::Overdue, call.call), call)));
            for (call, life, exited) in scene.exited_unanswered() {
                if now - exited >= MARGIN {
                    let found = StuckExec { pid: life.pid, ..StuckExec::of(Kind::Unanswered, call, exited) };
                    stuck.insert((Kind::Unanswered, call.id), found);
                }
            }
        }
        self.stuck = stuck;
        for (container, looking) in &mut self.places {
            if now < looking.next {
                continue;
            }
            looking.next = now + LOOK;
            let is_due = |session: &&Session| now - session.ended >= MARGIN;
            let sessions: HashSet<u32> =
                looking.sessions.iter().filter(is_due).map(|session| session.pid).collect();
            if !sessions.is_empty() {
                self.asks.push(Ask::Left { container: container.clone(), sessions });
            }
        }
    }

    /// What is left of the sessions that were asked about.
    pub(super) fn left(&mut self, container: &Arc<str>, processes: Vec<Process>, now: Instant) {
        let Some(looking) = self.places.get_mut(container) else { return };
        let before = |process: &(Kind, u64)| process.0 == Kind::Left;
        let known: Vec<_> = self.stuck.iter().filter(|(key, _)| before(key)).map(|(key, _)| *key).collect();
        for key in known {
            let is_here = self
                .stuck
                .get(&key)
                .is_some_and(|stuck| looking.sessions.iter().any(|session| session.call.id == stuck.call));
            if is_here {
                self.stuck.remove(&key);
            }
        }
        for process in &processes {
            let session = looking.sessions.iter().rev().find(|session| session.pid == process.session);
            let Some(Session { call, ended, .. }) = session else { continue };
            let left = StuckExec {
                kind: Kind::Left,
                call: call.id,
                since: *ended,
                pod: call.pod.clone(),
                container: call.container.clone(),
                pid: Some(process.pid),
                command: process.command.clone(),
            };
            self.stuck.insert((Kind::Left, process.pid.into()), left);
        }
        let alive: HashSet<u32> = processes.iter().map(|process| process.session).collect();
        looking.sessions.retain(|session| alive.contains(&session.pid) || now - session.ended < MARGIN);
        if looking.sessions.is_empty() {
            self.places.remove(container);
        }
    }

    /// A container has no processes any more.
    pub(super) fn gone(&mut self, container: &str) {
        let Some(looking) = self.places.remove(container) else { return };
        let is_here =
            |stuck: &StuckExec| looking.sessions.iter().any(|session| session.call.id == stuck.call);
        self.stuck.retain(|(kind, _), stuck| *kind != Kind::Left || !is_here(stuck));
    }
}

fn overdue(call: &InFlight, now: Instant) -> Option<StuckExec> {
    let due = call.since() + call.exec.timeout()?;
    (!call.has_ended() && now >= due + MARGIN).then(|| StuckExec::of(Kind::Overdue, call, due))
}

impl StuckExec {
    fn of(kind: Kind, call: &InFlight, since: Instant) -> Self {
        let place = call.place();
        Self {
            kind,
            call: call.id,
            since,
            pod: place.pod.clone(),
            container: place.container.clone(),
            pid: None,
            command: call.exec.command.clone(),
        }
    }
}
