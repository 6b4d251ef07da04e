use super::*;
use crate::cri::Code;
use crate::execsync::{CpuUsage, PressureStall};
use crate::lint::fixture::{Fixture, only};

const LIVENESS: &str = "liveness";

/// Returns the lints that find something, and the sentence of one of them.
fn sentence(facts: Fixture, lint: &str) -> Option<(Severity, String)> {
    only(crate::lint::timing::lint, facts, lint).map(|found| (found.severity, found.sentence))
}

#[test]
fn attempts_that_timed_out_are_an_error_from_the_failure_threshold_on() {
    let timed_out = |count| {
        let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(2)));
        facts.attempts(20 - count, 10).timeouts(count)
    };
    assert_eq!(sentence(timed_out(0), "timeout"), None);
    let (severity, text) = sentence(timed_out(2), "timeout").unwrap();
    let expected = "2 of 20 attempts (10 %) failed because of the timeout of 2.00s.";
    assert_eq!((severity, text.as_str()), (Severity::Warning, expected));
    assert_eq!(sentence(timed_out(3), "timeout").unwrap().0, Severity::Error);
    let found = only(crate::lint::timing::lint, timed_out(3), "timeout").unwrap();
    assert_eq!(found.evidence, ["Half of the 20 attempts took at most 11.0ms, and 99 % at most 2.01s."]);
    assert_eq!((found.affected, found.calls.len()), (3, 3));
    assert!(found.remedy.ends_with("raise timeoutSeconds (now 2)."), "{}", found.remedy);
}

#[test]
fn a_command_that_waited_until_its_timeout_has_that_remedy() {
    let waits = |used| {
        Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(2))).slow_with(
            3,
            2010,
            move |call| {
                call.exec.result = None;
                call.fail(Code::DEADLINE_EXCEEDED, "timeout 2s exceeded: context deadline exceeded");
                let used = Some(Duration::from_millis(used));
                call.evidence().cpu = Some(CpuUsage { used, ..CpuUsage::default() });
            },
        )
    };
    let remedy = |used| only(crate::lint::timing::lint, waits(used), "timeout").unwrap().remedy;
    assert!(remedy(5).starts_with("Find out what the command waits for"), "{}", remedy(5));
    assert!(remedy(1900).contains("make the handler faster"), "{}", remedy(1900));
}

#[test]
fn a_slow_start_is_the_runtimes_and_no_thin_margin_of_the_probe() {
    let starts = |cpu: Option<u64>| {
        let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(2)));
        facts.slow_with(12, 1900, move |call| {
            let parts = call.parts();
            std::mem::swap(&mut parts.start, &mut parts.run);
            let cpu = cpu.map(Duration::from_millis);
            call.evidence().node_pressure = cpu.map(|cpu| PressureStall { cpu, ..PressureStall::default() });
        })
    };
    let found = |cpu| only(crate::lint::timing::lint, starts(cpu), "slow-start");
    let measured = found(Some(0)).unwrap();
    assert_eq!(measured.severity, Severity::Warning);
    assert_eq!(
        measured.sentence,
        "The runtime was slow to start the command in 12 of 12 attempts (100 %): the start took up to 1.90s."
    );
    let had_cpu =
        "Processes of the node waited for a processor for less than half of the time in 12 of 12 recorded slow \
         calls (100 %)."
            .to_owned();
    assert!(measured.evidence.contains(&had_cpu), "{measured:?}");
    assert!(
        !found(None).unwrap().evidence.iter().any(|text| text.contains("a processor")),
        "it was not measured"
    );
    assert_eq!(sentence(starts(Some(0)), "thin-margin"), None);
    assert_eq!(found(Some(1000)), None, "the node lacked CPU");
}

#[test]
fn a_few_attempts_have_the_range_of_their_durations_in_place_of_percentiles() {
    let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(2)));
    let found = only(crate::lint::timing::lint, facts.timeouts(3), "timeout").unwrap();
    assert!(found.evidence[0].starts_with("3 attempts took 2."), "{:?}", found.evidence);
    assert!(!found.evidence[0].contains("99 %"), "{:?}", found.evidence);
}

#[test]
fn attempts_that_end_shortly_before_their_timeout_have_a_thin_margin() {
    let close = |count, duration| {
        let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(1)));
        facts.attempts(20, 10).slow(count, duration)
    };
    assert_eq!(sentence(close(2, 950), "thin-margin"), None, "two may be chance");
    assert_eq!(sentence(close(5, 700), "thin-margin"), None, "the margin is wide");
    let (severity, text) = sentence(close(5, 950), "thin-margin").unwrap();
    let expected = "At least 5 of 25 attempts (20 %) took 80 % or more of the timeout of 1.00s, and did not fail because of it.";
    assert_eq!((severity, text.as_str()), (Severity::Warning, expected));
}

#[test]
fn attempts_that_need_more_than_the_default_timeout_are_counted() {
    let late = |timeout: Option<u64>, duration| {
        let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = timeout.map(Duration::from_secs));
        facts.attempts(20, 10).slow(5, duration)
    };
    assert_eq!(sentence(late(Some(1), 1200), "default-timeout"), None, "it is the default");
    assert_eq!(sentence(late(Some(9), 900), "default-timeout"), None, "the attempts are in time");
    assert_eq!(sentence(late(Some(9), 1200), "default-timeout"), None, "the timeout is far away");
    for timeout in [Some(2), None] {
        let (severity, text) = sentence(late(timeout, 1200), "default-timeout").unwrap();
        let expected = "With the default timeout of 1 s, up to 5 of 25 attempts (20 %) would have failed: they took 1 s or longer.";
        assert_eq!((severity, text.as_str()), (Severity::Info, expected));
    }
}

#[test]
fn a_period_that_is_shorter_than_attempts_is_found() {
    let late = |count, period| {
        let facts = Fixture::new().probe(LIVENESS, |probe| {
            probe.timeout = None;
            probe.period = Some(Duration::from_secs(period));
        });
        facts.attempts(20, 10).slow(count, 2500)
    };
    assert_eq!(sentence(late(5, 10), "short-period"), None);
    assert_eq!(sentence(late(2, 1), "short-period"), None, "two may be chance");
    let (severity, text) = sentence(late(5, 2), "short-period").unwrap();
    let expected = "The period of 2.00s is shorter than the 99th percentile of the durations: at least 5 of 25 attempts \
                    (20 %) took that long, and the next attempts were late.";
    assert_eq!((severity, text.as_str()), (Severity::Warning, expected));
}
