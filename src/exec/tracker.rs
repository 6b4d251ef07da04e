//! The ExecSyncs that go on, the commands that are executed for them, and what becomes of both.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::evidence::{Ask, Evidence};
use super::habit::{Habits, Key};
use super::identity::Identity;
use super::insight::{Fate, Insight, Record, Slow, Verdict};
use super::life::{Life, Moment, Now, SKEW};
use super::matching::{self, Claim, Match, Matching};
use super::phases::{Missing, Phases, Span};
use crate::containerd::{Stamped, TaskEvent};
use crate::cri::Code;
use crate::relay::{Ending, Head};
use crate::tap::{AskedExec, Call, Container, Ended, Exec, Pod, Sent};

/// How long what belongs to a call may come after its end: events, and evidence.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the exit of a command is waited for after its call has been recorded without it.
const LATE: Duration = Duration::from_secs(600);

/// Executions that an ambiguous call names.
const CANDIDATES: usize = 8;

/// Commands of a container that are remembered at most, of those that nothing is known to have asked for.
const STRANGERS: usize = 64;

/// What the watch runs on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Calls that take longer than this are slow.
    pub slow: Duration,
    /// Whether of commands only the program is told, not its arguments.
    pub redact_commands: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { slow: Duration::from_secs(1), redact_commands: false }
    }
}

/// Where a call executes, as far as the world knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) container: Option<Arc<Container>>,
    pub(super) pod: Option<Arc<Pod>>,
    /// What specs say of the call.
    pub(super) identity: Identity,
}

/// All ExecSyncs of the node. Decides; what it wants to be done is in `asks`, what it has found out in `records`.
#[derive(Debug)]
pub(super) struct Tracker {
    settings: Settings,
    /// Whether the runtime tells of what it executes; `None` before it has answered.
    pub(super) tells_execs: Option<bool>,
    /// Whether events may pass unheard: until the runtime is watched, and again whenever it has gone.
    is_interrupted: bool,
    scenes: HashMap<Arc<str>, Scene>,
    habits: Habits,
    pub(super) asks: Vec<Ask>,
    pub(super) records: Vec<Record>,
    /// Commands that were executed for calls that have been recorded: what they left behind is in their sessions.
    pub(super) sessions: Vec<Session>,
}

/// What a call executed, once it is over.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) container: Arc<str>,
    pub(super) call: Arc<Call>,
    /// The first process, after which the kernel names the session.
    pub(super) pid: u32,
    /// When the call ended.
    pub(super) ended: Instant,
}

/// What goes on in one container.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) calls: Vec<InFlight>,
    /// Those that no call is known to have had.
    pub(super) lives: Vec<Life>,
    /// Calls that were recorded before their commands had ended.
    pub(super) late: Vec<LateCall>,
    /// When the container exited, if it has: what was executed in it goes with it.
    closed: Option<Instant>,
}

/// A call that is not recorded yet.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: u64,
    head: Weak<Head>,
    since: Instant,
    whole: Duration,
    sent: Duration,
    pub(super) exec: Arc<Exec>,
    place: Place,
    key: Key,
    /// The runtime's events were interrupted while it lasted.
    is_blind: bool,
    end: Option<Concluding>,
}

/// What is known of a call that has ended.
#[derive(Debug)]
struct Concluding {
    ended: Box<Ended>,
    end: matching::End,
    verdict: Verdict,
    /// Until when what is still missing may come.
    until: Instant,
    evidence: Option<Arc<Evidence>>,
    awaits_evidence: bool,
}

/// A call that was recorded while its command went on, or before its end was heard of.
#[derive(Debug)]
pub(super) struct LateCall {
    pub(super) record: Record,
    pub(super) life: Life,
    pub(super) ended: Instant,
    span: Span,
    has_failed: bool,
}

impl Tracker {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            tells_execs: None,
            is_interrupted: true,
            scenes: HashMap::new(),
            habits: Habits::default(),
            asks: Vec::new(),
            records: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Each container in which something goes on.
    pub(super) fn scenes(&self) -> impl Iterator<Item = (&Arc<str>, &Scene)> {
        self.scenes.iter()
    }

