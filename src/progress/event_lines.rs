//! Events of pods as lines of text.

use std::collections::BTreeMap;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use crate::events::{Event, reason};
use crate::terminal::screen::Screen;
use crate::terminal::{sanitize, width};

/// Reasons of the Normal events that are printed. Warning events are all printed, and `probeshim
/// events` shows the others.
const SHOWN_REASONS: [&str; 9] = [
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
    /// Containers that are being stopped, by namespace, pod and name, and the verb for it.
    stopped: BTreeMap<[String; 3], &'static str>,
}

impl EventLines {
    pub(super) fn new(screen: Screen) -> Self {
        Self { screen, label_width: 0, stopped: BTreeMap::new() }
    }

    /// Makes the column wide enough for a pod and one of its containers.
    pub(super) fn expect(&mut self, pod: &str, container: &str) {
        let columns = width(pod) + 1 + width(container);
        self.label_width = self.label_width.max(columns.min(MAX_LABEL_WIDTH));
    }

    /// Returns the line of an event of a pod; `None` if the event is not printed.
    pub(super) fn line(&mut self, event: &Event, elapsed: Duration) -> Option<String> {
        let pod = event.pod.as_deref()?;
        let name = pod.name.as_deref()?;
        let container = event.container.as_deref().and_then(|container| container.name.as_deref());
        let mut message = sanitize(event.message.trim());
        if let Some(container) = container {
            let key = [pod.namespace.as_deref().unwrap_or_default(), name, container].map(str::to_owned);
            match event.reason {
                reason::KILLING => {
                    let is_end_of_pod = message.starts_with("Stopping container");
                    self.stopped.insert(key, if is_end_of_pod { "stopped" } else { "killed" });
                }
                // The kubelet's reason "Completed" stands for the exit code 0, also after a kill.
                reason::CONTAINER_EXITED => {
                    if let Some(verb) = self.stopped.remove(&key) {
                        message = format!("{} after it was {verb}", message.trim_end_matches(" (Completed)"));
                    }
                }
                _ => {}
            }
        }
        if !event.is_warning() && !SHOWN_REASONS.contains(&event.reason) {
            return None;
        }
        let label = sanitize(&[Some(name), container].map(Option::unwrap_or_default).join(" "));
        let label = label.trim_end();
        self.label_width = self.label_width.max(width(label).min(MAX_LABEL_WIDTH));
        let blanks = " ".repeat(self.label_width.saturating_sub(width(label)));
        let style = match event.reason {
            _ if !self.screen.colour => Style::new(),
            _ if event.is_warning() => AnsiColor::Red.on_default(),
            reason::STARTED => AnsiColor::Green.on_default(),
            _ => Style::new(),
        };
        let (seconds, reason) = (elapsed.as_secs_f64(), event.reason);
        Some(format!("{seconds:5.1}s  {label}{blanks}  {style}{reason}: {message}{style:#}\n"))
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
        assert!(line(exited()).ends_with("(Completed)\n"));
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
