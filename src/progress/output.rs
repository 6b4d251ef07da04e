//! Writes the progress of pods, on a thread of its own: a reader that blocks delays no pod.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::event_lines::EventLines;
use super::ready_pods::ReadyPods;
use crate::events::Event;
use crate::history::json;
use crate::kubelet::Kubelet;
use crate::telemetry::{LineWriter, LogGuard, start_lines};
use crate::terminal::format::harmless_json;
use crate::terminal::screen::Screen;

/// Format and destination of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressFormat {
    /// Lines of text on standard output.
    Text,
    /// Lines of text on standard error, because standard output belongs to a command.
    TextOnStderr,
    /// The JSON of `events -o json`, one event per line, on standard output.
    Json,
    /// Nothing.
    Quiet,
}

/// Prints the progress of pods. Clones share the output, which is written to the end when the last
/// clone is dropped.
#[derive(Clone, Debug)]
pub struct Progress {
    format: ProgressFormat,
    screen: Screen,
    start: Instant,
    lines: LineWriter,
    events: Arc<Mutex<EventLines>>,
    /// Cancelled when the output is closed.
    unread: CancellationToken,
    _guard: Arc<LogGuard>,
}

/// Standard output or standard error, and the detection of its end.
struct Destination {
    output: Box<dyn Write + Send>,
    unread: CancellationToken,
}

impl Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.output
            .write_all(line)
            .and_then(|()| self.output.flush())
            .inspect_err(|_| self.unread.cancel())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl Progress {
    /// Starts the thread that writes.
    pub fn start(format: ProgressFormat) -> io::Result<Self> {
        let unread = CancellationToken::new();
        let (output, screen): (Box<dyn Write + Send>, _) = match format {
            ProgressFormat::TextOnStderr => (Box::new(io::stderr()), Screen::stderr()),
            _ => (Box::new(io::stdout()), Screen::stdout()),
        };
        let (lines, guard) = start_lines(Destination { output, unread: unread.clone() })?;
        let events = Arc::new(Mutex::new(EventLines::new(screen)));
        Ok(Self { format, screen, start: Instant::now(), lines, events, unread, _guard: Arc::new(guard) })
    }

    /// Starts a task that prints events as they happen, until `end` is cancelled and the events
    /// recorded until then are printed. `is_shown` selects events.
    pub fn follow(
        &self,
        mut events: Receiver<Arc<Event>>,
        end: CancellationToken,
        is_shown: impl Fn(&Event) -> bool + Send + 'static,
    ) -> JoinHandle<()> {
        let progress = self.clone();
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    biased;
                    event = events.recv() => event,
                    () = end.cancelled() => return,
                };
                match event {
                    Ok(event) if is_shown(&event) => progress.report(&event),
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        })
    }

    /// Starts a task that prints a line for each pod that becomes ready, until `end` is cancelled.
    /// Only formats for people have such lines.
    pub fn follow_readiness(&self, kubelet: Kubelet, end: CancellationToken) {
        if !self.is_text() {
            return;
        }
        let progress = self.clone();
        tokio::spawn(end.run_until_cancelled_owned(async move {
            let (mut changes, mut ready) = (kubelet.changes(), ReadyPods::default());
            while changes.changed().await.is_ok() {
                for event in ready.update(&kubelet.published_pods()) {
                    progress.report(&event);
                }
            }
        }));
    }

    /// Makes the column of names wide enough for pods and their containers.
    pub fn expect(&self, names: impl IntoIterator<Item = (String, String)>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for (pod, container) in names {
            events.expect(&pod, &container);
        }
    }

    /// Returns whether texts for people are printed.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.format, ProgressFormat::Text | ProgressFormat::TextOnStderr)
    }

    /// Prints a text for people, which other formats omit.
    pub fn say(&self, text: &str) {
        if self.is_text() {
            self.write(&self.screen.encode(text));
        }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until the output is closed.
    pub async fn closed(&self) {
        self.unread.cancelled().await;
    }

    fn report(&self, event: &Event) {
        match self.format {
            ProgressFormat::Quiet => {}
            ProgressFormat::Json => {
                if let Ok(line) = serde_json::to_string(&json::Event::from(event)) {
                    self.write(&(harmless_json(&line) + "\n"));
                }
            }
            ProgressFormat::Text | ProgressFormat::TextOnStderr => {
                let line = self
                    .events
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .line(event, self.start.elapsed());
                if let Some(line) = line {
                    self.write(&self.screen.encode(&line));
                }
            }
        }
    }

    fn write(&self, text: &str) {
        // The queue accepts each line, or drops it if the reader is stuck.
        let _ = self.lines.clone().write_all(text.as_bytes());
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").finish_non_exhaustive()
    }
}
