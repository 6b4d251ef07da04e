use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::events::{Event, reason};
use crate::execsync::ProbeMatch;
use crate::history::journal::{JournalConfig, PROBES};
use crate::history::json;
use crate::history::timeline::{CallSample, GapCause, Period, ProbeHistory, ProbeSeries, TimelineReader};
use crate::manifest::{Handler, HttpGet, Port, Probe, ProbeType, Source};
use crate::object_ref::{ContainerRef, PodRef};
use crate::prober::AttemptVerdict;

/// Begin of the recorded time: the begin of a minute.
const START: Duration = Duration::from_secs(29_000_000 * 60);

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + START + Duration::from_secs(seconds)
}

/// Returns an ExecSync of a kubelet that ends at a time.
fn exec(id: u64, end: SystemTime, duration: Duration, exit_code: i32) -> CallRecord {
    let phases = json!({
        "state": "complete", "queueMs": 0.5, "prepareMs": 4.0, "startMs": 20.0, "runMs": 3.0, "drainMs": 2.0,
        "otherMs": 0.5, "missing": null,
    });
    let call: json::Call = serde_json::from_value(json!({
        "id": id, "start": json::time(end - duration), "method": "ExecSync",
        "durationMs": json::milliseconds(duration), "code": "OK", "requestBytes": 79, "responseBytes": 5,
        "peer": {"uid": 0, "pid": 812, "program": "kubelet"},
        "pod": {"id": "s1", "namespace": "shop", "name": "web", "uid": "u1"},
        "container": {"id": "c1", "name": "main", "attempt": 0},
        "exec": {
            "command": ["cat", "/s3cret"], "commandTruncated": false, "timeoutSeconds": 1,
            "exitCode": exit_code, "stdoutBytes": 0, "stderrBytes": 0,
            "probe": {"type": "liveness", "source": "manifest", "confidence": 1.0, "periodMs": 10_000.0},
            "marginMs": 900.0, "phases": phases,
            "assessment": if exit_code == 0 { "fine" } else { "failed" },
            "slowBecause": null, "startedMs": null, "exitedMs": null, "exitStatus": null, "killed": null,
            "evidence": null,
        },
    }))
    .unwrap();
    CallRecord::try_from(call).unwrap()
}

fn http_attempt(ended: SystemTime, verdict: AttemptVerdict, is_discarded: bool) -> ProbeAttempt {
    let get = HttpGet {
        path: "/healthz?token=s3cret".to_owned(),
        port: Port::Number(8080),
        host: None,
        is_https: false,
        headers: Vec::new(),
    };
    let probe = Probe {
        handler: Handler::Http(get),
        initial_delay: 0,
        timeout: 1,
        period: 10,
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace_period: None,
        source: Source::Manifest,
    };
    let pod =
        PodRef { namespace: Some("shop".to_owned()), name: Some("web".to_owned()), ..PodRef::default() };
    ProbeAttempt {
        pod: Arc::new(pod),
        container: Arc::new(ContainerRef { name: Some("main".to_owned()), ..ContainerRef::default() }),
        probe: Arc::new(probe),
        probe_type: ProbeType::Readiness,
        verdict,
        is_discarded,
        duration: Duration::from_millis(3),
        ended,
    }
}

/// A run of probeshim that records results, with clocks that the test moves.
struct Run {
    timeline: Timeline,
    events: Arc<EventRecorder>,
    tap: TapMetrics,
    journal: Option<Journal>,
    thread: Option<JoinHandle<()>>,
    start: (SystemTime, Instant),
}

impl Run {
    fn start(dir: Option<&Path>, limit: u64, now: SystemTime, redact: bool) -> Self {
        let events = Arc::new(EventRecorder::default());
        let journal = dir.map(|dir| {
            let config = JournalConfig { dir: dir.to_owned(), limit };
            Journal::start(config, 0, events.clone()).unwrap()
        });
        let (journal, thread) = journal.unzip();
        let tap = TapMetrics::default();
        let sources = TimelineSources {
            events: events.clone(),
            tap: tap.clone(),
            redact,
            ..TimelineSources::default()
        };
        let node = NodeFacts { version: "1.2".to_owned(), ..NodeFacts::default() };
        let start = (now, Instant::now());
        let timeline = Timeline::new(sources, journal.clone(), node, start.0, start.1);
        Self { timeline, events, tap, journal, thread, start }
    }