    /// Calls that have been asked and not answered: in a container, and on the node.
    fn in_flight(&self, container: &str) -> (usize, usize) {
        let here = self.scenes.get(container).map_or(0, Scene::unanswered);
        (here, self.scenes.values().map(Scene::unanswered).sum())
    }

    /// Calls that have been asked and not answered: on the node, and in the container that has most of them.
    pub(super) fn in_flight_now(&self) -> (usize, usize) {
        let counts = self.scenes.values().map(Scene::unanswered);
        counts.fold((0, 0), |(all, most), count| (all + count, most.max(count)))
    }

    /// A call is on its way. `container` is the whole id of where it executes.
    pub(super) fn asked(&mut self, container: &Arc<str>, asked: AskedExec, place: Place) {
        let Some(head) = asked.head.upgrade() else { return };
        let exec = Arc::new(*asked.exec);
        let call = self.begin(container, &head, asked.head, asked.sent, exec, place);
        self.asks.push(Ask::Baseline { call: asked.id, container: container.clone() });
        self.scenes.entry(container.clone()).or_default().calls.push(call);
    }

    fn begin(
        &mut self,
        container: &Arc<str>,
        head: &Head,
        weak: Weak<Head>,
        sent: Sent,
        exec: Arc<Exec>,
        mut place: Place,
    ) -> InFlight {
        let key = Key::new(place.habitat(container), &exec.command, exec.timeout_seconds);
        let learned = self.habits.begun(&key, head.since);
        if place.identity == Identity::Unknown {
            place.identity = learned;
        }
        let after = |at: Instant| at.saturating_duration_since(head.since);
        InFlight {
            id: head.id,
            head: weak,
            since: head.since,
            whole: after(sent.whole),
            sent: after(sent.sent),
            exec,
            place,
            key,
            is_blind: self.is_interrupted,
            end: None,
        }
    }

    /// A call has ended. One that was not seen when it was asked is taken up now.
    pub(super) fn ended(&mut self, container: &Arc<str>, ended: Box<Ended>, place: Place, now: Instant) {
        let id = ended.call.id;
        let is_known = self.scenes.get(container).is_some_and(|scene| scene.call(id).is_some());
        if !is_known {
            let Some(exec) = &ended.call.exec else { return };
            let sent = ended.sent.unwrap_or(Sent { whole: ended.head.since, sent: ended.head.since });
            let exec = Arc::new((**exec).clone());
            let call = self.begin(container, &ended.head, Arc::downgrade(&ended.head), sent, exec, place);
            self.scenes.entry(container.clone()).or_default().calls.push(call);
        }
        let in_flight = self.in_flight(container);
        let Some(call) = self.scenes.get_mut(container).and_then(|scene| scene.call_mut(id)) else { return };
        let verdict = self.settings.verdict(&ended.call, self.habits.median(&call.key));
        let awaits_evidence = verdict != Verdict::Fine;
        if awaits_evidence {
            self.asks.push(Ask::Evidence { call: id, container: container.clone(), in_flight });
        } else {
            self.asks.push(Ask::Forget { call: id });
        }
        if ended.call.ending == Ending::Answered(Some(Code::OK)) {
            self.habits.took(&call.key, ended.call.duration);
        }
        let end = end_of(&ended.call, call.since);
        call.end =
            Some(Concluding { ended, end, verdict, until: now + PATIENCE, evidence: None, awaits_evidence });
        self.conclude(container, now);
    }

    /// Something has become of a command.
    pub(super) fn task(&mut self, stamped: &Stamped, now: Now) {
        let (TaskEvent::ExecAdded { exec, .. }
        | TaskEvent::ExecStarted { exec, .. }
        | TaskEvent::ExecExited { exec, .. }) = &stamped.event
        else {
            return;
        };
        let container: Arc<str> = stamped.event.container().into();
        let moment = Moment::new(stamped.at, now);
        let scene = self.scenes.entry(container.clone()).or_default();
        if let Some(late) = scene.late.iter_mut().find(|late| *late.life.exec == **exec) {
            late.life.take(&stamped.event, moment);
            if late.life.exited.is_some() {
                self.records.push(late.amended());
                scene.late.retain(|late| late.life.exited.is_none());
            }
            return;
        }
        scene.take(exec, &stamped.event, moment);
        if let TaskEvent::ExecStarted { pid, .. } = stamped.event
            && scene.calls.len() > 1
        {
            self.asks.push(Ask::Command { container: container.clone(), exec: exec.as_str().into(), pid });
        }
        self.conclude(&container, now.instant);
    }

