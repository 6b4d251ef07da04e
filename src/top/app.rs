//! The state of `top`, and its changes.

use std::time::SystemTime;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::column::SortColumn;
use super::detail::ProbeDetail;
use super::dialog::{Dialog, DialogOutcome};
use super::event::{PeriodReport, TopEffect, TopEvent};
use super::filter::{FILTER_KEYS, RowFilter};
use crate::admin::api::Status;
use crate::lint::LintFinding;
use crate::overview::{CurrentPods, LastResults, ProbeKey, ProbeRow, rows};
use crate::report::Report;

/// Maximum length of the filter, in bytes.
const MAX_FILTER: usize = 200;

/// Number of rows that a page key moves by.
const PAGE: usize = 10;

/// The state of `top`.
#[derive(Debug, Default)]
pub struct TopApp {
    pub(super) status: Option<Status>,
    pub(super) report: Option<Box<Report>>,
    pub(super) live: LastResults,
    pub(super) rows: Vec<ProbeRow>,
    /// Indices of the rows that the filter selects, in their order.
    pub(super) visible: Vec<usize>,
    /// The selected row, which stays selected when rows move.
    pub(super) selected: Option<ProbeKey>,
    pub(super) sort: SortColumn,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) is_filtering: bool,
    pub(super) view: TopView,
    pub(super) dialog: Option<Dialog>,
    /// Text of the last line: the result of a request, or an error.
    pub(super) message: Option<String>,
    /// Reason for which the connection is lost.
    pub(super) disconnected: Option<String>,
    /// Calls per second between the last two status reports.
    pub(super) call_rate: Option<f64>,
    /// Number of calls that `top` did not receive.
    pub(super) missed: u64,
    observed: Option<(u64, SystemTime)>,
}

/// Content of the screen.
#[derive(Clone, Debug, Default)]
pub(super) enum TopView {
    /// The table of probes.
    #[default]
    Table,
    /// A probe.
    Detail(Box<ProbeDetail>),
    /// Findings of the lints, with the number of the selected one.
    Findings(usize),
    /// The keys.
    Help,
}

impl TopApp {
    /// Applies an event. Returns what must be done because of it.
    pub fn update(&mut self, event: TopEvent) -> Option<TopEffect> {
        match event {
            TopEvent::Key(key) => return self.on_key(key),
            TopEvent::Resize => {}
            TopEvent::TerminalClosed => return Some(TopEffect::Quit),
            TopEvent::Status(status, at) => self.on_status(*status, at),
            TopEvent::Period(PeriodReport(report)) => {
                self.report = Some(report);
                self.update_rows();
                return self.inspect();
            }
            TopEvent::Call(call) => {
                self.live.add(&call);
                if let TopView::Detail(detail) = &mut self.view {
                    detail.on_call(&call);
                }
            }
            TopEvent::Missed(count) => self.missed = self.missed.saturating_add(count),
            TopEvent::Inspected(inspected) => {
                if let TopView::Detail(detail) = &mut self.view {
                    detail.on_inspected(*inspected);
                }
            }
            TopEvent::Answered(result) => self.message = Some(result.unwrap_or_else(|error| error)),
            TopEvent::Disconnected(reason) => {
                self.disconnected = Some(reason);
                (self.call_rate, self.observed) = (None, None);
                // Results before the interruption may be old.
                self.live.clear();
            }
        }
        None
    }

    fn on_status(&mut self, status: Status, at: SystemTime) {
        self.disconnected = None;
        let observed = status.calls.observed;
        let rate = |(before, then): (u64, SystemTime)| {
            let seconds = at.duration_since(then).ok()?.as_secs_f64();
            let calls = u32::try_from(observed.checked_sub(before)?).ok()?;
            (seconds > 0.0).then(|| f64::from(calls) / seconds)
        };
        self.call_rate = self.observed.and_then(rate);
        self.observed = Some((observed, at));
        self.status = Some(status);
        self.update_rows();
    }