    /// Lets time pass until a time, with a tick each second.
    fn until(&self, end: SystemTime) {
        let seconds = end.duration_since(self.start.0).unwrap().as_secs();
        (0..=seconds).for_each(|second| self.tick(Duration::from_secs(second), 0));
    }

    fn tick(&self, elapsed: Duration, step_seconds: i64) {
        let step = Duration::from_secs(step_seconds.unsigned_abs());
        let wall = self.start.0 + elapsed;
        let wall = if step_seconds < 0 { wall - step } else { wall + step };
        self.timeline.tick(wall, self.start.1 + elapsed);
    }

    /// Returns the monotonic clock at a time.
    fn monotonic(&self, now: SystemTime) -> Instant {
        self.start.1 + now.duration_since(self.start.0).unwrap()
    }

    /// Writes everything at a time.
    fn flush(&self, now: SystemTime) -> RecordedLines {
        self.timeline.recorded_lines(now, self.monotonic(now))
    }

    /// Ends the process. A killed one does not write the open minute.
    fn end(self, ended_at: Option<SystemTime>) {
        if let Some(now) = ended_at {
            self.timeline.end(now, self.monotonic(now));
        }
        drop((self.timeline, self.journal));
        if let Some(thread) = self.thread {
            thread.join().unwrap();
        }
    }
}

fn lines(dir: &Path) -> String {
    let mut lines = Vec::new();
    read_lines(dir, |line| {
        lines.push(String::from_utf8(line.to_vec()).unwrap());
        Ok(())
    })
    .unwrap();
    lines.join("\n")
}

#[test]
fn results_of_both_runs_around_a_sigkill_are_read_with_the_gap_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let first = Run::start(Some(dir.path()), 64 << 20, at(0), false);
    let failed = Arc::new(exec(1, at(5), Duration::from_millis(90), 1));
    first.timeline.add_call(&failed, Some(3));
    first.timeline.add_call(&Arc::new(exec(2, at(15), Duration::from_millis(30), 0)), Some(3));
    first.timeline.set_runtime("containerd v2".to_owned());
    first.events.record(Event::warning(reason::UNHEALTHY, "bad"));
    first.until(at(62));
    first.timeline.add_call(&Arc::new(exec(3, at(65), Duration::from_millis(30), 0)), Some(3));
    first.end(None);
    let second = Run::start(Some(dir.path()), 64 << 20, at(600), false);
    second.timeline.add_call(&Arc::new(exec(4, at(601), Duration::from_millis(30), 0)), Some(3));
    second.end(Some(at(610)));

    let period = read_period(dir.path(), at(0), at(700)).unwrap();
    let [probe] = &period.probes[..] else { panic!("{period:?}") };
    let ProbeSeries { prober, handler, period: every, failure_threshold, timeout, .. } = &probe.series;
    assert_eq!(
        (prober.name(), handler.as_str(), probe.series.pod_name().as_str()),
        ("kubelet", "cat /s3cret", "shop/web")
    );
    let seconds = Duration::from_secs;
    assert_eq!((*every, *timeout, *failure_threshold), (Some(seconds(10)), Some(seconds(1)), Some(3)));
    let minutes: Vec<_> =
        probe.minutes.iter().map(|row| (row.minute - 29_000_000, row.successes, row.failures)).collect();
    assert_eq!(minutes, [(0, 1, 1), (10, 1, 0)], "the open minute is lost with the process");
    let row = &probe.minutes[0];
    assert_eq!((row.phases.calls, row.phases.sums[2]), (2, Duration::from_millis(40)));
    assert_eq!(row.slowest, Some(CallSample { id: 1, duration: Duration::from_millis(90) }));
    assert_eq!((&row.failed_calls[..], row.durations.count()), (&[1][..], 2));
    assert_eq!(period.calls.iter().map(|record| record.call.id).collect::<Vec<_>>(), [1]);
    assert_eq!(json::Call::from(&**period.call(1).unwrap()), json::Call::from(&*failed));
    let gaps: Vec<_> = period.gaps.iter().map(|gap| (gap.from, gap.to, gap.cause.clone())).collect();
    assert_eq!(gaps, [(at(62), at(600), GapCause::NotRunning), (at(610), at(700), GapCause::NotRunning)]);
    assert_eq!(
        period.node.as_ref().map(|node| (node.version.as_str(), node.runtime.clone())),
        Some(("1.2", None))
    );
    let before = read_period(dir.path(), at(0), at(120)).unwrap();
    assert_eq!(before.node.unwrap().runtime.as_deref(), Some("containerd v2"));
}

