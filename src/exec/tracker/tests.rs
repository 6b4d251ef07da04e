use std::time::SystemTime;

use super::*;
use crate::cri::MethodName;
use crate::exec::assessment::Slow;
use crate::exec::insight::Margin;
use crate::exec::phases::{Missing, Parts, Phases};
use crate::exec::stuck::{StuckKind, Watchdog};
use crate::tap::{self, ExecResult, Told};

const MS: Duration = Duration::from_millis(1);
const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

/// A tracker in front of one container, and a clock that stands where it is put.
struct Scenario {
    tracker: Tracker,
    start: SystemTime,
    since: Instant,
    container: Arc<str>,
    heads: HashMap<u64, Arc<Head>>,
    /// Where calls execute, as it is known when they end.
    place: Place,
}

impl Scenario {
    fn new() -> Self {
        let mut tracker = Tracker::new(Settings::default());
        let since = Instant::now();
        tracker.watched(true, since);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        Self {
            tracker,
            start,
            since,
            container: "c0ffee".into(),
            heads: HashMap::new(),
            place: Place::default(),
        }
    }

    fn at(&self, millis: u32) -> Instant {
        self.since + MS * millis
    }

    fn exec(timeout: i64, exit_code: Option<i32>) -> Exec {
        let result = exit_code.map(|exit_code| ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
        Exec { command: vec!["true".to_owned()], is_cut: false, timeout_seconds: timeout, result }
    }

    /// A call is asked.
    fn asked(&mut self, id: u64, at: u32, timeout: i64) {
        let head = Arc::new(Head {
            id,
            peer: None,
            method: MethodName::of_path("/runtime.v1.RuntimeService/ExecSync"),
            start: self.start + MS * at,
            since: self.at(at),
            trace: None,
        });
        let sent = Sent { whole: self.at(at), sent: self.at(at + 1) };
        let asked = AskedExec {
            head: Arc::downgrade(&head),
            id,
            sent,
            container: None,
            exec: Box::new(Self::exec(timeout, None)),
        };
        self.heads.insert(id, head);
        self.tracker.asked(&self.container.clone(), asked, Place::default());
    }

    /// It ends; with an exit code, or else at the runtime's timeout.
    fn ended(&mut self, id: u64, at: u32, timeout: i64, exit_code: Option<i32>) {
        let code = if exit_code.is_some() { Code::OK } else { Code::DEADLINE_EXCEEDED };
        self.ended_with(id, at, Self::exec(timeout, exit_code), Ending::Answered(Some(code)));
    }

    fn ended_with(&mut self, id: u64, at: u32, exec: Exec, ending: Ending) {
        let head = self.heads.remove(&id).unwrap();
        let duration = self.at(at) - head.since;
        let call = Call { duration, ending, exec: Some(Box::new(exec)), ..Call::begun(&head) };
        let told = Told { since: head.since, facts: Vec::new() };
        let ended = Ended { sent: None, call, told, head };
        let now = self.at(at);
        self.tracker.ended(&self.container.clone(), Box::new(ended), self.place.clone(), now);
    }

    fn event(&mut self, at: u32, event: TaskEvent) {
        self.event_heard(at, at, event);
    }

    fn event_heard(&mut self, at: u32, heard: u32, event: TaskEvent) {
        let stamped = Stamped { at: self.start + MS * at, event };
        let now = Now { instant: self.at(heard), wall: self.start + MS * heard };
        self.tracker.task(&stamped, now);
    }

    fn added(&mut self, exec: &str, at: u32) {
        let (container, exec) = (self.container.to_string(), exec.to_owned());
        self.event(at, TaskEvent::ExecAdded { container, exec });
    }

    fn started(&mut self, exec: &str, at: u32, pid: u32) {
        let (container, exec) = (self.container.to_string(), exec.to_owned());
        self.event(at, TaskEvent::ExecStarted { container, exec, pid });
    }

    fn exited(&mut self, exec: &str, at: u32, pid: u32, status: u32) {
        let (container, exec) = (self.container.to_string(), exec.to_owned());
        self.event(at, TaskEvent::ExecExited { container, exec, pid, status });
    }

    fn evidence(&mut self, id: u64, at: u32) {
        let now = self.at(at);
        self.tracker.evidence(id, Evidence::default(), now);
    }

    fn records(&mut self) -> Vec<(u64, Phases)> {
        let phases = |record: Record| (record.call.id, record.insight.unwrap().phases.clone());
        self.tracker.records.drain(..).map(phases).collect()
    }

    fn record(&mut self) -> Record {
        assert_eq!(self.tracker.records.len(), 1, "{:?}", self.tracker.records);
        self.tracker.records.remove(0)
    }
}

fn parts(phases: [u64; 6]) -> Parts {
    let [queue, prepare, start, run, drain, other] = phases.map(Duration::from_millis);
    Parts { queue, prepare: Some(prepare), start: Some(start), run: Some(run), drain: Some(drain), other }
}

#[test]
fn a_call_is_recorded_as_soon_as_everything_is_known() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 40, 77, 0);
    assert!(scenario.records().is_empty());
    scenario.ended(1, 45, 5, Some(0));
    assert_eq!(scenario.records(), [(1, Phases::Complete(parts([1, 2, 30, 7, 5, 0])))]);
    assert_eq!(scenario.tracker.sessions.pop().unwrap().pid, 77);
    scenario.tracker.tick(scenario.at(2000));
    assert_eq!(scenario.tracker.scenes().count(), 0, "nothing is left of it");
}

