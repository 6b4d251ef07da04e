//! Dialogs: a duration is entered, or a pause is chosen, and the change is confirmed.

use ratatui::crossterm::event::KeyCode;

use super::event::TopEffect;
use crate::admin::api::{Pause, PauseBody, ResumeBody};
use crate::config::BoundedDuration;
use crate::overview::ProbeKey;
use crate::policy::PauseSelector;

/// Duration of a pause that is offered first.
const DEFAULT_DURATION: &str = "5m";

/// Maximum length of a duration.
const MAX_DURATION_LENGTH: usize = 12;

/// A dialog above the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dialog {
    /// The duration of a pause is entered.
    PauseDuration { selector: String, text: String, error: Option<String> },
    /// A pause must be confirmed.
    ConfirmPause { body: PauseBody, duration: String },
    /// The pause to end is chosen, and must be confirmed.
    ConfirmResume { pauses: Vec<Pause>, chosen: usize },
}

/// Effect of a key on a dialog.
#[derive(Debug, PartialEq)]
pub(super) enum DialogOutcome {
    /// The dialog stays, perhaps changed.
    Stays(Dialog),
    /// The dialog was cancelled.
    Cancelled,
    /// The change was confirmed.
    Confirmed(TopEffect),
}

impl Dialog {
    /// Creates the dialog that pauses the container of a probe. The error says why its name cannot
    /// be selected.
    pub(super) fn pause(key: &ProbeKey) -> Result<Self, String> {
        let names = [("namespace", &key.namespace), ("pod", &key.pod), ("container", &key.container)];
        let given = || names.iter().filter(|(_, name)| !name.is_empty());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if key.pod.is_empty() || !given().all(|(_, name)| name.chars().all(is_plain)) {
            return Err("a pause selects by name, and this name is none that Kubernetes allows".to_owned());
        }
        let selector = given().map(|(key, name)| format!("{key}={name}")).collect::<Vec<_>>().join(",");
        selector.parse::<PauseSelector>().map_err(|error| error.to_string())?;
        Ok(Self::PauseDuration { selector, text: DEFAULT_DURATION.to_owned(), error: None })
    }

    /// Applies a key.
    pub(super) fn on_key(self, key: KeyCode) -> DialogOutcome {
        match (self, key) {
            (_, KeyCode::Esc) => DialogOutcome::Cancelled,
            (Self::PauseDuration { selector, text, .. }, key) => Self::on_duration_key(selector, text, key),
            (Self::ConfirmPause { body, .. }, KeyCode::Char('y')) => {
                DialogOutcome::Confirmed(TopEffect::Pause(body))
            }
            (Self::ConfirmResume { pauses, chosen }, KeyCode::Char('y')) => {
                let names = pauses.into_iter().skip(chosen).take(1).map(|pause| pause.name).collect();
                DialogOutcome::Confirmed(TopEffect::Resume(ResumeBody { names }))
            }
            (Self::ConfirmResume { pauses, chosen }, KeyCode::Down | KeyCode::Char('j')) => {
                let chosen = (chosen + 1).min(pauses.len().saturating_sub(1));
                DialogOutcome::Stays(Self::ConfirmResume { pauses, chosen })
            }
            (Self::ConfirmResume { pauses, chosen }, KeyCode::Up | KeyCode::Char('k')) => {
                DialogOutcome::Stays(Self::ConfirmResume { pauses, chosen: chosen.saturating_sub(1) })
            }
            (_, KeyCode::Char('n' | 'q')) => DialogOutcome::Cancelled,
            // Enter confirms nothing: it may have been pressed for the dialog before.
            (dialog, _) => DialogOutcome::Stays(dialog),
        }
    }

    fn on_duration_key(selector: String, mut text: String, key: KeyCode) -> DialogOutcome {
        match key {
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if c.is_ascii_alphanumeric() && text.len() < MAX_DURATION_LENGTH => text.push(c),
            KeyCode::Enter => {
                return DialogOutcome::Stays(match text.parse::<BoundedDuration<1>>() {
                    Ok(duration) => {
                        let for_ms = std::time::Duration::from(duration).as_millis();
                        let body = PauseBody {
                            name: None,
                            selector,
                            for_ms: u64::try_from(for_ms).unwrap_or(u64::MAX),
                            readiness: false,
                            all: false,
                        };
                        Self::ConfirmPause { body, duration: text }
                    }
                    Err(error) => Self::PauseDuration { selector, text, error: Some(error.to_string()) },
                });
            }
            _ => {}
        }
        DialogOutcome::Stays(Self::PauseDuration { selector, text, error: None })
    }
}