#[test]
fn events_are_read_once_with_their_last_count() {
    let now = SystemTime::now();
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(Some(dir.path()), 64 << 20, now, false);
    for _ in 0..3 {
        run.events.record(Event::warning(reason::UNHEALTHY, "bad"));
        run.timeline.flush(now, run.start.1);
    }
    run.events.record(Event::warning(reason::UNHEALTHY, "worse"));
    run.end(Some(now + Duration::from_secs(1)));
    let hour = Duration::from_secs(3600);
    let period = read_period(dir.path(), now - hour, now + hour).unwrap();
    let mut events: Vec<_> =
        period.events.iter().map(|event| (event.message.as_str(), event.count)).collect();
    events.sort_unstable();
    assert_eq!(events, [("bad", 3), ("worse", 1)]);
}

#[test]
fn attempts_of_the_prober_by_the_network_are_rows() {
    let run = Run::start(None, 0, at(0), false);
    run.timeline.add_attempt(&http_attempt(at(1), AttemptVerdict::Success, false));
    run.timeline.add_attempt(&http_attempt(at(2), AttemptVerdict::TimedOut, false));
    run.timeline.add_attempt(&http_attempt(at(3), AttemptVerdict::Failure, true));
    let period = period_of(&run, at(10));
    let [http] = &period.probes[..] else { panic!("{period:?}") };
    assert_eq!(http.series.handler, "httpGet http://:8080/healthz?token=s3cret");
    assert_eq!((http.series.prober.name(), http.series.failure_threshold), ("probeshim", Some(3)));
    let row = http.total();
    assert_eq!((row.successes, row.timeouts, row.failures, row.discarded), (1, 1, 0, 1));
    assert_eq!((row.attempts(), row.durations.count()), (3, 3));
}

#[test]
fn a_discarded_exec_attempt_counts_once_whenever_a_minute_ends_or_a_reader_asks() {
    let run = Run::start(None, 0, at(0), false);
    let add = |id, end, is_discarded| {
        let mut record = exec(id, end, Duration::from_millis(30), 1);
        let mut call = (*record.call).clone();
        call.exec.as_mut().unwrap().is_discarded = is_discarded;
        record.call = Arc::new(call);
        run.timeline.add_call(&Arc::new(record), Some(3));
    };
    add(1, at(58), true);
    assert_eq!(period_of(&run, at(59)).probes[0].total().discarded, 1);
    add(2, at(59), false);
    run.until(at(63));
    add(3, at(60), true);
    let period = period_of(&run, at(64));
    let row = period.probes[0].total();
    assert_eq!((row.discarded, row.failures, row.attempts(), row.durations.count()), (2, 1, 3, 3));
    let kept: Vec<u64> = period.calls.iter().map(|record| record.call.id).collect();
    assert_eq!((kept, row.failed_calls), (vec![2], vec![2]), "a discarded call is no evidence");
}

/// Returns the last hour of a run that records in memory.
fn period_of(run: &Run, now: SystemTime) -> Period {
    let mut reader = TimelineReader::new(now - Duration::from_secs(3600), now);
    let lines = run.flush(now).for_each(|line| {
        reader.add_line(line);
        Ok(())
    });
    lines.unwrap();
    reader.finish()
}

#[test]
fn a_period_has_what_is_not_written_yet_and_reading_it_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for records in [None, Some(dir.path())] {
        let run = Run::start(records, 64 << 20, at(0), false);
        run.timeline.add_call(&Arc::new(exec(1, at(1), Duration::from_millis(20), 0)), None);
        run.until(at(70));
        run.timeline.add_call(&Arc::new(exec(2, at(71), Duration::from_millis(20), 1)), None);
        run.timeline.add_attempt(&http_attempt(at(72), AttemptVerdict::Success, false));
        let read = || run.timeline.read_period(at(0), at(80), at(80), run.monotonic(at(80))).unwrap();
        let size = || records.map(directory_size);
        let first = read();
        let before = size();
        for _ in 0..3 {
            let again = read();
            let totals = |period: &Period| period.probes.iter().map(ProbeHistory::total).collect::<Vec<_>>();
            assert_eq!(totals(&again), totals(&first));
            assert_eq!(again.gaps, vec![], "the period is known until now");
        }
        assert_eq!(size(), before, "nothing is written");
        let attempts: u32 = first.probes.iter().map(|probe| probe.total().attempts()).sum();
        assert_eq!((attempts, first.calls.len()), (3, 1), "{first:?}");
        // The results that the reader has seen are written later, once.
        assert_eq!(
            period_of(&run, at(90)).probes.iter().map(|probe| probe.total().attempts()).sum::<u32>(),
            3
        );
        run.end(None);
    }
}

