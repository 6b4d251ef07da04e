//! Measures the time in which `top` draws 1,000 rows.

use std::time::{Duration, SystemTime};

use probeshim::history::timeline::{Minute, PeriodBuilder, ProbeSeries, Prober};
use probeshim::report::{ReportInput, Selection, report};
use probeshim::top::{PeriodReport, TopApp, TopEvent, TopScreen, draw};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tokio::time::Instant;

/// Number of probes, and of minutes of their results.
const PROBES: usize = 1000;
const MINUTES: u64 = 60;

/// Number of drawings of each kind.
const DRAWINGS: u32 = 200;

/// Draws all rows on a terminal that is high enough, and the visible ones on a usual terminal.
pub(crate) fn top() {
    let mut app = TopApp::default();
    let began = Instant::now();
    let period = period();
    let input = ReportInput {
        generated: SystemTime::now(),
        source: String::new(),
        selection: Selection::default(),
        findings: Vec::new(),
    };
    let results = report(&period, input);
    let made = began.elapsed();
    let began = Instant::now();
    app.update(TopEvent::Period(PeriodReport(Box::new(results))));
    println!(
        "top: an hour of {PROBES} probes becomes a report in {:.1} ms, and rows in {:.1} ms",
        milliseconds(made),
        milliseconds(began.elapsed())
    );
    for (width, height) in [(160, 1010), (160, 50), (80, 24)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let began = Instant::now();
        for _ in 0..DRAWINGS {
            terminal.draw(|frame| draw(frame, &app, TopScreen::new(true, true))).unwrap();
        }
        let took = milliseconds(began.elapsed() / DRAWINGS);
        let rows = PROBES.min(usize::from(height) - 5);
        println!("top: {rows} of {PROBES} rows are drawn at {width}x{height} in {took:.2} ms");
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn period() -> probeshim::history::timeline::Period {
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(60 * 29_000_000);
    let mut builder = PeriodBuilder::new(start, start + Duration::from_secs(60 * MINUTES), 1);
    for probe in 0..PROBES {
        let series = ProbeSeries {
            namespace: format!("namespace-{}", probe % 20),
            pod: format!("web-7d4b9c6f8-{probe:05}"),
            container: "main".to_owned(),
            probe: ["liveness", "readiness", "startup"][probe % 3].to_owned(),
            prober: Prober::Kubelet,
            handler: "cat /tmp/healthy".to_owned(),
            command: vec!["cat".to_owned(), "/tmp/healthy".to_owned()],
            timeout: Some(Duration::from_secs(1)),
            period: Some(Duration::from_secs(10)),
            failure_threshold: Some(3),
        };
        for number in 0..MINUTES {
            // The worst result changes in every fifth minute of some probes, so that strips have
            // many spans.
            let timeouts = u32::from(probe % 7 == 0 && number % 5 == 0);
            let minute = Minute::number(start) + number;
            let mut minute = Minute { minute, successes: 6 - timeouts, timeouts, ..Minute::default() };
            for attempt in 0..6 {
                minute.durations.add(Duration::from_millis(10 + attempt * 7 + number % 9));
            }
            builder.add_minute(series.clone(), &minute);
        }
    }
    builder.build()
}
