//! Measures the record of results over time: its size for a day, and the time to load it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use probeshim::events::EventRecorder;
use probeshim::execsync::CallRecord;
use probeshim::history::journal::{Journal, JournalConfig};
use probeshim::history::json;
use probeshim::history::recorder::{Timeline, TimelineSources, read_period};
use probeshim::history::timeline::NodeFacts;
use tokio::time::Instant;

/// Number of exec probes of a kubelet, and of their attempts in a minute and in a day.
const PROBES: u64 = 200;
const PER_MINUTE: u64 = 6;
const MINUTES: u64 = 24 * 60;

/// Longest time in which a day is loaded.
const MAX_LOAD: Duration = Duration::from_secs(1);

/// Writes a day of results with the writer of probeshim, and loads it.
pub(crate) fn history() {
    let dir = tempfile::tempdir().unwrap();
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(60 * 29_000_000);
    let end = start + Duration::from_secs(60 * MINUTES);
    let began = Instant::now();
    write(dir.path(), start);
    let written = began.elapsed();
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    let results = files.filter(|file| file.file_name().to_string_lossy().starts_with("probes-"));
    let bytes: u64 = results.map(|file| file.metadata().unwrap().len()).sum();
    println!(
        "history: a day of {PROBES} probes takes {:.1} MiB; written in {:.1} s",
        bytes as f64 / f64::from(1 << 20),
        written.as_secs_f64()
    );
    let loads = [(); 5].map(|()| {
        let began = Instant::now();
        let period = read_period(dir.path(), start, end).unwrap();
        let took = began.elapsed();
        let attempts: u64 = period.probes.iter().map(|probe| u64::from(probe.total().attempts())).sum();
        assert_eq!(attempts, PROBES * PER_MINUTE * MINUTES);
        assert_eq!(period.gaps, []);
        took
    });
    let [best, worst] = [loads.iter().min(), loads.iter().max()].map(|load| load.unwrap().as_secs_f64());
    println!("history: it is loaded in {best:.2} to {worst:.2} s");
    assert!(worst < MAX_LOAD.as_secs_f64(), "loading a day takes more than {MAX_LOAD:?}");
}

fn write(dir: &Path, start: SystemTime) {
    let events = Arc::new(EventRecorder::default());
    let config = JournalConfig { dir: dir.to_owned(), limit: 1 << 30 };
    let (journal, thread) = Journal::start(config, 1, events.clone()).unwrap();
    let sources = TimelineSources { events, ..TimelineSources::default() };
    let monotonic = Instant::now();
    let timeline = Timeline::new(sources, Some(journal.clone()), NodeFacts::default(), start, monotonic);
    let probes: Vec<CallRecord> = (0..PROBES).map(record).collect();
    let mut id = 0;
    for minute in 0..MINUTES {
        let elapsed = Duration::from_secs(60 * minute);
        for round in 0..PER_MINUTE {
            for (probe, record) in (0..).zip(&probes) {
                id += 1;
                let mut record = record.clone();
                let call = Arc::make_mut(&mut record.call);
                call.id = id;
                call.start = start + elapsed + Duration::from_secs(10 * round + probe % 9);
                // Durations differ as those of a busy node do.
                call.duration = Duration::from_micros(25_000 + id * 7919 % 40_000);
                timeline.add_call(&Arc::new(record), Some(3));
            }
        }
        let tick = elapsed + Duration::from_secs(62);
        timeline.tick(start + tick, monotonic + tick);
        journal.flush();
    }
    let day = Duration::from_secs(60 * MINUTES + 3);
    timeline.end(start + day, monotonic + day);
    drop((timeline, journal));
    thread.join().unwrap();
}

/// Returns an attempt of an exec probe. One probe of a hundred fails all day.
fn record(probe: u64) -> CallRecord {
    let fails = probe.is_multiple_of(100);
    let call = serde_json::json!({
        "id": 1, "start": "2026-11-21T20:11:48.644Z", "method": "ExecSync", "durationMs": 30.0, "code": "OK",
        "requestBytes": 79, "responseBytes": 5, "peer": {"uid": 0, "pid": 812, "program": "kubelet"},
        "pod": {"id": format!("{probe:064}"), "namespace": "shop", "name": format!("web-7d4b9c6f8-{probe:05}"),
                "uid": format!("{probe:036}")},
        "container": {"id": format!("{probe:064}"), "name": "main", "attempt": 0},
        "exec": {
            "command": ["sh", "-c", "wget -q -O /dev/null http://localhost:8080/healthz"],
            "commandTruncated": false, "timeoutSeconds": 1, "exitCode": u8::from(fails), "stdoutBytes": 0,
            "stderrBytes": 0,
            "probe": {"type": "liveness", "source": "kubelet", "confidence": 1.0, "periodMs": 10_000.0},
            "marginMs": 900.0,
            "phases": {"state": "complete", "queueMs": 0.2, "prepareMs": 4.4, "startMs": 20.1, "runMs": 3.3,
                       "drainMs": 2.2, "otherMs": 0.1, "missing": null},
            "assessment": if fails { "failed" } else { "fine" }, "slowBecause": null, "startedMs": null,
            "exitedMs": null, "exitStatus": null, "killed": null, "evidence": null,
        },
    });
    CallRecord::try_from(serde_json::from_value::<json::Call>(call).unwrap()).unwrap()
}
