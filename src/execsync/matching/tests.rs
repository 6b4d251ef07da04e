use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::execsync::exec_instance::EventTime;

const MS: Duration = Duration::from_millis(1);

/// The base time of a test case, for times in milliseconds.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn at(self, millis: u32) -> Instant {
        self.0 + MS * millis
    }

    fn moment(self, millis: u32) -> EventTime {
        EventTime { at: self.at(millis), received_at: self.at(millis) }
    }

    /// Returns an exec instance with an exec id of the CRI plugin.
    fn instance(self, number: u8, added: u32, exited: Option<(u32, u32)>) -> ExecInstance {
        let exec = format!("{number:064x}");
        ExecInstance { pid: Some(1000 + u32::from(number)), ..self.instance_with_id(&exec, added, exited) }
    }

    fn instance_with_id(self, exec: &str, added: u32, exited: Option<(u32, u32)>) -> ExecInstance {
        let mut instance = ExecInstance::new(exec);
        instance.added = Some(self.moment(added));
        instance.started = Some(self.moment(added + 1));
        instance.exited = exited.map(|(at, _)| self.moment(at));
        instance.status = exited.map(|(_, status)| status);
        instance
    }
}

/// Returns a call that starts at `from`, and ends at the time and with the exit code in `end`.
/// Times are in milliseconds.
fn claim(clock: Clock, from: u32, end: Option<(u32, u32)>) -> CallCandidate<'static> {
    let ended = |(at, code)| CandidateEnd { at: clock.at(at), outcome: ExecOutcome::Exited(Some(code)) };
    CallCandidate {
        sent: clock.at(from),
        command: &[],
        is_sent: true,
        events_lost: false,
        end: end.map(ended),
    }
}

