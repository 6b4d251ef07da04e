//! A period for tests of lints: attempts and calls of probes, built as probeshim builds them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::facts::PeriodFacts;
use super::finding::LintFinding;
use crate::cri::Code;
use crate::execsync::{
    Assessment, CallRecord, Evidence, ExecAnalysis, PhaseDurations, Phases, ProbeMatch, Slow, TimeoutMargin,
};
use crate::history::json::Event;
use crate::history::timeline::{Gap, Minute, Period, PeriodBuilder, ProbeHistory, ProbeSeries, Prober};
use crate::manifest::{ExecPurpose, Source};
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallOutcome, Peer};
use crate::tap::{Call, ExecCall, ExecResult};

/// Start of the period and of a minute, in seconds.
const START: u64 = 1_000_000_020;

/// Length of the period.
const PERIOD: Duration = Duration::from_secs(3600);

/// Builds a period. Attempts belong to the probe that was added last.
pub(super) struct Fixture {
    builder: PeriodBuilder,
    series: Vec<ProbeSeries>,
    rows: Vec<(ProbeSeries, Minute)>,
    last_id: u64,
    /// Unique id of the pod in events.
    pod_uid: Option<String>,
}

/// A call before it is recorded.
pub(super) struct CallDraft {
    pub(super) call: Call,
    pub(super) exec: ExecCall,
    pub(super) analysis: ExecAnalysis,
    evidence: Option<Evidence>,
}

impl CallDraft {
    /// Returns the phases, which are complete.
    pub(super) fn parts(&mut self) -> &mut PhaseDurations {
        match &mut self.analysis.phases {
            Phases::Complete(parts) => parts,
            other => panic!("no complete phases: {other:?}"),
        }
    }

    /// Returns the evidence.
    pub(super) fn evidence(&mut self) -> &mut Evidence {
        let window = self.call.duration;
        self.evidence.get_or_insert_with(|| Evidence {
            window,
            psi_window: window,
            in_flight: (1, 1),
            load: Some((0.5, 4)),
            ..Evidence::default()
        })
    }

    /// Sets the exit code.
    pub(super) fn exit(&mut self, exit_code: i32) {
        self.exec.result = Some(ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
        self.analysis.assessment = Assessment::Failed;
    }

    /// Makes the call end with an error of the runtime.
    pub(super) fn fail(&mut self, code: Code, message: &str) {
        self.end(CallOutcome::Completed(Some(code)));
        self.call.message = Some(message.into());
    }

    /// Makes the call end without a result.
    pub(super) fn end(&mut self, ending: CallOutcome) {
        self.call.ending = ending;
        self.exec.result = None;
        self.analysis.assessment = Assessment::Failed;
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        let from = UNIX_EPOCH + Duration::from_secs(START);
        let builder = PeriodBuilder::new(from, from + PERIOD, 1);
        Self { builder, series: Vec::new(), rows: Vec::new(), last_id: 0, pod_uid: None }
    }

    /// Adds a probe of a kubelet of this type, with changes.
    pub(super) fn probe(mut self, probe: &str, change: impl FnOnce(&mut ProbeSeries)) -> Self {
        let mut series = ProbeSeries {
            namespace: "shop".to_owned(),
            pod: "web-0".to_owned(),
            container: "main".to_owned(),
            probe: probe.to_owned(),
            prober: Prober::Kubelet,
            handler: "check".to_owned(),
            command: vec!["check".to_owned()],
            timeout: Some(Duration::from_secs(5)),
            period: Some(Duration::from_secs(10)),
            failure_threshold: None,
        };
        change(&mut series);
        self.series.push(series);
        self
    }

    /// Adds a liveness probe with a command.
    pub(super) fn command(self, command: &[&str]) -> Self {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        self.probe("liveness", |probe| {
            probe.handler = crate::terminal::format::command(&command);
            probe.command = command;
        })
    }

    /// Adds quick successes of this duration in milliseconds.
    pub(super) fn attempts(self, count: u32, milliseconds: u64) -> Self {
        self.calls(count, milliseconds, |call| call.analysis.assessment = Assessment::Fine)
    }

    /// Adds slow successes.
    pub(super) fn slow(self, count: u32, milliseconds: u64) -> Self {
        self.calls(count, milliseconds, |_| {})
    }

    /// Adds slow successes with changes.
    pub(super) fn slow_with(self, count: u32, milliseconds: u64, change: impl Fn(&mut CallDraft)) -> Self {
        self.calls(count, milliseconds, change)
    }

    /// Adds attempts that time out.
    pub(super) fn timeouts(self, count: u32) -> Self {
        self.calls(count, 2010, |call| call.fail(Code::DEADLINE_EXCEEDED, "command timed out"))
    }

    /// Adds an event about container main of pod shop/web-0.
    pub(super) fn event(self, reason: &str, message: &str) -> Self {
        self.event_at(0, reason, message)
    }

    /// Adds an event about container main of pod shop/web-0, so many seconds after the start of the
    /// period.
    pub(super) fn event_at(self, seconds: u64, reason: &str, message: &str) -> Self {
        self.add_event("main", seconds, reason, message)
    }

    /// Adds an event about a container of the pod.
    pub(super) fn event_of(self, container: &str, reason: &str, message: &str) -> Self {
        self.add_event(container, 0, reason, message)
    }

    /// Sets the unique id of the pod for the events that are added afterwards.
    pub(super) fn of_pod(mut self, uid: &str) -> Self {
        self.pod_uid = Some(uid.to_owned());
        self
    }

    fn add_event(mut self, container: &str, seconds: u64, reason: &str, message: &str) -> Self {
        let text = |text: &str| Some(text.to_owned());
        self.builder.add_event(Event {
            time: crate::history::json::time(Self::start() + Duration::from_secs(seconds)),
            r#type: "Warning".to_owned(),
            reason: reason.to_owned(),
            namespace: text("shop"),
            pod: text("web-0"),
            container: text(container),
            message: message.to_owned(),
            count: 1,
            first_time: None,
            pod_uid: self.pod_uid.clone(),
        });
        self
    }

    /// Adds a gap, whose times are relative to the start of the period.
    pub(super) fn gap(mut self, gap: impl FnOnce(SystemTime) -> Gap) -> Self {
        self.builder.add_gap(gap(Self::start()));
        self
    }

    /// Adds a row of results.
    pub(super) fn row(mut self, change: impl FnOnce(&mut Minute)) -> Self {
        let mut minute = Minute { minute: Minute::number(Self::start()), ..Minute::default() };
        change(&mut minute);
        let series = self.current().clone();
        self.rows.push((series, minute));
        self
    }

    /// Adds calls, as changed by `change`.
    pub(super) fn calls(mut self, count: u32, milliseconds: u64, change: impl Fn(&mut CallDraft)) -> Self {
        for _ in 0..count {
            self.last_id += 1;
            let (id, start) = (self.last_id, Self::start() + Duration::from_secs(self.last_id));
            let mut draft = draft(self.current(), id, start, Duration::from_millis(milliseconds));
            change(&mut draft);
            let CallDraft { mut call, exec, mut analysis, evidence } = draft;
            call.exec = Some(Box::new(exec));
            analysis.evidence = evidence.map(Arc::new);
            let record = CallRecord::unanalyzed(call, None, None);
            self.builder.add_call(&Arc::new(CallRecord { analysis: Some(Arc::new(analysis)), ..record }));
        }
        self
    }

    pub(super) fn build(self) -> Period {
        let mut period = self.builder.build();
        for (series, minute) in self.rows {
            match period.probes.iter_mut().find(|probe| probe.series == series) {
                Some(known) => known.minutes.push(minute),
                None => period.probes.push(ProbeHistory { series, minutes: vec![minute] }),
            }
        }
        period
    }

    fn start() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(START)
    }