#[test]
fn an_exit_that_comes_late_is_waited_for_and_one_that_never_comes_is_missing() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.ended(1, 45, 5, Some(0));
    assert!(scenario.records().is_empty());
    assert_eq!(scenario.tracker.next_tick(), Some(scenario.at(1045)));
    let mut other = Scenario::new();
    other.asked(1, 0, 5);
    other.added(ONE, 3);
    other.started(ONE, 33, 77);
    other.ended(1, 45, 5, Some(0));

    scenario.exited(ONE, 40, 77, 0);
    assert!(matches!(&scenario.records()[..], [(1, Phases::Complete(_))]));
    other.tracker.tick(other.at(1045));
    let [(1, Phases::Missing { parts, what: Missing::Exited })] = &other.records()[..] else {
        panic!("not missing")
    };
    assert_eq!((parts.start, parts.run, parts.other), (Some(MS * 30), None, MS * 12));
}

#[test]
fn calls_at_once_are_told_apart_once_all_is_known() {
    let mut scenario = Scenario::new();
    for id in [1, 2] {
        scenario.asked(id, 0, 5);
    }
    for (exec, pid) in [(ONE, 77), (TWO, 78)] {
        scenario.added(exec, 3);
        scenario.started(exec, 33, pid);
    }
    scenario.exited(ONE, 40, 77, 4);
    scenario.ended(2, 45, 5, Some(4));
    scenario.evidence(2, 46);
    assert!(scenario.records().is_empty(), "the other may be about to exit with the same code");
    scenario.exited(TWO, 47, 78, 0);
    assert!(matches!(&scenario.records()[..], [(2, Phases::Complete(_))]));
    scenario.ended(1, 50, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(1, Phases::Complete(_))]));
}

#[test]
fn calls_at_once_that_are_alike_are_ambiguous() {
    let mut scenario = Scenario::new();
    for (id, exec) in [(1, ONE), (2, TWO)] {
        scenario.asked(id, 0, 5);
        scenario.added(exec, 3);
        scenario.started(exec, 33, 77);
        scenario.exited(exec, 40, 77, 0);
    }
    scenario.ended(1, 45, 5, Some(0));
    assert!(scenario.records().is_empty(), "the other's exit code may tell them apart");
    scenario.ended(2, 45, 5, Some(0));
    let records = scenario.records();
    assert_eq!(records.len(), 2, "nothing more can tell");
    for (_, phases) in records {
        let Phases::Ambiguous { candidates, count, .. } = phases else { panic!("{phases:?}") };
        assert_eq!((candidates.as_slice(), count), (&[ONE.into(), TWO.into()][..], 2));
    }
}

