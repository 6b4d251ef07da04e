use super::*;
use crate::events::reason;
use crate::lint::fixture::{Fixture, only};

fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
    only(super::lint, facts, lint)
}

fn killed(facts: Fixture, times: u64, details: &str) -> Fixture {
    (0..times).fold(facts, |facts, cycle| {
        let message = format!(
            "Container main failed liveness probe, and the kubelet stopped it (3 failures in a row{details})"
        );
        facts
            .event_at(60 * cycle, reason::CONTAINER_STARTED, "Started")
            .event_at(60 * cycle + 30, reason::KILLING, &message)
            .event_at(60 * cycle + 31, reason::CONTAINER_EXITED, "Exited with code 137 (Error)")
    })
}

fn failing(count: u32) -> Fixture {
    Fixture::new().attempts(21, 10).calls(count, 20, |call| {
        call.exit(1);
        call.exec.output = Some("cat: can't open '/tmp/healthy': No such file or directory\n".into());
    })
}

#[test]
fn kills_are_counted_with_the_output_of_the_failed_attempts() {
    assert_eq!(found(failing(21), KILLS), None);
    let found = found(killed(failing(21), 7, ", 30.0s after its start"), KILLS).unwrap();
    assert_eq!(
        found.sentence,
        "The liveness probe killed the container 7 times in 6m00s; 21 of 42 attempts exited with 1: \"cat: can't open \
         '/tmp/healthy': No such file or directory\"."
    );
    assert_eq!((found.severity, found.affected), (Severity::Error, 7));
    assert_eq!(found.subject.text(), "shop/web-0 main liveness (kubelet)");
    assert_eq!(
        found.evidence,
        [
            "The container was killed 30.0s after its start.",
            "The probe is check, with periodSeconds 10, timeoutSeconds 5."
        ]
    );
    assert_eq!((found.remedy.as_str(), found.calls.len()), ("Fix the error that the output reports.", 10));
}

#[test]
fn a_restart_does_not_help_if_the_probe_never_succeeded_after_one() {
    let ready = Fixture::new().probe("readiness", |probe| probe.handler = "ready".to_owned());
    let failing = ready.attempts(9, 10).probe("liveness", |_| {}).calls(6, 20, |call| call.exit(1));
    let period = killed(failing, 2, ", 30.0s after its start, no success before").build();
    let found = super::lint(&PeriodFacts::new(&period));
    assert!(
        found[0].remedy.ends_with("; the probe failed again after each restart, so a restart does not help.")
    );
}

#[test]
fn an_application_that_is_slow_at_its_start_and_in_its_probe_has_both_remedies() {
    let never = killed(Fixture::new().timeouts(6), 2, ", 30.0s after its start, no success before");
    let found = crate::lint::lint(&never.build());
    assert_eq!(
        found[0].remedy,
        "See with `probeshim explain` where the time of a call went; make the handler faster, or raise timeoutSeconds \
         (now 5); if only the start of the application takes longer, add a startupProbe with the same handler and \
         failureThreshold 6 and periodSeconds 10 (60 s, at least twice the 30.0s that it had)."
    );
    assert!(found.iter().all(|found| found.lint != "timeout"), "{found:#?}");
}

#[test]
fn a_container_that_ran_for_hours_was_not_killed_at_its_start() {
    let never = killed(
        Fixture::new().calls(6, 20, |call| call.exit(1)),
        1,
        ", 18000.0s after its start, no success before",
    );
    assert!(!found(never, KILLS).unwrap().remedy.contains("startupProbe"));
}