fn directory_size(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_late_exit_replaces_the_kept_call_and_counts_nothing_twice() {
    let run = Run::start(None, 0, at(0), false);
    let failed = |id| exec(id, at(5), Duration::from_millis(90), 1);
    run.timeline.add_call(&Arc::new(failed(1)), None);
    let amended = |id: u64, output: &str| {
        let mut record = failed(id);
        let mut call = (*record.call).clone();
        call.message = Some(output.into());
        record.call = Arc::new(call);
        Arc::new(CallRecord { is_amended: true, ..record })
    };
    run.timeline.add_call(&amended(1, "while open"), None);
    let message = |period: &Period| period.call(1).unwrap().call.message.as_deref().map(str::to_owned);
    assert_eq!(message(&period_of(&run, at(10))).as_deref(), Some("while open"));
    run.timeline.add_call(&amended(1, "when written"), None);
    run.timeline.add_call(&amended(2, "never kept"), None);
    let period = period_of(&run, at(20));
    assert_eq!((message(&period).as_deref(), period.calls.len()), (Some("when written"), 1));
    assert_eq!(period.probes[0].total().attempts(), 1);
}

#[test]
fn redacted_results_have_no_arguments_and_query_strings() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(Some(dir.path()), 64 << 20, at(0), true);
    run.timeline.add_attempt(&http_attempt(at(1), AttemptVerdict::Failure, false));
    run.timeline.add_call(&Arc::new(exec(1, at(2), Duration::from_millis(90), 1).redacted()), None);
    run.end(Some(at(10)));
    let lines = lines(dir.path());
    assert!(lines.contains("httpGet http://:8080/healthz") && lines.contains("\"cat\""), "{lines}");
    assert!(!lines.contains("s3cret"), "{lines}");
}

#[test]
fn results_that_were_written_without_redaction_are_redacted_when_they_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let open = Run::start(Some(dir.path()), 64 << 20, at(0), false);
    open.timeline.add_attempt(&http_attempt(at(1), AttemptVerdict::Failure, false));
    open.timeline.add_call(&Arc::new(exec(1, at(2), Duration::from_millis(90), 1)), None);
    open.events.record(Event::warning(reason::UNHEALTHY, "Liveness probe failed: s3cret"));
    open.end(Some(at(10)));
    assert!(lines(dir.path()).contains("s3cret"));
    let redacting = Run::start(Some(dir.path()), 64 << 20, at(20), true);
    redacting.events.record(Event::warning(reason::UNHEALTHY, "Liveness probe failed: exit code 7"));
    let _ = redacting.flush(at(21));
    let mut redactor = redacting.timeline.redactor().unwrap();
    let (mut shown, mut reader) = (String::new(), TimelineReader::new(at(0), at(30)));
    read_lines(dir.path(), |line| {
        let line = redactor.redact(line).unwrap();
        reader.add_line(&line);
        shown += &String::from_utf8(line).unwrap();
        Ok(())
    })
    .unwrap();
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("exit code 7"), "the events of this run are redacted when they occur");
    let handlers: Vec<String> =
        reader.finish().probes.into_iter().map(|probe| probe.series.handler).collect();
    assert!(handlers[0] == "cat" && handlers[1].starts_with("httpGet http://:8080/healthz?"), "{handlers:?}");
    redacting.end(None);
}