    fn on_key(&mut self, key: KeyEvent) -> Option<TopEffect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(TopEffect::Quit),
                KeyCode::Char('z') => Some(TopEffect::Suspend),
                _ => None,
            };
        }
        if let Some(dialog) = self.dialog.take() {
            return self.on_dialog_key(dialog, key.code);
        }
        if self.is_filtering {
            self.on_filter_key(key.code);
            return None;
        }
        self.message = None;
        match (key.code, &self.view) {
            (KeyCode::Char('q'), _) => return Some(TopEffect::Quit),
            (KeyCode::Char('?') | KeyCode::F(1), _) => self.view = TopView::Help,
            (KeyCode::Char('l'), _) => self.view = TopView::Findings(0),
            (KeyCode::Char('p'), TopView::Table | TopView::Detail(_)) => self.pause(),
            (KeyCode::Char('r'), TopView::Table | TopView::Detail(_)) => self.resume(),
            (KeyCode::Esc | KeyCode::Backspace | KeyCode::Left | KeyCode::Char('h'), view) => {
                if matches!((view, key.code), (TopView::Table, KeyCode::Esc)) {
                    self.filter.clear();
                    self.update_visible();
                }
                self.view = TopView::Table;
            }
            (KeyCode::Enter | KeyCode::Right, _) => return self.open(),
            (KeyCode::Char('/'), TopView::Table) => self.is_filtering = true,
            (KeyCode::Char('s'), TopView::Table) => self.sort_by(self.sort.next()),
            (KeyCode::Char('S'), TopView::Table) => {
                self.is_reversed = !self.is_reversed;
                self.update_visible();
            }
            (code, _) => self.on_move_key(code),
        }
        None
    }

    /// Applies a key that moves, or that sorts by a column.
    fn on_move_key(&mut self, code: KeyCode) {
        let end = usize::MAX;
        let (back, ahead) = match code {
            KeyCode::Down | KeyCode::Char('j') => (0, 1),
            KeyCode::Up | KeyCode::Char('k') => (1, 0),
            KeyCode::PageDown | KeyCode::Char(' ') => (0, PAGE),
            KeyCode::PageUp => (PAGE, 0),
            KeyCode::Home | KeyCode::Char('g') => (end, 0),
            KeyCode::End | KeyCode::Char('G') => (0, end),
            KeyCode::Char(letter) => {
                if let (Some(column), TopView::Table) = (SortColumn::for_key(letter), &self.view) {
                    let is_same = column == self.sort;
                    let is_reversed = is_same && !self.is_reversed;
                    self.sort_by(column);
                    self.is_reversed = is_reversed;
                    self.update_visible();
                }
                return;
            }
            _ => return,
        };
        let moved = |place: usize| place.saturating_sub(back).saturating_add(ahead);
        let last = self.findings().len().saturating_sub(1);
        match &mut self.view {
            TopView::Detail(detail) => detail.scroll = moved(detail.scroll),
            TopView::Findings(chosen) => *chosen = moved(*chosen).min(last),
            TopView::Help => {}
            TopView::Table => {
                let place = moved(self.place()).min(self.visible.len().saturating_sub(1));
                self.selected = self.visible.get(place).map(|index| self.rows[*index].key.clone());
            }
        }
    }

    fn on_filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Esc => {
                self.filter.clear();
                self.is_filtering = false;
            }
            KeyCode::Enter | KeyCode::Down | KeyCode::Up => self.is_filtering = false,
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.len() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
        let unknown = RowFilter::new(&self.filter).unknown;
        self.message = unknown.map(|key| format!("{key}= is unknown: {}=, failed", FILTER_KEYS.join("=, ")));
        self.update_visible();
    }

    fn on_dialog_key(&mut self, dialog: Dialog, code: KeyCode) -> Option<TopEffect> {
        match dialog.on_key(code) {
            DialogOutcome::Stays(dialog) => self.dialog = Some(dialog),
            DialogOutcome::Cancelled => self.message = Some("nothing was changed".to_owned()),
            DialogOutcome::Confirmed(effect) => return Some(effect),
        }
        None
    }

    /// Opens the selected probe, or the probe of the selected finding.
    fn open(&mut self) -> Option<TopEffect> {
        let key = match &self.view {
            TopView::Table => self.selected_row().map(|row| row.key.clone()),
            TopView::Findings(chosen) => {
                let finding = self.findings().get(*chosen)?;
                self.rows.iter().map(|row| &row.key).find(|key| key.is_subject(&finding.subject)).cloned()
            }
            TopView::Detail(_) | TopView::Help => None,
        }?;
        self.selected = Some(key.clone());
        self.view = TopView::Detail(Box::new(ProbeDetail::new(key)));
        self.inspect()
    }

    /// Requests the calls of the probe of the detail pane.
    fn inspect(&self) -> Option<TopEffect> {
        let TopView::Detail(detail) = &self.view else { return None };
        Some(TopEffect::Inspect(Box::new(detail.request(&self.rows, self.report.as_deref()))))
    }

    fn pause(&mut self) {
        let key = match &self.view {
            TopView::Detail(detail) => Some(&detail.key),
            _ => self.selected_row().map(|row| &row.key),
        };
        match key.map(Dialog::pause) {
            Some(Ok(dialog)) => self.dialog = Some(dialog),
            Some(Err(reason)) => self.message = Some(reason),
            None => self.message = Some("no probe is selected".to_owned()),
        }
    }

    fn resume(&mut self) {
        let pauses = self.status.as_ref().map(|status| status.pauses.clone()).unwrap_or_default();
        if pauses.is_empty() {
            self.message = Some("no pause is active".to_owned());
        } else {
            self.dialog = Some(Dialog::ConfirmResume { pauses, chosen: 0 });
        }
    }

    fn sort_by(&mut self, column: SortColumn) {
        (self.sort, self.is_reversed) = (column, false);
        self.update_visible();
    }

    fn update_rows(&mut self) {
        let now = self.status.as_ref().map(|status| CurrentPods { mode: &status.mode, pods: &status.pods });
        self.rows = rows(self.report.as_deref(), now, &self.live);
        self.update_visible();
    }

    /// Selects and sorts the rows. Until a key moves the selection, the first row is selected.
    fn update_visible(&mut self) {
        let filter = RowFilter::new(&self.filter);
        self.visible = (0..self.rows.len()).filter(|index| filter.matches(&self.rows[*index])).collect();
        let (rows, sort, is_reversed) = (&self.rows, self.sort, self.is_reversed);
        self.visible.sort_by(|one, other| {
            let order = sort.compare(&rows[*one], &rows[*other]);
            if is_reversed { order.reverse() } else { order }
        });
    }

    /// Returns the place of the selected row among the visible ones; the first if it is not
    /// visible.
    pub(super) fn place(&self) -> usize {
        let Some(selected) = &self.selected else { return 0 };
        self.visible.iter().position(|index| self.rows[*index].key == *selected).unwrap_or_default()
    }

    pub(super) fn selected_row(&self) -> Option<&ProbeRow> {
        self.visible.get(self.place()).map(|index| &self.rows[*index])
    }

    /// Returns the findings of the lints, the worst first.
    pub(super) fn findings(&self) -> &[LintFinding] {
        self.report.as_ref().map_or(&[], |report| &report.findings)
    }
}