#[test]
fn a_probe_with_a_changed_command_has_kills_for_each_command() {
    let first = Fixture::new().command(&["cat", "/tmp/one"]).calls(3, 20, |call| call.exit(1));
    let facts = first.command(&["cat", "/tmp/two"]).calls(4, 20, |call| call.exit(2));
    let kill = |facts: Fixture, second, command: &str| {
        let message =
            "Container main failed liveness probe, and the kubelet stopped it (3 failures in a row)";
        facts.event_at(second, reason::KILLING, &format!("{message}: {command}"))
    };
    let facts = kill(kill(kill(facts, 10, "cat /tmp/one"), 20, "cat /tmp/two"), 30, "cat /tmp/two");
    let period = facts.build();
    let sentences: Vec<String> =
        super::lint(&PeriodFacts::new(&period)).into_iter().map(|found| found.sentence).collect();
    let expected = [
        "The liveness probe killed the container once; 3 of 3 attempts exited with 1.",
        "The liveness probe killed the container 2 times in 10.0s; 4 of 4 attempts exited with 2.",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn a_container_that_is_killed_before_it_is_up_needs_a_startup_probe_with_computed_numbers() {
    let never = Fixture::new().calls(6, 20, |call| call.exit(1));
    let found = found(killed(never, 2, ", 31.5s after its start, no success before"), KILLS).unwrap();
    assert_eq!(
        (found.sentence.as_str(), found.remedy.as_str()),
        (
            "The liveness probe killed the container 2 times in 60.0s, each time before the probe had succeeded; 6 of 6 \
             attempts exited with 1.",
            "If the application needs longer to start, add a startupProbe with the same handler, periodSeconds 10 and \
             failureThreshold 7 (70 s, at least twice the 31.5s that it had); if it was up already, find out \
             why the command fails by running it in the container."
        )
    );
}

#[test]
fn a_kill_of_a_container_that_was_ready_is_not_one_at_its_start() {
    let ready = Fixture::new().probe("readiness", |probe| probe.handler = "ready".to_owned()).attempts(9, 10);
    let facts = ready.probe("liveness", |_| {}).calls(6, 20, |call| call.exit(1));
    let facts = killed(facts, 2, ", 31.5s after its start, no success before");
    let period = facts.build();
    let found = super::lint(&PeriodFacts::new(&period));
    assert_eq!(found.iter().map(|found| found.lint).collect::<Vec<_>>(), [KILLS]);
}

#[test]
fn kills_of_a_dry_run_are_a_warning() {
    let message = "Container main failed liveness probe, will be restarted (not stopped: dry-run)";
    let found = found(failing(3).event_at(5, reason::WOULD_KILL, message), KILLS).unwrap();
    assert_eq!(found.severity, Severity::Warning);
    assert!(
        found.sentence.starts_with("The liveness probe would have killed the container once; "),
        "{found:?}"
    );
}

#[test]
fn kills_before_and_after_the_type_of_the_probe_was_known_are_counted_together() {
    let unknown = "Container main failed a probe, and the kubelet stopped it (3 failures in a row): check";
    let facts = killed(failing(21), 2, "").event_at(200, reason::KILLING, unknown);
    let found = found(facts, KILLS).unwrap();
    assert!(found.sentence.starts_with("The liveness probe killed the container 3 times "), "{found:?}");
}

#[test]
fn probes_with_one_command_have_kills_of_their_own() {
    let joint = Fixture::new().probe("startup or liveness", |probe| probe.failure_threshold = Some(30));
    let facts = killed(joint.attempts(9, 10).calls(6, 20, |call| call.exit(1)), 3, ", 30.0s after its start");
    let startup = "Container main failed startup probe, and the kubelet stopped it (30 failures in a row, no success \
                   before)";
    let period = facts.event_at(300, reason::KILLING, startup).build();
    let found = crate::lint::lint(&period);
    let kills: Vec<&str> = found.iter().map(|found| found.sentence.split(';').next().unwrap()).collect();
    let expected = [
        "The liveness probe killed the container 3 times in 2m00s",
        "The startup probe killed the container once, before the probe had ever succeeded",
    ];
    assert_eq!(kills, expected);
    assert_eq!(found[0].evidence[1], "The probe is check, with timeoutSeconds 5.");
}

#[test]
fn a_probe_of_an_unknown_type_is_found_by_its_command() {
    let unknown = Fixture::new().probe("unknown", |_| {}).calls(3, 20, |call| call.exit(2));
    let message = "Container main failed a probe, and the kubelet stopped it (3 failures in a row): check";
    let found = found(unknown.event_at(5, reason::KILLING, message), KILLS).unwrap();
    let expected = "The probe killed the container once; 3 of 3 attempts exited with 2.";
    assert_eq!((found.sentence.as_str(), found.subject.probe.as_deref()), (expected, Some("unknown")));
}