#[test]
fn dropped_observations_and_clock_steps_are_gaps_of_a_run() {
    let run = Run::start(None, 0, at(0), false);
    run.until(at(62));
    run.tap.drop_observations(5);
    run.tick(Duration::from_secs(63), 600);
    run.tick(Duration::from_secs(123), 600);
    let period = period_of(&run, at(723));
    let gaps: Vec<_> = period.gaps.iter().map(|gap| gap.cause.clone()).collect();
    assert!(gaps.contains(&GapCause::Dropped(5)), "{gaps:?}");
    let step = period.gaps.iter().find(|gap| matches!(gap.cause, GapCause::ClockStep(_))).unwrap();
    assert_eq!((step.from, step.to, &step.cause), (at(63), at(663), &GapCause::ClockStep(600.0)));
}

#[test]
fn the_oldest_results_are_removed_at_the_limit_and_the_rest_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 64 << 10;
    let run = Run::start(Some(dir.path()), limit, at(0), false);
    for minute in 0..1000_u64 {
        for second in [10, 20, 30] {
            let end = at(60 * minute + second);
            run.timeline.add_call(&Arc::new(exec(minute, end, Duration::from_millis(20), 0)), None);
            run.timeline.add_attempt(&http_attempt(end, AttemptVerdict::Success, false));
        }
        let _ = run.flush(at(60 * minute + 59));
    }
    run.timeline.set_runtime("containerd v2".to_owned());
    run.end(Some(at(60_000)));
    let sizes: Vec<u64> = PROBES.list(dir.path()).unwrap().into_iter().map(|(_, size)| size).collect();
    assert!(sizes.len() > 2 && sizes.iter().sum::<u64>() <= limit / 2 + 4096, "{sizes:?}");
    let period = read_period(dir.path(), at(0), at(60_000)).unwrap();
    assert_eq!(period.probes.len(), 2);
    let rows: Vec<u64> = period.probes[0].minutes.iter().map(|row| row.minute).collect();
    assert_eq!(rows.last().copied(), Some(29_000_000 + 996), "four minutes are merged");
    assert!(rows.len() > 5 && period.probes.iter().all(|probe| probe.minutes.len() == rows.len()));
    assert!(period.from > at(0) && period.gaps.is_empty(), "the period begins where the records do");
    let node = period.node.expect("each segment has the facts about the node");
    assert_eq!(node.runtime.as_deref(), Some("containerd v2"));
}

#[test]
fn a_minute_that_is_written_in_parts_is_merged_and_a_repeated_line_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(Some(dir.path()), 64 << 20, at(0), false);
    for id in 1..=3 {
        run.timeline.add_call(&Arc::new(exec(id, at(id), Duration::from_millis(20), 0)), None);
        run.timeline.flush(at(id), run.start.1 + Duration::from_secs(id));
    }
    run.end(Some(at(10)));
    let path = PROBES.path(dir.path(), 1);
    let text = fs::read_to_string(&path).unwrap();
    let torn = "{\"rows\":[29000000,1,";
    fs::write(&path, format!("{torn}\n{text}{text}{torn}")).unwrap();
    let period = read_period(dir.path(), at(0), at(20)).unwrap();
    assert_eq!(period.probes[0].total().successes, 3);
}

#[test]
fn a_period_has_only_rows_calls_and_events_of_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::start(Some(dir.path()), 64 << 20, at(0), false);
    for minute in 0..10_u64 {
        let end = at(60 * minute + 30);
        run.timeline.add_call(&Arc::new(exec(minute, end, Duration::from_millis(20), 1)), None);
        run.timeline.flush(end, run.start.1 + Duration::from_secs(60 * minute + 30));
    }
    run.end(Some(at(600)));
    let period = read_period(dir.path(), at(120), at(239)).unwrap();
    assert_eq!(period.probes[0].total().attempts(), 2);
    assert_eq!(period.calls.iter().map(|record| record.call.id).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(period.gaps, []);
    let later = read_period(dir.path(), at(10_000), at(20_000)).unwrap();
    assert_eq!((later.probes.len(), later.gaps.len()), (0, 1));
}