    /// The container that a call executes in, if it is known: of its id the beginning may have been asked for before it was known, and the whole is
    /// known now.
    pub(super) fn container_of(&self, call: u64) -> Option<&Arc<str>> {
        let found = self.scenes.iter().find(|(_, scene)| scene.call(call).is_some());
        found.map(|(container, _)| container)
    }

    /// A container has exited: what was executed in it ends, and is heard of now or never.
    pub(super) fn closed(&mut self, container: &str, now: Instant) {
        if let Some(scene) = self.scenes.get_mut(container) {
            scene.closed.get_or_insert(now);
        }
    }

    /// The runtime tells of what it executes from now on, or never; `None` if it has gone, or its events have.
    pub(super) fn events(&mut self, tells_execs: Option<bool>, now: Instant) {
        self.is_interrupted = tells_execs != Some(true);
        self.tells_execs = tells_execs.or(self.tells_execs);
        if !self.is_interrupted {
            return;
        }
        let containers: Vec<Arc<str>> = self.scenes.keys().cloned().collect();
        for scene in self.scenes.values_mut() {
            for call in &mut scene.calls {
                call.is_blind = true;
            }
        }
        for container in containers {
            self.conclude(&container, now);
        }
    }

    /// What went on during a call.
    pub(super) fn evidence(&mut self, id: u64, evidence: Evidence, now: Instant) {
        let found = self.scenes.iter_mut().find_map(|(container, scene)| {
            let end = scene.call_mut(id)?.end.as_mut()?;
            Some((container.clone(), end))
        });
        let Some((container, end)) = found else { return };
        end.evidence = Some(Arc::new(evidence));
        end.awaits_evidence = false;
        self.conclude(&container, now);
    }

    /// The words of a command's process.
    pub(super) fn command(&mut self, container: &Arc<str>, exec: &str, words: Vec<String>) {
        let scene = self.scenes.get_mut(container);
        if let Some(life) = scene.and_then(|scene| scene.lives.iter_mut().find(|life| *life.exec == *exec)) {
            life.command = Some(words);
        }
    }

    /// Records what has been waited for long enough, and forgets what nobody waits for.
    pub(super) fn tick(&mut self, now: Instant) {
        let containers: Vec<Arc<str>> = self.scenes.keys().cloned().collect();
        for container in containers {
            self.conclude(&container, now);
        }
        for scene in self.scenes.values_mut() {
            // Its end has not been seen: there was too much to see.
            let lost = scene.calls.extract_if(.., |call| call.end.is_none() && call.head.strong_count() == 0);
            self.asks.extend(lost.map(|call| Ask::Forget { call: call.id }));
            scene.late.retain(|late| now - late.ended < LATE);
            scene.close(now);
        }
        self.scenes.retain(|_, scene| !scene.is_empty());
    }

    /// Records everything that has ended, as it is known.
    pub(super) fn give_up(&mut self, now: Instant) {
        self.tick(now + PATIENCE);
    }

    /// When [`tick`](Self::tick) has something to record.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let calls = self.scenes.values().flat_map(|scene| &scene.calls);
        calls.filter_map(|call| Some(call.end.as_ref()?.until)).min()
    }

    /// Records all calls of a container of which everything is known that will be.
    fn conclude(&mut self, container: &Arc<str>, now: Instant) {
        let Some(scene) = self.scenes.get_mut(container) else { return };
        while let Some((call, phases, life)) = scene.next_conclusion(self.tells_execs, now) {
            let ended = call.ended_at();
            let pids = scene.pids_of(&phases, life.as_ref());
            let (record, late) = call.into_record(phases, life);
            self.sessions.extend(pids.into_iter().map(|pid| Session {
                container: container.clone(),
                call: record.call.clone(),
                pid,
                ended,
            }));
            self.records.push(record);
            scene.late.extend(late);
            if scene.late.len() > STRANGERS {
                scene.late.remove(0);
            }
        }
        scene.forget_lives(now);
    }
}