fn found(calls: &[CallCandidate<'_>], instances: &[ExecInstance]) -> Vec<Match> {
    let matching = Matching::new(calls, instances, ExitEvents::Complete);
    (0..calls.len()).map(|call| matching.find(call)).collect()
}

#[test]
fn a_call_is_matched_to_the_only_exec_instance_of_its_time() {
    let clock = Clock::new();
    let call = claim(clock, 100, Some((200, 0)));
    let before = clock.instance(1, 10, Some((20, 0)));
    let own = clock.instance(2, 110, Some((190, 0)));
    let after = clock.instance(3, 300, None);
    assert_eq!(found(&[call], &[before, own, after]), [Match::One(1)]);
}

#[test]
fn exit_codes_and_order_of_exits_distinguish_concurrent_calls() {
    let clock = Clock::new();
    let calls = [claim(clock, 0, Some((100, 1))), claim(clock, 0, Some((100, 2)))];
    let instances = [clock.instance(1, 10, Some((95, 2))), clock.instance(2, 11, Some((96, 1)))];
    assert_eq!(found(&calls, &instances), [Match::One(1), Match::One(0)]);
    // The call that is answered first can only have the exec instance that exited first. That
    // leaves the other exec instance to the second call.
    let calls = [claim(clock, 0, Some((60, 0))), claim(clock, 0, Some((100, 0)))];
    let instances = [clock.instance(1, 10, Some((95, 0))), clock.instance(2, 11, Some((50, 0)))];
    assert_eq!(found(&calls, &instances), [Match::One(1), Match::One(0)]);
}

#[test]
fn indistinguishable_calls_stay_ambiguous() {
    let clock = Clock::new();
    let calls = [claim(clock, 0, Some((100, 0))), claim(clock, 0, Some((100, 0)))];
    let instances = [clock.instance(1, 10, Some((95, 0))), clock.instance(2, 11, Some((95, 0)))];
    let either = Match::OneOf(vec![0, 1]);
    assert_eq!(found(&calls, &instances), [either.clone(), either]);
}

#[test]
fn command_lines_distinguish_calls_only_if_every_instance_has_the_command_of_a_call() {
    let clock = Clock::new();
    let args = |word: &str| vec![word.to_owned()];
    let (one, other) = (args("one"), args("other"));
    let calls = [
        CallCandidate { command: &one, ..claim(clock, 0, Some((100, 0))) },
        CallCandidate { command: &other, ..claim(clock, 0, Some((100, 0))) },
    ];
    let instance = |number, command: Option<Vec<String>>| ExecInstance {
        command,
        ..clock.instance(number, 10, Some((90, 0)))
    };
    let instances = [instance(1, Some(other.clone())), instance(2, Some(one.clone()))];
    assert_eq!(found(&calls, &instances), [Match::One(1), Match::One(0)]);
    let either = || [Match::OneOf(vec![0, 1]), Match::OneOf(vec![0, 1])];
    assert_eq!(
        found(&calls, &[instance(1, Some(other.clone())), instance(2, None)]),
        either(),
        "one was not read"
    );
    let same = [instance(1, Some(other.clone())), instance(2, Some(other.clone()))];
    assert_eq!(found(&calls, &same), either(), "a shell may have become its command");
}

#[test]
fn exec_instances_of_other_clients_match_no_call() {
    let clock = Clock::new();
    let foreign = clock.instance_with_id("by-hand", 10, Some((90, 0)));
    assert_eq!(found(&[claim(clock, 0, Some((100, 0)))], &[foreign]), [Match::None]);
}

#[test]
fn a_refused_call_needs_no_exec_instance() {
    let clock = Clock::new();
    let refused = CandidateEnd { at: clock.at(50), outcome: ExecOutcome::Refused };
    let calls =
        [claim(clock, 0, Some((100, 0))), CallCandidate { end: Some(refused), ..claim(clock, 0, None) }];
    let instances = [clock.instance(1, 60, Some((90, 0)))];
    assert_eq!(found(&calls, &instances), [Match::One(0), Match::None]);
    // An exec instance during the refused call stays its candidate, but is matched to the other
    // call.
    let instances = [clock.instance(1, 20, Some((90, 0)))];
    assert_eq!(found(&calls, &instances), [Match::One(0), Match::OneOf(vec![0])]);
}

#[test]
fn a_possibly_foreign_exec_instance_is_not_matched() {
    let clock = Clock::new();
    let ended = |outcome| CallCandidate {
        end: Some(CandidateEnd { at: clock.at(50), outcome }),
        ..claim(clock, 0, None)
    };
    let started = [clock.instance(1, 20, Some((90, 0)))];
    assert_eq!(
        found(&[ended(ExecOutcome::Refused)], &started),
        [Match::OneOf(vec![0])],
        "the call failed, and this ran"
    );
    let never_started =
        [ExecInstance { started: None, exited: None, status: None, ..clock.instance(1, 20, None) }];
    assert_eq!(found(&[ended(ExecOutcome::Refused)], &never_started), [Match::One(0)]);
    assert_eq!(
        found(&[ended(ExecOutcome::Unanswered)], &started),
        [Match::One(0)],
        "the client gave up, and nothing else ran"
    );
}

#[test]
fn a_match_is_settled_once_its_calls_and_exec_instances_have_ended() {
    let clock = Clock::new();
    let instances = [clock.instance(1, 10, Some((90, 0))), clock.instance(2, 11, Some((91, 0)))];
    let ended = [claim(clock, 0, Some((100, 0))), claim(clock, 0, Some((100, 0)))];
    assert!(Matching::new(&ended, &instances, ExitEvents::Pending).is_settled(0));
    let one_goes_on = [claim(clock, 0, Some((100, 0))), claim(clock, 0, None)];
    assert!(
        !Matching::new(&one_goes_on, &instances, ExitEvents::Pending).is_settled(0),
        "its exit code may tell them apart"
    );
    let one_runs = [clock.instance(1, 10, Some((90, 0))), clock.instance(2, 11, None)];
    assert!(
        !Matching::new(&ended, &one_runs, ExitEvents::Pending).is_settled(0),
        "its exit may be on its way"
    );
}

#[test]
fn a_call_among_too_many_candidates_stays_ambiguous() {
    let clock = Clock::new();
    let calls: Vec<_> = (0..40).map(|code| claim(clock, 0, Some((100, code / 2)))).collect();
    let instances: Vec<ExecInstance> =
        (0..40).map(|number| clock.instance(number, 10, Some((90, 7)))).collect();
    let found = found(&calls, &instances);
    assert!(matches!(&found[14], Match::OneOf(instances) if instances.len() == 40), "{:?}", found[14]);
    assert_eq!(found[0], Match::None);
}

proptest! {
    /// The true exec instance is never excluded, whatever runs at the same time.
    #[test]
    fn the_true_exec_instance_of_a_call_is_never_excluded(
        calls in proptest::collection::vec((0_u32..50, 1_u32..20, 1_u32..40, 0_u32..20, 0_u32..2), 1..7),
    ) {
        let clock = Clock::new();
        let (mut claims, mut instances) = (Vec::new(), Vec::new());
        for (number, (from, prepare, run, drain, code)) in calls.into_iter().enumerate() {
            let (added, exited) = (from + prepare, from + prepare + 1 + run);
            claims.push(claim(clock, from, Some((exited + drain, code))));
            instances.push(clock.instance(u8::try_from(number).unwrap(), added, Some((exited, code))));
        }
        for (call, found) in found(&claims, &instances).into_iter().enumerate() {
            match found {
                Match::One(instance) => prop_assert_eq!(instance, call),
                Match::OneOf(instances) => prop_assert!(instances.contains(&call)),
                Match::None => prop_assert!(false, "{} found nothing", call),
            }
        }
    }
}