#[test]
fn clients_with_many_commands_leave_room_for_probes_and_are_counted_as_dropped() {
    let run = Run::start(None, 0, at(0), false);
    let command = |id: u64| {
        let mut record = exec(id, at(5), Duration::from_millis(30), 1);
        let mut call = (*record.call).clone();
        call.exec.as_mut().unwrap().command = vec![format!("{id:04000}")];
        record.call = Arc::new(call);
        Arc::make_mut(record.analysis.as_mut().unwrap()).identity = ProbeMatch::Unknown;
        Arc::new(record)
    };
    (0..1000).for_each(|id| run.timeline.add_call(&command(id), None));
    run.timeline.add_call(&Arc::new(exec(2000, at(6), Duration::from_millis(30), 0)), None);
    let period = period_of(&run, at(10));
    let (probes, others): (Vec<_>, Vec<_>) =
        period.probes.iter().partition(|probe| probe.series.probe == "liveness");
    assert_eq!(probes.len(), 1);
    assert!((50..500).contains(&others.len()), "{}", others.len());
    let dropped = period.gaps.iter().find_map(|gap| match gap.cause {
        GapCause::Dropped(count) => usize::try_from(count).ok(),
        _ => None,
    });
    assert_eq!(dropped, Some(1000 - others.len()));
    assert_eq!(period.calls.len(), 16, "few calls are kept");
    run.timeline.add_call(&command(3000), None);
    assert_eq!(period_of(&run, at(20)).probes.len(), others.len() + 2, "there is room again");
}

#[test]
fn a_process_that_has_handed_over_adds_its_last_results_beside_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let first = Run::start(Some(dir.path()), 64 << 20, at(0), false);
    first.timeline.add_call(&Arc::new(exec(1, at(1), Duration::from_millis(20), 0)), None);
    let RecordedLines::Dir(_) = first.flush(at(2)) else { panic!() };
    first.journal.as_ref().unwrap().hand_over(1000).unwrap();
    let second = Run::start(Some(dir.path()), 64 << 20, at(10), false);
    second.timeline.add_attempt(&http_attempt(at(11), AttemptVerdict::Success, false));
    let _ = second.flush(at(12));
    first.timeline.add_call(&Arc::new(exec(2, at(13), Duration::from_millis(20), 0)), None);
    first.end(Some(at(14)));
    second.timeline.add_attempt(&http_attempt(at(15), AttemptVerdict::Success, false));
    second.end(Some(at(20)));
    let period = read_period(dir.path(), at(0), at(20)).unwrap();
    let totals: Vec<u32> = period.probes.iter().map(|probe| probe.total().successes).collect();
    assert_eq!((totals, period.gaps), (vec![2, 2], vec![]));
}

#[test]
fn a_directory_of_an_earlier_version_is_read_call_by_call() {
    let dir = tempfile::tempdir().unwrap();
    let events = Arc::new(EventRecorder::default());
    let config = JournalConfig { dir: dir.path().to_owned(), limit: 1 << 20 };
    let (journal, thread) = Journal::start(config, 0, events).unwrap();
    journal.write(Arc::new(exec(1, at(1), Duration::from_millis(20), 1)));
    journal.write(Arc::new(CallRecord { is_amended: true, ..exec(1, at(1), Duration::from_millis(20), 1) }));
    drop(journal);
    thread.join().unwrap();
    let period = read_period(dir.path(), at(0), at(20)).unwrap();
    assert_eq!((period.probes[0].total().failures, period.calls.len()), (1, 1));
    assert!(read_period(&dir.path().join("missing"), at(0), at(20)).is_err());
}

#[test]
fn results_that_cannot_be_written_become_dropped_observations() {
    let batch = |number: u64, rows: u64| TimelineBatch {
        run: 1,
        number,
        start: None,
        from: at(60 * number),
        to: at(60 * number + 60),
        rows: (0..rows)
            .map(|_| {
                (
                    Arc::new(ProbeSeries::of_attempt(
                        &http_attempt(at(0), AttemptVerdict::Success, false),
                        false,
                    )),
                    Minute { successes: 2, ..Minute::default() },
                )
            })
            .collect(),
        calls: Vec::new(),
        events: Vec::new(),
        irregularities: Vec::new(),
        is_last: false,
    };
    let mut second = TimelineBatch { start: None, ..batch(2, 1) };
    second.replace(TimelineBatch { start: Some((at(0), NodeFacts::default())), ..batch(1, 3) });
    assert_eq!((second.attempts(), second.from), (2, at(60)));
    assert!(second.start.is_some());
    let ms = |seconds: u64| u64::try_from(START.as_millis()).unwrap() + 1000 * seconds;
    assert_eq!(second.irregularities, [Irregularity::Dropped(ms(60), ms(120), 6)]);
}