    fn current(&mut self) -> &ProbeSeries {
        if self.series.is_empty() {
            self.series = Self::new().probe("liveness", |_| {}).series;
        }
        self.series.last().unwrap()
    }
}

/// Returns the only finding of a lint in a period, as a topic computes it.
pub(super) fn only(
    topic: impl Fn(&PeriodFacts<'_>) -> Vec<LintFinding>,
    facts: Fixture,
    lint: &str,
) -> Option<LintFinding> {
    let period = facts.build();
    let mut found: Vec<LintFinding> =
        topic(&PeriodFacts::new(&period)).into_iter().filter(|finding| finding.lint == lint).collect();
    assert!(found.len() < 2, "{found:?}");
    found.pop()
}

fn draft(series: &ProbeSeries, id: u64, start: SystemTime, duration: Duration) -> CallDraft {
    let text = |text: &str| Some(text.to_owned());
    let mut call = Call::sample(id, "/runtime.v1.RuntimeService/ExecSync", start, duration);
    call.ending = CallOutcome::Completed(Some(Code::OK));
    call.pod = Some(Arc::new(PodRef {
        id: text("s"),
        namespace: text(&series.namespace),
        name: text(&series.pod),
        uid: None,
    }));
    call.container =
        Some(Arc::new(ContainerRef { id: text("c"), name: text(&series.container), attempt: None }));
    call.peer = Some(Arc::new(Peer { uid: 0, pid: None, program: text(series.prober.name()) }));
    let uses: Vec<ExecPurpose> = series.probe.split(" or ").filter_map(ExecPurpose::named).collect();
    let identity = if uses.is_empty() {
        ProbeMatch::Unknown
    } else {
        ProbeMatch::Matched { uses, source: Source::Manifest, period: series.period }
    };
    let seconds = series.timeout.map_or(0, |timeout| i64::try_from(timeout.as_secs()).unwrap());
    let margin = series.timeout.map(|timeout| match timeout.checked_sub(duration) {
        Some(margin) => TimeoutMargin::Under(margin),
        None => TimeoutMargin::Over(duration.saturating_sub(timeout)),
    });
    CallDraft {
        call,
        exec: ExecCall {
            command: series.command.clone(),
            timeout_seconds: seconds,
            result: Some(ExecResult { exit_code: 0, stdout_bytes: 0, stderr_bytes: 0 }),
            ..ExecCall::default()
        },
        analysis: ExecAnalysis {
            identity,
            phases: Phases::Complete(PhaseDurations {
                prepare: Some(Duration::ZERO),
                start: Some(Duration::ZERO),
                run: Some(duration),
                drain: Some(Duration::ZERO),
                ..PhaseDurations::default()
            }),
            margin,
            command_outcome: None,
            container_exited: false,
            assessment: Assessment::Slow(Slow::HalfOfTimeout),
            evidence: None,
        },
        evidence: None,
    }
}