#[test]
fn a_timeout_tells_what_became_of_the_command() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 1035, 77, 137);
    scenario.ended(1, 1040, 1, None);
    scenario.evidence(1, 1041);
    let insight = scenario.record().insight.unwrap();
    let fate = insight.fate.unwrap();
    assert_eq!((fate.started, fate.exited, fate.is_killed()), (Some(MS * 33), Some(MS * 1035), Some(true)));
    assert_eq!((insight.margin, insight.assessment), (Some(Margin::Over(40 * MS)), Assessment::Failed));
}

#[test]
fn a_command_that_outlives_its_call_amends_the_record() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.ended_with(1, 500, Scenario::exec(1, None), Ending::ClientReset(h2::Reason::CANCEL));
    scenario.evidence(1, 501);
    scenario.tracker.tick(scenario.at(1500));
    let early = scenario.record();
    assert!(!early.is_amended && early.insight.unwrap().fate.unwrap().exited.is_none());
    scenario.exited(ONE, 9000, 77, 137);
    let late = scenario.record();
    let fate = late.insight.as_ref().unwrap().fate.unwrap();
    assert_eq!((late.is_amended, late.call.id, fate.exited), (true, 1, Some(MS * 9000)));
    assert!(matches!(late.insight.unwrap().phases, Phases::Complete(_)));
}

#[test]
fn without_the_runtimes_events_the_rest_is_known() {
    let mut scenario = Scenario::new();
    let now = scenario.at(0);
    scenario.tracker.watched(false, now);
    scenario.asked(1, 0, 5);
    scenario.ended(1, 45, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(1, Phases::Unsupported(parts))] if parts.other == MS * 44));
}

#[test]
fn an_answer_that_could_not_be_read_is_that_of_a_command_that_exited() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 40);
    scenario.exited(ONE, 77, 40, 3);
    scenario.ended_with(1, 80, Scenario::exec(5, None), Ending::Answered(Some(Code::OK)));
    scenario.evidence(1, 81);
    let records = scenario.records();
    assert!(matches!(records[..], [(1, Phases::Complete(_))]), "{records:?}");
}

#[test]
fn an_interruption_spoils_the_calls_in_flight_and_no_others() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    let now = scenario.at(10);
    scenario.tracker.interrupted(now);
    scenario.tracker.watched(true, now);
    scenario.asked(2, 20, 5);
    scenario.ended(1, 45, 5, Some(0));
    let interrupted = Missing::Interrupted;
    assert!(matches!(&scenario.records()[..], [(1, Phases::Missing { what, .. })] if *what == interrupted));
    scenario.added(ONE, 23);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 40, 77, 0);
    scenario.ended(2, 45, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(2, Phases::Complete(_))]));
}

/// One call has lost its events, while another's command runs on.
fn beside_another(scenario: &mut Scenario) {
    scenario.asked(2, 300, 5);
    scenario.added(TWO, 304);
    scenario.started(TWO, 314, 40);
    scenario.ended(1, 1000, 5, Some(0));
    scenario.tracker.tick(scenario.at(2500));
    let records = scenario.records();
    assert!(matches!(&records[..], [(1, Phases::Missing { .. })]), "{records:?}");
    scenario.exited(TWO, 4300, 40, 7);
    scenario.ended(2, 4303, 5, Some(7));
    scenario.evidence(2, 4304);
    let records = scenario.records();
    assert!(matches!(&records[..], [(2, Phases::Complete(_))]), "{records:?}");
}

#[test]
fn what_goes_on_is_not_taken_from_another_for_a_call_without_events() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    beside_another(&mut scenario);
}

#[test]
fn an_exit_whose_beginning_was_missed_is_not_taken_for_another_calls() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    let now = scenario.at(100);
    scenario.tracker.interrupted(now);
    scenario.tracker.watched(true, now);
    scenario.asked(2, 300, 5);
    scenario.added(TWO, 304);
    scenario.started(TWO, 314, 40);
    scenario.ended(1, 1000, 5, Some(7));
    scenario.evidence(1, 1001);
    assert!(matches!(&scenario.records()[..], [(1, Phases::Missing { .. })]));
    scenario.exited(ONE, 1020, 30, 7);
    scenario.exited(TWO, 4300, 40, 7);
    scenario.ended(2, 4303, 5, Some(7));
    scenario.evidence(2, 4304);
    let records = scenario.records();
    assert!(matches!(&records[..], [(2, Phases::Complete(_))]), "{records:?}");
}

