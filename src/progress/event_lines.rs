//! Events of pods as lines of text.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::ready_pods::READY;
use super::repetitions::Repetitions;
use crate::events::{Event, reason};
use crate::report::StoppedContainers;
use crate::terminal::screen::Screen;
use crate::terminal::{sanitize, width};

/// Reasons of the Normal events that are printed. Warning events are all printed, and `probeshim
/// events` shows the others.
const SHOWN_REASONS: [&str; 10] = [
    READY,
    reason::SANDBOX_STARTED,
    reason::SANDBOX_CHANGED,
    reason::PULLING,
    reason::STARTED,
    reason::KILLING,
    reason::KILL_ABORTED,
    reason::BACK_OFF,
    reason::CONTAINER_EXITED,
    reason::DEADLINE_EXCEEDED,
];

/// Maximum width of the column with pod and container. Longer names move the message to the right.
const MAX_LABEL_WIDTH: usize = 32;

/// Formats events as lines with the time since the start.
#[derive(Debug)]
pub(super) struct EventLines {
    screen: Screen,
    /// Width of the column with pod and container, which grows with the names.
    label_width: usize,
    stopped: StoppedContainers,
    repetitions: Repetitions,
}

impl EventLines {
    pub(super) fn new(screen: Screen) -> Self {
        Self {
            screen,
            label_width: 0,
            stopped: StoppedContainers::default(),
            repetitions: Repetitions::default(),
        }
    }

    /// Makes the column wide enough for a pod and one of its containers.
    pub(super) fn expect(&mut self, pod: &str, container: &str) {
        let columns = width(pod) + 1 + width(container);
        self.label_width = self.label_width.max(columns.min(MAX_LABEL_WIDTH));
    }

    /// Returns the line of an event of a pod; `None` if the event is not printed. Of equal events,
    /// those are printed with which their number has doubled, with the number.
    pub(super) fn line(&mut self, event: &Event, elapsed: Duration) -> Option<String> {
        let pod = event.pod.as_deref()?;
        let name = pod.name.as_deref()?;
        let container = event.container.as_deref().and_then(|container| container.name.as_deref());
        let mut message = sanitize(event.message.trim());
        if let Some(container) = container {
            let key = [pod.namespace.as_deref().unwrap_or_default(), name, container];
            message = self.stopped.message(key, event.reason, &message).into_owned();
        }
        if !event.is_warning() && !SHOWN_REASONS.contains(&event.reason) {
            return None;
        }
        let count = self.repetitions.count(event, &message);
        if !count.is_power_of_two() {
            return None;
        }
        let repeated = if count > 1 { format!(" (x{count})") } else { String::new() };
        let label = sanitize(&[Some(name), container].map(Option::unwrap_or_default).join(" "));
        let label = label.trim_end();
        self.label_width = self.label_width.max(width(label).min(MAX_LABEL_WIDTH));
        let blanks = " ".repeat(self.label_width.saturating_sub(width(label)));
        let style = match event.reason {
            _ if !self.screen.colour => Style::new(),
            _ if event.is_warning() => AnsiColor::Red.on_default(),
            reason::STARTED | READY => AnsiColor::Green.on_default(),
            _ => Style::new(),
        };
        let (seconds, reason) = (elapsed.as_secs_f64(), event.reason);
        Some(format!("{seconds:5.1}s  {label}{blanks}  {style}{reason}: {message}{style:#}{repeated}\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::snapshots::assert_screens;
    use crate::object_ref::{ContainerRef, PodRef};

    const PLAIN: Screen = Screen { width: Some(80), colour: false, utf8: true };

    fn about(event: Event, pod: &str) -> Event {
        let pod = PodRef { name: Some(pod.to_owned()), ..PodRef::default() };
        let container = ContainerRef { name: Some("main".to_owned()), ..ContainerRef::default() };
        event.for_container(Arc::new(pod), Arc::new(container))
    }

    #[test]
    fn an_exit_after_a_kill_does_not_read_as_a_completion() {
        let mut lines = EventLines::new(PLAIN);
        let mut line = |event: Event| lines.line(&event, Duration::from_millis(12_340)).unwrap_or_default();
        let exited =
            || about(Event::normal(reason::CONTAINER_EXITED, "Exited with code 0 (Completed)"), "web");
        assert_eq!(line(exited()), " 12.3s  web main  ContainerExited: Exited with code 0 (Completed)\n");
        let killing =
            Event::normal(reason::KILLING, "Container main failed liveness probe, will be restarted");
        assert!(line(about(killing, "web")).contains("Killing: Container main failed"));
        assert_eq!(
            line(exited()),
            " 12.3s  web main  ContainerExited: Exited with code 0 after it was killed\n"
        );
        assert!(line(exited()).contains("(Completed)"), "the kill was that of the exit before");
    }

    #[test]
    fn equal_events_of_a_container_are_printed_when_their_number_has_doubled_since_its_start() {
        let mut lines = EventLines::new(PLAIN);
        let mut print = |event: Event| lines.line(&event, Duration::ZERO);
        let failed = || about(Event::warning(reason::UNHEALTHY, "Readiness probe failed"), "web");
        let printed: Vec<String> = (0..9).filter_map(|_| print(failed())).collect();
        let line =
            |repeated: &str| format!("  0.0s  web main  Unhealthy: Readiness probe failed{repeated}\n");
        assert_eq!(printed, ["", " (x2)", " (x4)", " (x8)"].map(line));
        assert!(print(about(Event::warning(reason::UNHEALTHY, "Liveness probe failed"), "web")).is_some());
        assert!(print(about(Event::warning(reason::UNHEALTHY, "Readiness probe failed"), "api")).is_some());
        assert!(print(about(Event::normal(reason::STARTED, "Started"), "web")).is_some());
        assert_eq!(print(failed()), Some(line("")));
    }

    #[test]
    fn the_events_of_play_are_shown_on_every_kind_of_screen() {
        let events = [
            about(Event::normal(reason::STARTED, "Started"), "web"),
            about(Event::warning(reason::UNHEALTHY, "Liveness probe failed: größer als 5 µs\n"), "web"),
            about(
                Event::normal(reason::KILLING, "Container main failed liveness probe, will be restarted"),
                "web",
            ),
            about(Event::normal(reason::CONTAINER_EXITED, "Exited with code 137 (Error)"), "web"),
            about(Event::warning(reason::BACK_OFF, "Back-off restarting failed container"), "a-longer-name"),
        ];
        assert_screens("play_events", |screen| {
            let mut lines = EventLines::new(screen);
            events.iter().filter_map(|event| lines.line(event, Duration::from_millis(12_340))).collect()
        });
    }

    #[test]
    fn warnings_and_the_main_steps_of_a_pod_are_printed_in_columns() {
        let mut lines = EventLines::new(PLAIN);
        let mut line = |event: Event| lines.line(&event, Duration::ZERO);
        let started = line(about(Event::normal(reason::STARTED, "Container started\n"), "longer-name"));
        assert_eq!(started.as_deref(), Some("  0.0s  longer-name main  Started: Container started\n"));
        let warning = line(about(Event::warning(reason::FAILED, "Error: \u{1b}[2J"), "web"));
        assert_eq!(warning.as_deref(), Some("  0.0s  web main          Failed: Error: \\u{1b}[2J\n"));
        assert_eq!(line(about(Event::normal(reason::CREATED, "Container created"), "web")), None);
        assert_eq!(line(Event::warning(reason::INVALID_SPEC, "not about a pod, so it is in the log")), None);
    }
}
