//! `probeshim` without a subcommand: whether a probeshim is running, and what to try.

use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;

use super::admin_args::AdminArgs;
use super::lint::last_hour_findings;
use super::probe_result::OFF;
use super::query::parse_status;
use super::status::counts;
use super::{CliError, instances};
use crate::admin::ClientError;
use crate::admin::api::Status;
use crate::lint::LintFinding;
use crate::terminal::format;
use crate::terminal::harmless_text;
use crate::terminal::screen::Screen;

/// Maximum number of findings that are shown.
const MAX_FINDINGS: usize = 2;

/// Commands to try with a running probeshim, with what they show.
const WHILE_RUNNING: [(&str, &str); 3] = [
    ("probeshim lint", "what is wrong, with evidence and a remedy"),
    ("probeshim top", "probes as they change, the worst first"),
    ("probeshim --help", "all commands"),
];

/// Commands to try without a running probeshim.
const WITHOUT_PROBESHIM: [(&str, &str); 5] = [
    ("probeshim demo", "four pods and their probes for 25 seconds, without root and a runtime"),
    ("probeshim play --runtime procrun pod.yaml", "pods as processes of this host, until Ctrl-C"),
    ("sudo probeshim run", "between crictl and containerd, until Ctrl-C"),
    ("sudo probeshim install --kubelet --dry-run", "what puts it in front of a kubelet; changes nothing"),
    ("probeshim --help", "all commands"),
];

/// Arguments of `overview`, which takes the place of a missing subcommand in a terminal.
#[derive(Debug, Args)]
pub struct OverviewCommand {
    #[command(flatten)]
    at: AdminArgs,
}

impl OverviewCommand {
    /// Prints at most twelve lines.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let text = match client.status().await {
            Ok(status) => {
                let findings = last_hour_findings(&client).await?;
                running(&parse_status(&status)?, &findings, Timestamp::now())
            }
            Err(ClientError::NotRunning { socket, .. }) => {
                not_running(&format!("No probeshim listens on {socket}."), instances::hint(socket.as_path()))
            }
            Err(error) => not_running(&error.to_string(), None),
        };
        Screen::stdout().print(&text)?;
        Ok(())
    }
}

fn running(status: &Status, findings: &[LintFinding], now: Timestamp) -> String {
    let runtime = status.upstream.runtime.as_deref().unwrap_or("the runtime");
    let up = format::age(&status.started, now);
    let mut text = format!("probeshim forwards calls to {runtime} on {}, up {up}.\n", status.listen);
    if let Some(error) = &status.upstream.error {
        let _ = writeln!(text, "The runtime does not answer: {}", harmless_text(error));
    }
    let counts: Vec<String> = counts(status, now)
        .into_iter()
        // Probes of others are not counted.
        .filter(|(name, ..)| status.mode != OFF || *name != "probes")
        .map(|(name, count, _)| format!("{name}: {count}"))
        .collect();
    let _ = writeln!(text, "{}", counts.join("; "));
    if findings.is_empty() {
        text += "No lint has a finding about the last hour.\n";
    }
    for finding in findings.iter().take(MAX_FINDINGS) {
        let LintFinding { severity, lint, subject, .. } = finding;
        let _ = writeln!(text, "{} {lint}: {}", severity.name(), harmless_text(&subject.text()));
    }
    if let more @ 1.. = findings.len().saturating_sub(MAX_FINDINGS) {
        let _ = writeln!(text, "and {more} more");
    }
    let explain = match findings.iter().find_map(|finding| finding.calls.last()) {
        Some(call) => (format!("probeshim explain {call}"), "where the time of such a call went"),
        None => ("probeshim explain --last".to_owned(), "where the time of the last exec went"),
    };
    let [lint, others @ ..] = WHILE_RUNNING;
    text + &commands(&[&[lint, (&explain.0, explain.1)], &others[..]].concat())
}

fn not_running(reason: &str, hint: Option<String>) -> String {
    let lines: Vec<String> = [Some(reason.to_owned()), hint].into_iter().flatten().collect();
    lines.join("\n") + "\n" + &commands(&WITHOUT_PROBESHIM)
}

/// Returns a line for each command, with what it shows.
fn commands(commands: &[(&str, &str)]) -> String {
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let line = |(command, shows): &(&str, &str)| format!("  {command:<width$}  {shows}\n");
    format!("\nTry:\n{}", commands.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::{LintSubject, Severity};

    fn status() -> Status {
        let json = serde_json::json!({
            "version": "0.1.0", "mode": "off", "pid": 7, "started": "2026-11-28T10:00:00Z",
            "listen": "unix:///run/probeshim/probeshim.sock", "http": null, "metrics": null, "apiFailures": [],
            "upstream": {"socket": "unix:///run/c.sock", "ready": true, "runtime": "containerd", "version": "2.2.0", "error": null},
            "connections": {"open": 1, "total": 1},
            "calls": {"inFlight": 0, "observed": 5, "kept": 5, "dropped": 0},
            "record": null, "state": null, "pods": [], "kills": null, "agreement": null, "stuck": [],
            "faults": [], "pauses": [], "paused": false, "panics": 0,
        });
        serde_json::from_value(json).unwrap()
    }

    fn finding(pod: &str) -> LintFinding {
        LintFinding {
            lint: "kills",
            severity: Severity::Error,
            subject: LintSubject {
                learned: None,
                namespace: Some("shop".to_owned()),
                pod: Some(pod.to_owned()),
                container: Some("main".to_owned()),
                probe: Some("liveness".to_owned()),
                prober: Some("kubelet".to_owned()),
            },
            sentence: String::new(),
            evidence: Vec::new(),
            remedy: String::new(),
            affected: 1,
            calls: Vec::new(),
        }
    }

    #[test]
    fn a_running_probeshim_is_shown_in_twelve_lines_with_its_first_findings() {
        let now = "2026-11-28T13:00:00Z".parse().unwrap();
        let mut status = status();
        status.upstream.error = Some("connection refused".to_owned());
        let findings: Vec<LintFinding> = ["a", "b", "c", "d", "e"].map(finding).into();
        let text = running(&status, &findings, now);
        let begin = "probeshim forwards calls to containerd on unix:///run/probeshim/probeshim.sock, up 3h.\n\
             The runtime does not answer: connection refused\npods: 0\n\
             error kills: shop/a main liveness (kubelet)\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("main liveness (kubelet)\nand 3 more\n\nTry:\n  probeshim lint "), "{text}");
        assert!(text.lines().count() <= 12, "{text}");
        assert!(running(&self::status(), &[], now).contains("No lint has a finding"));
    }

    #[test]
    fn without_a_probeshim_the_first_commands_are_shown() {
        let text = not_running("No probeshim listens on unix:///a.", Some("hint: here".to_owned()));
        assert!(
            text.starts_with("No probeshim listens on unix:///a.\nhint: here\n\nTry:\n  probeshim demo ")
        );
        assert!(text.lines().count() <= 12, "{text}");
    }
}