#[test]
fn a_call_that_missed_its_events_is_given_nothing_that_goes_on() {
    let mut scenario = Scenario::new();
    let now = scenario.at(0);
    scenario.tracker.interrupted(now);
    scenario.asked(1, 1, 1);
    scenario.tracker.watched(true, now);
    // A stranger's, which exits long before the call is answered.
    scenario.added(ONE, 10);
    scenario.started(ONE, 12, 40);
    scenario.exited(ONE, 30, 40, 0);
    let mut watchdog = Watchdog::default();
    watchdog.tick(&scenario.tracker, scenario.at(5900));
    assert!(watchdog.stuck().is_empty());
    scenario.added(TWO, 5950);
    scenario.started(TWO, 5960, 41);
    scenario.ended(1, 6000, 1, Some(3));
    scenario.evidence(1, 6001);
    let records = scenario.records();
    let interrupted = Missing::Interrupted;
    assert!(
        matches!(&records[..], [(1, Phases::Missing { what, .. })] if *what == interrupted),
        "{records:?}"
    );
    assert!(scenario.tracker.sessions.is_empty());
}

#[test]
fn a_late_exit_that_is_not_the_answers_is_anothers() {
    for (at, status, is_its) in [(44, 0, true), (44, 3, false), (3000, 0, false)] {
        let mut scenario = Scenario::new();
        scenario.asked(1, 0, 5);
        scenario.added(ONE, 3);
        scenario.started(ONE, 33, 40);
        scenario.ended(1, 45, 5, Some(0));
        scenario.tracker.tick(scenario.at(1100));
        let first = scenario.records();
        assert!(matches!(&first[..], [(1, Phases::Missing { what: Missing::Exited, .. })]), "{first:?}");
        let (container, exec) = (scenario.container.to_string(), ONE.to_owned());
        let exit = TaskEvent::ExecExited { container, exec, pid: 40, status };
        scenario.event_heard(at, at.max(1200), exit);
        let watched: Vec<u32> = scenario.tracker.sessions.iter().map(|session| session.pid).collect();
        assert_eq!(
            watched,
            if is_its { vec![40] } else { vec![] },
            "what it left is looked for once it is its"
        );
        let amended = scenario.records();
        let is_complete = matches!(&amended[..], [(1, Phases::Complete(_))]);
        let is_missing = matches!(&amended[..], [(1, Phases::Missing { what: Missing::Everything, .. })]);
        assert_eq!((is_complete, is_missing), (is_its, !is_its), "{at} {status}: {amended:?}");
    }
}

#[test]
fn a_container_may_become_known_while_a_call_lasts() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    let known = tap::Container { name: Some("main".to_owned()), ..tap::Container::default() };
    scenario.place = Place { container: Some(Arc::new(known)), ..Place::default() };
    scenario.ended(1, 45, 5, Some(0));
    scenario.tracker.give_up(scenario.at(46));
    let record = scenario.record();
    assert_eq!(record.call.container.as_ref().unwrap().name.as_deref(), Some("main"));
}

#[test]
fn what_is_asked_before_the_runtime_is_watched_again_is_interrupted() {
    let mut scenario = Scenario::new();
    let now = scenario.at(0);
    scenario.tracker.interrupted(now);
    scenario.asked(1, 5, 5);
    scenario.tracker.watched(true, now);
    scenario.ended(1, 45, 5, Some(0));
    let interrupted = Missing::Interrupted;
    assert!(matches!(&scenario.records()[..], [(1, Phases::Missing { what, .. })] if *what == interrupted));
}

#[test]
fn a_command_that_could_not_be_started_is_over() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    scenario.added(ONE, 3);
    let unknown = Ending::Answered(Some(Code(2)));
    scenario.ended_with(1, 45, Scenario::exec(5, None), unknown);
    scenario.evidence(1, 46);
    assert!(
        matches!(&scenario.records()[..], [(1, Phases::Complete(parts))] if parts.start == Some(MS * 42))
    );
    scenario.tracker.tick(scenario.at(2000));
    assert_eq!(scenario.tracker.scenes().count(), 0, "no exit of it is waited for");
}

