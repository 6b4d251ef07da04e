//! What the demo tells on the terminal.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::tally::Tally;
use crate::procrun;
use crate::socket::SocketPath;
use crate::terminal::harmless;
use crate::terminal::human;
use crate::terminal::screen::{Screen, print};

/// Tells what happens, with the time since the demo began.
#[derive(Clone, Debug)]
pub struct Account {
    start: Instant,
    screen: Screen,
    /// Cancelled when nobody reads any more.
    unread: CancellationToken,
}

/// Where everything is, for those who want to look while it runs.
#[derive(Clone, Debug)]
pub struct Where {
    /// procrun's socket.
    pub upstream: SocketPath,
    /// The relay's.
    pub listen: SocketPath,
    /// The admin socket.
    pub admin: SocketPath,
    /// The address of metrics and health.
    pub http: Option<SocketAddr>,
}

/// What there is to tell at the end.
#[derive(Clone, Debug)]
pub struct DemoEnd {
    /// What came of the probes of each pod.
    pub tallies: Vec<Tally>,
    /// Calls that went through the relay.
    pub calls: u64,
    /// Those of them that were not seen.
    pub unseen: u64,
}

/// How something is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
}

impl Account {
    /// Begins to tell: what this is, and where one can look.
    #[must_use]
    pub fn begin(lasts: Duration, places: &Where) -> Self {
        let account =
            Self { start: Instant::now(), screen: Screen::of_stdout(), unread: CancellationToken::new() };
        let Where { upstream, listen, admin, http } = places;
        let http = http.map_or_else(String::new, |http| format!("metrics   http://{http}/metrics\n"));
        // As it was called, so that it can be called so again.
        let program = std::env::args().next().unwrap_or_else(|| "probeshim".to_owned());
        let admin = admin.as_path().display().to_string();
        let look = [&program, "calls", "-f", "--admin", &admin].map(str::to_owned);
        let look = human::command(&look);
        account.show(&format!(
            "{}\n\nprobeshim in front of it for {}, or until Ctrl-C:\n\
             runtime   {upstream}\nprobeshim {listen}\n{http}look      {look}\n\n",
            procrun::WARNING,
            Self::duration(lasts),
        ));
        account
    }

    /// Tells something of a pod.
    pub(super) fn tell(&self, pod: &str, text: &str) {
        self.say(pod, text, Tone::Plain);
    }

    /// The same, in a tone.
    pub(super) fn say(&self, pod: &str, text: &str, tone: Tone) {
        let style = match tone {
            _ if !self.screen.colour => Style::new(),
            Tone::Plain => Style::new(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
        };
        let (seconds, text) = (self.start.elapsed().as_secs_f64(), harmless(text));
        self.show(&format!("{seconds:5.1}s  {pod:<8}{style}{text}{style:#}\n"));
    }

    /// Sums up.
    pub fn end(&self, end: &DemoEnd) {
        let mut text = format!("\n{:<8}{:>8}{:>8}{:>10}\n", "POD", "PASSED", "FAILED", "SLOWEST");
        for Tally { pod, passed, failed, slowest } in &end.tallies {
            let slowest = if passed + failed > 0 { Self::duration(*slowest) } else { "-".to_owned() };
            let _ = writeln!(text, "{pod:<8}{passed:>8}{failed:>8}{slowest:>10}");
        }
        let DemoEnd { calls, unseen, .. } = end;
        let _ = writeln!(
            text,
            "\n{calls} calls went through probeshim byte for byte, {unseen} of them unseen. Pods, processes and files are gone."
        );
        self.show(&text);
    }

    pub(super) fn duration(duration: Duration) -> String {
        human::duration(duration)
    }

    /// Waits until nobody reads any more.
    pub async fn unread(&self) {
        self.unread.cancelled().await;
    }

    fn show(&self, text: &str) {
        if !matches!(print(text), Ok(true)) {
            self.unread.cancel();
        }
    }
}
