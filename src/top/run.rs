//! Connects the state of `top` to a terminal and to a running probeshim.

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{Event, read};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};

use super::app::TopApp;
use super::draw::draw;
use super::event::{TopEffect, TopEvent};
use super::source::{follow_calls, request, watch_period, watch_status};
use super::symbols::TopScreen;
use super::terminal_guard::TerminalGuard;
use crate::admin::Client;

/// Capacity of the queue of events.
const QUEUE_CAPACITY: usize = 1024;

/// Minimum time between two drawings, unless a key was pressed: calls can end a thousand times per
/// second.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Environment variable that makes `top` of a debug build panic at the first key, for a test of the
/// restored terminal.
const PANIC_VARIABLE: &str = "PROBESHIM_TOP_PANIC";

/// Error of `top`.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Standard input or output is not a terminal that can place texts.
    #[error("top needs a terminal: {0}; `probeshim probes` prints a table")]
    NoTerminal(&'static str),
    /// The terminal cannot be read or written.
    #[error("the terminal failed: {0}")]
    Terminal(#[from] io::Error),
}

/// Shows the probes of a probeshim until a key or a signal ends it. `length` is the length of the
/// period before the present.
pub async fn run(client: Client, length: Duration) -> Result<(), TopError> {
    let mut signals = TopSignals::new()?;
    let mut guard = TerminalGuard::enter()?;
    let (sender, mut events) = channel(QUEUE_CAPACITY);
    let tasks = [
        tokio::spawn(watch_status(client.clone(), sender.clone())),
        tokio::spawn(watch_period(client.clone(), length, sender.clone())),
        tokio::spawn(follow_calls(client.clone(), sender.clone())),
    ];
    let keys = sender.clone();
    // The thread ends with the process: a read of the terminal cannot be interrupted.
    thread::Builder::new().name("top-keys".to_owned()).spawn(move || read_keys(&keys))?;
    let result = show(&client, &mut guard, &sender, &mut events, &mut signals).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    result
}

/// Returns an error unless `top` can use standard input and output.
pub(crate) fn check_terminal() -> Result<(), TopError> {
    if !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal("standard output is not a terminal"));
    }
    if !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal("standard input is not a terminal"));
    }
    if std::env::var_os("TERM").is_none_or(|terminal| terminal.is_empty() || terminal == "dumb") {
        return Err(TopError::NoTerminal("TERM is unset or dumb"));
    }
    Ok(())
}

/// Signals that `top` handles.
#[derive(Debug)]
struct TopSignals {
    /// Signals that end `top`.
    end: [Signal; 4],
    stop: Signal,
    cont: Signal,
}

impl TopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            end: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::quit())?,
            ],
            stop: signal(SignalKind::from_raw(libc::SIGTSTP))?,
            cont: signal(SignalKind::from_raw(libc::SIGCONT))?,
        })
    }
}

/// Draws the state and applies events, until one ends `top`.
async fn show(
    client: &Client,
    guard: &mut TerminalGuard,
    sender: &Sender<TopEvent>,
    events: &mut Receiver<TopEvent>,
    signals: &mut TopSignals,
) -> Result<(), TopError> {
    let (mut app, screen) = (TopApp::default(), TopScreen::stdout());
    let must_panic = cfg!(debug_assertions) && std::env::var_os(PANIC_VARIABLE).is_some();
    let mut draw_at = Some(Instant::now());
    loop {
        let [terminate, hangup, interrupt, quit] = &mut signals.end;
        let event = tokio::select! {
            biased;
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = quit.recv() => return Ok(()),
            _ = signals.stop.recv() => { guard.suspend()?; TopEvent::Resize }
            _ = signals.cont.recv() => { guard.resume()?; TopEvent::Resize }
            () = sleep_until(draw_at.unwrap_or_else(Instant::now)), if draw_at.is_some() => {
                guard.terminal.draw(|frame| draw(frame, &app, screen))?;
                draw_at = None;
                continue;
            }
            event = events.recv() => match event {
                Some(event) => event,
                None => return Ok(()),
            },
        };
        let is_urgent = matches!(event, TopEvent::Key(_) | TopEvent::Resize | TopEvent::Inspected(_));
        assert!(!(must_panic && matches!(event, TopEvent::Key(_))), "{PANIC_VARIABLE} is set");
        let at = if is_urgent { Instant::now() } else { Instant::now() + DRAW_INTERVAL };
        draw_at = Some(draw_at.map_or(at, |known| known.min(at)));
        match app.update(event) {
            None => {}
            Some(TopEffect::Quit) => return Ok(()),
            Some(TopEffect::Suspend) => guard.suspend()?,
            Some(effect) => {
                let (client, sender) = (client.clone(), sender.clone());
                tokio::spawn(async move {
                    if let Some(event) = request(client, effect).await {
                        let _ = sender.send(event).await;
                    }
                });
            }
        }
    }
}

/// Reads keys and changes of the size until `top` ends.
fn read_keys(events: &Sender<TopEvent>) {
    loop {
        let event = match read() {
            Ok(Event::Key(key)) => TopEvent::Key(key),
            Ok(Event::Resize(..)) => TopEvent::Resize,
            Ok(_) => continue,
            Err(_) => TopEvent::TerminalClosed,
        };
        let is_closed = matches!(event, TopEvent::TerminalClosed);
        if events.blocking_send(event).is_err() || is_closed {
            return;
        }
    }
}