impl Place {
    /// What a habit belongs to.
    fn habitat(&self, container: &Arc<str>) -> Arc<str> {
        let uid = self.pod.as_ref().and_then(|pod| pod.uid.as_deref());
        let name = self.container.as_ref().and_then(|container| container.name.as_deref());
        uid.zip(name).map_or_else(|| container.clone(), |(uid, name)| format!("{uid}/{name}").into())
    }
}

impl Settings {
    fn verdict(&self, call: &Call, median: Option<Duration>) -> Verdict {
        let exec = call.exec.as_deref();
        let exit_code = exec.and_then(|exec| exec.result).map(|result| result.exit_code);
        let timeout = exec.and_then(Exec::timeout);
        if call.ending != Ending::Answered(Some(Code::OK)) || exit_code.is_some_and(|code| code != 0) {
            Verdict::Failed
        } else if timeout.is_some_and(|timeout| call.duration > timeout / 2) {
            Verdict::Slow(Slow::HalfOfTimeout)
        } else if call.duration > self.slow {
            Verdict::Slow(Slow::Threshold)
        } else if median.is_some_and(|median| call.duration > median * 3) {
            Verdict::Slow(Slow::ThreeMedians)
        } else {
            Verdict::Fine
        }
    }
}

impl Scene {
    fn unanswered(&self) -> usize {
        self.calls.iter().filter(|call| call.end.is_none()).count()
    }

    fn call(&self, id: u64) -> Option<&InFlight> {
        self.calls.iter().find(|call| call.id == id)
    }

