//! The lines of an active capture, as a stream.

use std::time::Duration;

use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::format::{CaptureEnd, CaptureEndReason, CaptureHeader, CaptureLine, CapturedCall};
use super::hub::{CaptureItem, CaptureSession};
use crate::cri::Redaction;
use crate::tap::TapMetrics;

/// Maximum number of calls that are formatted together.
const BATCH_CALLS: usize = 64;

/// Time after the end of a capture in which its last calls are analyzed. Events about an exec
/// arrive up to a second late.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Terms of a capture.
#[derive(Debug)]
pub struct CaptureTerms {
    /// The first line.
    pub header: CaptureHeader,
    /// Duration of the capture.
    pub duration: Duration,
    /// Extent of the redaction.
    pub redaction: Redaction,
    /// Counter of calls that were not observed.
    pub tap: TapMetrics,
}

/// A capture in progress.
struct CaptureProgress {
    session: CaptureSession,
    redaction: Redaction,
    tap: TapMetrics,
    unobserved_before: u64,
    /// Time at which the next stage begins.
    until: Instant,
    stage: CaptureStage,
    calls: u64,
    missed: u64,
}

enum CaptureStage {
    Header(Box<CaptureHeader>),
    Capturing,
    /// The duration is over, and the last calls are analyzed.
    Flushing,
    Ended,
}

/// Returns the lines of a capture, in pieces. Messages are decoded on a thread for blocking work.
pub fn capture_lines(session: CaptureSession, terms: CaptureTerms) -> impl Stream<Item = String> + Send {
    let CaptureTerms { header, duration, redaction, tap } = terms;
    let progress = CaptureProgress {
        session,
        redaction,
        unobserved_before: tap.observations_dropped(),
        tap,
        until: Instant::now() + duration,
        stage: CaptureStage::Header(Box::new(header)),
        calls: 0,
        missed: 0,
    };
    stream::unfold(progress, |mut progress| async move {
        let lines = progress.next().await?;
        Some((lines, progress))
    })
}

impl CaptureProgress {
    async fn next(&mut self) -> Option<String> {
        match std::mem::replace(&mut self.stage, CaptureStage::Capturing) {
            CaptureStage::Header(header) => return Some(line(&header)),
            CaptureStage::Ended => return None,
            stage => self.stage = stage,
        }
        let mut items = Vec::new();
        loop {
            tokio::select! {
                count = self.session.recv_many(&mut items, BATCH_CALLS) => {
                    if count == 0 {
                        break;
                    }
                    return Some(self.format(items).await);
                }
                () = sleep_until(self.until) => {
                    if matches!(self.stage, CaptureStage::Flushing) {
                        break;
                    }
                    self.session.finish();
                    self.stage = CaptureStage::Flushing;
                    self.until = Instant::now() + FLUSH_TIMEOUT;
                }
            }
        }
        self.stage = CaptureStage::Ended;
        Some(self.end())
    }

    async fn format(&mut self, items: Vec<CaptureItem>) -> String {
        let (count, redaction) = (items.len() as u64, self.redaction);
        self.missed += items.iter().map(|item| item.missed).sum::<u64>();
        let formatted = spawn_blocking(move || items.iter().map(|item| lines(item, redaction)).collect());
        let Ok(lines) = formatted.await else {
            // A panic loses only these calls.
            self.missed += count;
            return line(&CaptureLine::Missed { missed: count });
        };
        self.calls += count;
        lines
    }

    fn end(&self) -> String {
        let missed = self.session.missed();
        let unobserved = self.tap.observations_dropped().saturating_sub(self.unobserved_before);
        let end = CaptureEnd {
            reason: CaptureEndReason::Duration,
            calls: self.calls,
            missed: self.missed + missed,
            unobserved: Some(unobserved),
        };
        let gap = if missed > 0 { line(&CaptureLine::Missed { missed }) } else { String::new() };
        gap + &line(&CaptureLine::End { end })
    }
}

/// Returns the lines of a call: the gap before it, if there is one, and the call.
fn lines(item: &CaptureItem, redaction: Redaction) -> String {
    let gap = match item.missed {
        0 => String::new(),
        missed => line(&CaptureLine::Missed { missed }),
    };
    gap + &line(&CaptureLine::Call(Box::new(CapturedCall::new(item, redaction))))
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("the lines of a capture are JSON") + "\n"
}