#[test]
fn what_was_executed_in_a_container_goes_with_it() {
    let mut scenario = Scenario::new();
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.tracker.tick(scenario.at(100_000));
    assert_eq!(scenario.tracker.scenes().count(), 1, "it runs");
    let now = scenario.at(100_000);
    scenario.tracker.closed("c0ffee", now);
    scenario.tracker.tick(scenario.at(103_000));
    assert_eq!(scenario.tracker.scenes().count(), 0);
}

#[test]
fn a_call_whose_beginning_was_not_seen_is_explained_all_the_same() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    scenario.tracker.scenes.clear();
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    scenario.exited(ONE, 40, 77, 0);
    scenario.ended(1, 45, 5, Some(0));
    assert!(matches!(&scenario.records()[..], [(1, Phases::Complete(_))]), "its events had been kept");
}

#[test]
fn a_call_whose_end_was_not_seen_is_forgotten() {
    let mut scenario = Scenario::new();
    scenario.asked(1, 0, 5);
    scenario.tracker.tick(scenario.at(1000));
    assert_eq!(scenario.tracker.in_flight_now(), (1, 1));
    scenario.heads.clear();
    scenario.tracker.tick(scenario.at(2000));
    assert_eq!((scenario.tracker.in_flight_now(), scenario.tracker.scenes().count()), ((0, 0), 0));
}

#[test]
fn what_is_slow_is_so_by_timeout_threshold_or_habit() {
    let settings = Settings::default();
    let call = |millis, timeout| {
        let mut call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, MS * millis);
        call.ending = Ending::Answered(Some(Code::OK));
        call.exec = Some(Box::new(Scenario::exec(timeout, Some(0))));
        call
    };
    let slow = |why| Assessment::Slow(why);
    for (millis, timeout, median, assessment) in [
        (400, 1, None, Assessment::Fine),
        (600, 1, None, slow(Slow::HalfOfTimeout)),
        (1100, 0, None, slow(Slow::Threshold)),
        (1100, 30, None, slow(Slow::Threshold)),
        (100, 30, Some(30), slow(Slow::ThreeMedians)),
        (80, 30, Some(30), Assessment::Fine),
    ] {
        let median = median.map(Duration::from_millis);
        assert_eq!(settings.assessment(&call(millis, timeout), median), assessment, "{millis} {timeout}");
    }
}

#[test]
fn what_is_stuck_is_told_of_while_it_lasts() {
    let (mut scenario, mut watchdog) = (Scenario::new(), Watchdog::default());
    scenario.asked(1, 0, 1);
    scenario.added(ONE, 3);
    scenario.started(ONE, 33, 77);
    let mut kinds = |scenario: &Scenario, at: u32| -> Vec<StuckKind> {
        watchdog.tick(&scenario.tracker, scenario.at(at));
        watchdog.stuck().keys().map(|(kind, _)| *kind).collect()
    };
    assert_eq!(kinds(&scenario, 5900), []);
    assert_eq!(kinds(&scenario, 6100), [StuckKind::Overdue]);
    scenario.exited(ONE, 7000, 77, 137);
    assert_eq!(kinds(&scenario, 12_100), [StuckKind::Overdue, StuckKind::Unanswered]);
    // A stranger's execution, which may have been the call's for all that is known, changes nothing.
    scenario.added(TWO, 12_200);
    scenario.started(TWO, 12_210, 78);
    scenario.exited(TWO, 12_300, 78, 0);
    assert_eq!(kinds(&scenario, 12_400), [StuckKind::Overdue, StuckKind::Unanswered]);
    scenario.ended(1, 13_000, 1, None);
    assert_eq!(kinds(&scenario, 13_100), []);
    scenario.asked(2, 14_000, i64::MAX);
    assert_eq!(kinds(&scenario, 90_000), [], "a timeout that no clock can show is never over");
}
