//! Output of the demo on the terminal.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::events::{Event, EventType};
use crate::kubelet::{PodStatusExt as _, PublishedPod, Summary};
use crate::procrun;
use crate::socket::SocketPath;
use crate::terminal::format;
use crate::terminal::sanitize;
use crate::terminal::screen::Screen;

/// Prints events with the time since the start of the demo.
#[derive(Clone, Debug)]
pub struct Reporter {
    start: Instant,
    screen: Screen,
    /// Cancelled when standard output is closed.
    unread: CancellationToken,
}

/// Sockets and files of the demo, which are printed for users who want to inspect it.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Socket of procrun.
    pub upstream: SocketPath,
    /// Socket of the relay.
    pub listen: SocketPath,
    /// The admin socket.
    pub admin: SocketPath,
    /// Address of metrics and health.
    pub http: Option<SocketAddr>,
    /// File of the manifests.
    pub pods: PathBuf,
}

/// Summary at the end of the demo.
#[derive(Clone, Debug)]
pub struct DemoEnd {
    /// Last state of the pods.
    pub pods: Vec<PublishedPod>,
    /// Number of calls that went through the relay.
    pub calls: u64,
    /// Number of calls that were forwarded but not observed.
    pub unseen: u64,
}

/// Reasons of events that are printed. `probeshim events` shows the others.
const SHOWN_REASONS: [&str; 6] =
    ["SandboxStarted", "Started", "Unhealthy", "Killing", "BackOff", "ContainerExited"];

impl Reporter {
    /// Prints the introduction with the sockets and files of the demo.
    #[must_use]
    pub fn begin(lasts: Duration, places: &Endpoints) -> Self {
        let account =
            Self { start: Instant::now(), screen: Screen::stdout(), unread: CancellationToken::new() };
        let Endpoints { upstream, listen, admin, http, pods } = places;
        let http = http.map_or_else(String::new, |http| format!("metrics   http://{http}/metrics\n"));
        // The path by which the program was called, so that the printed command works.
        let program = std::env::args().next().unwrap_or_else(|| "probeshim".to_owned());
        let admin = admin.as_path().display().to_string();
        let look = [&program, "calls", "-f", "--admin", &admin].map(str::to_owned);
        let look = format::command(&look);
        account.print(&format!(
            "{}\n\nprobeshim relays its calls for {}, or until Ctrl-C:\n\
             runtime   {upstream}\nprobeshim {listen}\n{http}pods      {}\nobserve   {look}\n\n",
            procrun::WARNING,
            format::duration(lasts),
            pods.display(),
        ));
        account
    }

    /// Prints an event of a pod.
    pub fn report(&self, event: &Event) {
        let pod = event.pod.as_ref().and_then(|pod| pod.name.as_deref());
        let Some(pod) = pod.filter(|_| SHOWN_REASONS.contains(&event.reason)) else { return };
        let style = match (event.severity, event.reason) {
            _ if !self.screen.colour => Style::new(),
            (EventType::Warning, _) => AnsiColor::Red.on_default(),
            (_, "Started") => AnsiColor::Green.on_default(),
            _ => Style::new(),
        };
        let (seconds, text) = (self.start.elapsed().as_secs_f64(), sanitize(event.message.trim()));
        let reason = event.reason;
        self.print(&format!("{seconds:5.1}s  {pod:<8}{style}{reason}: {text}{style:#}\n"));
    }

    /// Prints the summary.
    pub fn end(&self, end: &DemoEnd) {
        let mut text = format!("\n{:<8}{:>6}{:>10}  STATUS\n", "POD", "READY", "RESTARTS");
        for published in &end.pods {
            let (_, name) = published.names();
            let ready =
                if published.status().is_some_and(|status| status.is("Ready")) { "yes" } else { "no" };
            let Summary { restarts, status_column, .. } = published.summary();
            let _ = writeln!(text, "{name:<8}{ready:>6}{restarts:>10}  {status_column}");
        }
        let DemoEnd { calls, unseen, .. } = end;
        let _ = writeln!(
            text,
            "\n{calls} calls passed through probeshim unchanged; {unseen} of them were not observed. All pods, processes and files were removed."
        );
        self.print(&text);
    }

    /// Waits until standard output is closed.
    pub async fn closed(&self) {
        self.unread.cancelled().await;
    }

    fn print(&self, text: &str) {
        if !matches!(self.screen.print(text), Ok(true)) {
            self.unread.cancel();
        }
    }
}
