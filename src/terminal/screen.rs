//! Standard output: its width, its colours, and the detection of a closed pipe.

use std::io::{self, IsTerminal as _, Write as _};

use super::is_no_color;

/// Maximum width of lines, and use of colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Width of the terminal, in columns; `None` for no limit.
    pub(crate) width: Option<usize>,
    /// Whether styles are written.
    pub(crate) colour: bool,
}

impl Screen {
    /// Returns the properties of standard output. Only a terminal has a width limit, and colours
    /// unless `NO_COLOR` or `TERM=dumb` disables them.
    pub(crate) fn stdout() -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Self { width: None, colour: false };
        }
        let width = rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        // A terminal that does not know its width reports 0.
        Self { width: width.filter(|width| *width > 0), colour: !is_no_color() && !is_dumb }
    }
}

/// Prints lines. Returns `false` once standard output is closed, as in `probeshim calls | head`.
pub fn print(text: &str) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(gone) if gone.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}
