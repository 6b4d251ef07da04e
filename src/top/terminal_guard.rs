//! Puts the terminal into the mode that `top` needs, and restores it however `top` ends.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use rustix::process::{Signal, getpid, kill_process};

/// Whether the terminal is in the mode of `top`.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal in raw mode, with the alternate screen. Both end when the guard is dropped, and
/// before a panic is reported.
#[derive(Debug)]
pub(super) struct TerminalGuard {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TerminalGuard {
    /// Takes the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                report(info);
            }));
        });
        take()?;
        // Restores the terminal also if the next step fails.
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| restore())?;
        Ok(Self { terminal })
    }

    /// Stops the process with the restored terminal, and takes the terminal again once the process
    /// is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        // A handler of SIGTSTP is installed, so that signal would not stop the process.
        kill_process(getpid(), Signal::STOP)?;
        self.resume()
    }

    /// Takes the terminal again, with an empty screen.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // A shell may have changed the mode in the meantime, so it is set again.
        let _ = disable_raw_mode();
        take()?;
        // `Terminal::clear` would query the position of the cursor, and the thread that reads keys
        // would get the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    IS_TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode().inspect_err(|_| restore())?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| restore())
}

/// Restores the terminal, once: leaving the alternate screen twice would move the cursor into the
/// message of a panic. Errors are ignored: the terminal may be gone.
fn restore() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