    fn call_mut(&mut self, id: u64) -> Option<&mut InFlight> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.lives.is_empty() && self.late.is_empty()
    }

    fn take(&mut self, exec: &str, event: &TaskEvent, moment: Moment) {
        let place = match self.lives.iter().position(|life| *life.exec == *exec) {
            Some(place) => place,
            None => {
                self.lives.push(Life::new(exec));
                self.lives.len() - 1
            }
        };
        self.lives[place].take(event, moment);
    }

    /// A call that can be recorded, with where its time went and the life of its command, if that is known.
    fn next_conclusion(
        &mut self,
        tells_execs: Option<bool>,
        now: Instant,
    ) -> Option<(InFlight, Phases, Option<Life>)> {
        let is_ready = |end: &Concluding| !end.awaits_evidence || now >= end.until;
        if !self.calls.iter().any(|call| call.end.as_ref().is_some_and(is_ready)) {
            return None;
        }
        let (place, phases, life) = {
            let claims: Vec<Claim<'_>> = self.calls.iter().map(InFlight::claim).collect();
            let early = Matching::new(&claims, &self.lives, false);
            // What has not been heard of by the time at which a call is given up will not be.
            let late = Matching::new(&claims, &self.lives, true);
            let ready =
                self.calls.iter().enumerate().filter(|(_, call)| call.end.as_ref().is_some_and(is_ready));
            ready
                .filter_map(|(place, call)| {
                    let end = call.end.as_ref()?;
                    let is_final = now >= end.until || call.is_blind;
                    let (phases, life) = match tells_execs {
                        Some(false) => (Phases::Unsupported(call.span(end).parts()), None),
                        _ if is_final => self.last_conclusion(place, &late, &early)?,
                        _ => self.early_conclusion(place, &early)?,
                    };
                    Some((place, phases, life))
                })
                .next()?
        };
        let life = life.map(|life| self.lives.remove(life));
        Some((self.calls.remove(place), phases, life))
    }

    /// Where the time of a call went, if nothing that is yet to come can tell more.
    fn early_conclusion(&self, place: usize, matching: &Matching<'_>) -> Option<(Phases, Option<usize>)> {
        let call = &self.calls[place];
        let end = call.end.as_ref()?;
        // While fewer executions have been heard of than there are calls, one that fits may be another's.
        let first = self.calls.iter().map(|call| call.since).min()?;
        let heard_of = self.lives.iter().filter(|life| {
            life.may_be_of_the_cri() && life.first().is_some_and(|moment| moment.at + SKEW >= first)
        });
        if heard_of.count() < self.calls.len() {
            return None;
        }
        match matching.find(place) {
            Match::Life(life) => {
                let phases = call.span(end).phases(&self.lives[life], end.is_refused());
                matches!(phases, Phases::Complete(_)).then_some((phases, Some(life)))
            }
            Match::OneOf(lives) if matching.is_settled(place) => {
                Some((self.ambiguous(call.span(end), &lives), None))
            }
            Match::OneOf(_) | Match::None => None,
        }
    }

    /// Where the time of a call went, as well as it is known. `late`: what may have been if every exit has been heard of; `early`: if one has not.
    fn last_conclusion(
        &self,
        place: usize,
        late: &Matching<'_>,
        early: &Matching<'_>,
    ) -> Option<(Phases, Option<usize>)> {
        let call = &self.calls[place];
        let end = call.end.as_ref()?;
        let span = call.span(end);
        let found = match late.find(place) {
            Match::None => early.find(place),
            found => found,
        };
        Some(match found {
            Match::Life(life) => (span.phases(&self.lives[life], end.is_refused()), Some(life)),
            Match::OneOf(lives) => (self.ambiguous(span, &lives), None),
            Match::None => {
                let what = if call.is_blind { Missing::Interrupted } else { Missing::Everything };
                (Phases::Missing { parts: span.parts(), what }, None)
            }
        })
    }

    fn ambiguous(&self, span: Span, lives: &[usize]) -> Phases {
        let candidates = lives.iter().take(CANDIDATES).map(|life| self.lives[*life].exec.clone()).collect();
        Phases::Ambiguous { parts: span.parts(), candidates, count: lives.len() }
    }

    /// The processes that a call may have started.
    fn pids_of(&self, phases: &Phases, life: Option<&Life>) -> Vec<u32> {
        match phases {
            Phases::Ambiguous { candidates, .. } => {
                let is_one = |life: &&Life| candidates.contains(&life.exec);
                self.lives.iter().filter(is_one).filter_map(|life| life.pid).collect()
            }
            _ => life.and_then(|life| life.pid).into_iter().collect(),
        }
    }

    /// The calls that have not been answered and whose commands are known to have exited: their process, if it is known which, and since when.
    pub(super) fn exited_unanswered(&self) -> Vec<(&InFlight, Option<u32>, Instant)> {
        let claims: Vec<Claim<'_>> = self.calls.iter().map(InFlight::claim).collect();
        let matching = Matching::new(&claims, &self.lives, true);
        let exited = |life: &usize| self.lives[*life].exited.map(|exited| exited.heard);
        let unanswered = self.calls.iter().enumerate().filter(|(_, call)| call.end.is_none());
        let found = unanswered.filter_map(|(place, call)| match matching.find(place) {
            Match::Life(life) => Some((call, self.lives[life].pid, exited(&life)?)),
            // Whichever it was.
            Match::OneOf(lives) => {
                let all: Option<Vec<Instant>> = lives.iter().map(exited).collect();
                Some((call, None, all?.into_iter().max()?))
            }
            Match::None => None,
        });
        found.collect()
    }

    /// Forgets commands that have ended and that no call can have had which goes on, or which may yet be seen to have been made: events may be
    /// faster than what the relay tells. Forgets the oldest of too many.
    fn forget_lives(&mut self, now: Instant) {
        let first = self.calls.iter().map(|call| call.since).min();
        self.lives.retain(|life| {
            let Some(last) = life.exited.or(life.first()) else { return false };
            let patience = if life.exited.is_some() { PATIENCE } else { LATE };
            first.is_some_and(|first| last.heard >= first) || now - last.heard < patience
        });
        while self.lives.len() > STRANGERS + self.calls.len() {
            // Rather what is over than what may be a call's that goes on.
            let place = self.lives.iter().position(|life| life.exited.is_some()).unwrap_or(0);
            self.lives.remove(place);
        }
    }

    /// Forgets what was executed in a container that exited a while ago.
    fn close(&mut self, now: Instant) {
        if self.closed.is_some_and(|closed| now - closed > 2 * PATIENCE) {
            self.lives.clear();
            self.late.clear();
        }
    }
}

