//! Events that change the state of `top`, and the effects that it requests.

use std::time::SystemTime;

use ratatui::crossterm::event::KeyEvent;

use crate::admin::api::{Call, CallsQuery, Explanation, PauseBody, ResumeBody, Status};
use crate::overview::ProbeKey;
use crate::report::Report;

/// Change from outside: a key, or an answer of probeshim.
#[derive(Clone, Debug)]
pub enum TopEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// The size of the terminal has changed, or its content is lost.
    Resize,
    /// The terminal can no longer be read.
    TerminalClosed,
    /// The status of probeshim at a time.
    Status(Box<Status>, SystemTime),
    /// The results of the period, with the findings of the lints.
    Period(PeriodReport),
    /// An ExecSync has ended.
    Call(Box<Call>),
    /// This number of calls was not received, because `top` was too slow.
    Missed(u64),
    /// The calls of a probe, and the explanation of one of them.
    Inspected(Box<Inspected>),
    /// A pause or its end was requested: the result in words, or the error.
    Answered(Result<String, String>),
    /// probeshim does not answer.
    Disconnected(String),
}

/// The report about the last hour, or another period that ends at present.
#[derive(Clone, Debug)]
pub struct PeriodReport(pub Box<Report>);

/// Action outside of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum TopEffect {
    /// Ends `top`.
    Quit,
    /// Stops the process until it is continued.
    Suspend,
    /// Queries the calls of a probe.
    Inspect(Box<InspectRequest>),
    /// Begins a pause.
    Pause(PauseBody),
    /// Ends pauses.
    Resume(ResumeBody),
}

/// Calls to be queried.
#[derive(Clone, Debug, PartialEq)]
pub struct InspectRequest {
    /// The probe.
    pub key: ProbeKey,
    /// Id of the call to be explained.
    pub explain: Option<u64>,
    /// The calls of the probe.
    pub calls: CallsQuery,
}

/// The last calls of a probe, and the explanation of one.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The probe.
    pub key: ProbeKey,
    /// The explanation of the call; `None` if there is no call, or if it is not recorded any more.
    pub explanation: Option<Explanation>,
    /// The last calls, the oldest first.
    pub calls: Vec<Call>,
}