impl Concluding {
    /// Whether the runtime answered with an error that is not a timeout: perhaps before anything was executed.
    fn is_refused(&self) -> bool {
        let is_answered = matches!(self.ended.call.ending, Ending::Answered(_));
        is_answered && !self.end.is_exited
    }
}

impl InFlight {
    fn claim(&self) -> Claim<'_> {
        Claim {
            sent: self.since + self.sent,
            command: &self.exec.command,
            end: self.end.as_ref().map(|end| end.end),
        }
    }

    fn span(&self, end: &Concluding) -> Span {
        Span { since: self.since, whole: self.whole, sent: self.sent, end: end.ended.call.duration }
    }

    /// When it had ended, of a call that has.
    fn ended_at(&self) -> Instant {
        self.end.as_ref().map_or(self.since, |end| end.end.at)
    }

    /// When it was asked.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it has been answered, or was given up.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Where it executes.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    fn into_record(self, phases: Phases, life: Option<Life>) -> (Record, Option<LateCall>) {
        let Some(end) = &self.end else { unreachable!("only calls that have ended are recorded") };
        let span = self.span(end);
        let has_failed = end.is_refused();
        let Some(end) = self.end else { unreachable!("only calls that have ended are recorded") };
        let Ended { head, mut call, .. } = *end.ended;
        call.container = self.place.container.or(call.container);
        call.pod = self.place.pod.or(call.pod);
        let fate = Fate::of(&call, life.as_ref(), span.since);
        let margin = self.exec.timeout().map(|timeout| microseconds(timeout) - microseconds(call.duration));
        let insight = Insight {
            identity: self.place.identity,
            phases,
            margin_us: margin,
            fate,
            verdict: end.verdict,
            evidence: end.evidence,
        };
        let record = Record {
            call: Arc::new(call),
            insight: Some(Arc::new(insight)),
            trace: head.trace.clone(),
            is_amended: false,
            ended: Some(span.since + span.end),
        };
        // Of a command that could not be started nothing more is heard.
        let is_late = |life: &Life| life.exited.is_none() && !(has_failed && life.started.is_none());
        let late = life.filter(is_late).map(|life| LateCall {
            record: record.clone().without_trace(),
            life,
            ended: span.since + span.end,
            span,
            has_failed,
        });
        (record, late)
    }
}

impl LateCall {
    /// The record with what has been heard of since.
    fn amended(&self) -> Record {
        let mut record = Record { is_amended: true, ..self.record.clone() };
        if let Some(insight) = &mut record.insight {
            let insight = Arc::make_mut(insight);
            insight.phases = self.span.phases(&self.life, self.has_failed);
            insight.fate = Fate::of(&record.call, Some(&self.life), self.span.since);
        }
        record
    }
}

impl Fate {
    /// What became of the command of a call that does not tell it itself.
    fn of(call: &Call, life: Option<&Life>, since: Instant) -> Option<Self> {
        if call.exec.as_ref().is_some_and(|exec| exec.result.is_some()) {
            return None;
        }
        let life = life?;
        let after = |moment: Option<Moment>| moment.map(|moment| moment.after(since));
        Some(Self { started: after(life.started), exited: after(life.exited), status: life.status })
    }
}

/// How a call ended, as far as that tells of its command.
fn end_of(call: &Call, since: Instant) -> matching::End {
    let exit_code = call.exec.as_ref().and_then(|exec| exec.result).map(|result| result.exit_code);
    let is_timeout = call.ending == Ending::Answered(Some(Code::DEADLINE_EXCEEDED));
    matching::End { at: since + call.duration, exit_code, is_exited: exit_code.is_some() || is_timeout }
}

fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
