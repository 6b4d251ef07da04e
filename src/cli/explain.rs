//! `probeshim explain`

use anstyle::Style;
use anyhow::Context as _;
use clap::Args;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::bar;
use super::call_arg::CallArg;
use crate::admin::Client;
use crate::admin::api::{Call, Explanation, ListedCall, Phases};
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};
use crate::terminal::{MAX_TEXT_WIDTH, sanitize, shortened};

/// Maximum width of lines, also if the width of the terminal is unknown.
const WIDTH: usize = 100;

/// Error for a response of another form.
const NO_EXPLANATION: &str = "the response is not an explanation";

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainCommand {
    #[command(flatten)]
    at: AdminArgs,

    #[command(flatten)]
    call: CallArg,

    /// Output format: table (sentences, and bars of the phases), json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl ExplainCommand {
    /// Queries the explanation of a call and prints it.
    pub async fn run(self) -> Result<(), CliError> {
        let client = self.at.client()?;
        let call = self.call.find(&client).await?;
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let answer = client.explain(call).await?;
                print(&self.output.document(serde_json::from_slice(&answer).context(NO_EXPLANATION)?)?)?;
            }
            _ => {
                Screen::stdout().print(&call_text(&client, call).await?)?;
            }
        }
        Ok(())
    }
}

/// Returns the explanation of a call, for standard output.
pub(super) async fn call_text(client: &Client, call: u64) -> Result<String, CliError> {
    let answer = client.explain(call).await?;
    Ok(text(&serde_json::from_slice(&answer).context(NO_EXPLANATION)?, Screen::stdout()))
}

/// Returns the sentences, wrapped, and below them the bars of the phases.
fn text(explanation: &Explanation, screen: Screen) -> String {
    let width = screen.width.unwrap_or(WIDTH).min(WIDTH);
    let lines = |sentence: &String| {
        let wrapped = format::wrapped(&sanitize(sentence), width);
        shortened(&wrapped, MAX_TEXT_WIDTH).into_owned() + "\n"
    };
    let mut text: String = explanation.sentences.iter().map(lines).collect();
    if let ListedCall::Ended(call) = &explanation.call
        && let Some(phases) = call.exec.as_ref().and_then(|exec| exec.phases.as_ref())
    {
        text += "\n";
        text += &bar(phases, call.duration_ms, width, screen, holder(call).as_deref());
    }
    text
}

/// Returns the part of probeshim that held the request in the phase queue; `None` if none did.
fn holder(call: &Call) -> Option<String> {
    let is_holding = |action: &str| action.starts_with("delay(") || action == "hang";
    if let Some(fault) = call.faults.iter().find(|fault| is_holding(&fault.action)) {
        return Some(format!("held by the fault {}", fault.name));
    }
    let policy = call.policy.iter().find(|policy| ["limit", "coalesce"].contains(&policy.as_str()))?;
    Some(format!("held by {}", if policy == "limit" { "the limit" } else { "coalescing" }))
}

/// Returns one line per known phase: its name, duration, share of the total, and a bar that shows
/// when it ran. The line of the phase queue ends with its `holder`.
fn bar(phases: &Phases, total: f64, width: usize, screen: Screen, holder: Option<&str>) -> String {
    let holder = holder.map(|holder| format!(" ({})", sanitize(holder))).unwrap_or_default();
    let room = width.saturating_sub(30 + holder.len()).max(10);
    let mut started = 0.0;
    let line = |(name, time): (&str, Option<f64>)| {
        let time = time?;
        let bar = bar::part(started, time, total, room);
        started += time;
        let style = if screen.colour && !bar.is_empty() { bar::style(name) } else { Style::new() };
        let (took, percent) = (format::milliseconds(time), 100.0 * time / total.max(f64::MIN_POSITIVE));
        let holder = if name == "queue" && !bar.is_empty() { holder.as_str() } else { "" };
        let line = format!("{name:<8}{took:>8} {percent:>5.1} %  {style}{bar}{style:#}{holder}");
        Some(line.trim_end().to_owned() + "\n")
    };
    phases.named().into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::Fault;

    #[test]
    fn the_phase_queue_of_a_call_that_a_fault_held_names_the_fault() {
        let sample = include_str!("../history/json/samples.jsonl").lines();
        let mut call = sample
            .map(|line| serde_json::from_str::<Call>(line).unwrap())
            .find(|call| call.exec.as_ref().is_some_and(|exec| exec.phases.is_some()))
            .unwrap();
        let mut phases = call.exec.as_ref().and_then(|exec| exec.phases.clone()).unwrap();
        phases.queue_ms = 2000.0;
        let screen = Screen { width: Some(80), colour: false, utf8: true };
        let line = |call: &Call| {
            bar(&phases, 2100.0, 80, screen, holder(call).as_deref()).lines().next().unwrap().to_owned()
        };
        (call.faults, call.policy) = (Vec::new(), Vec::new());
        assert!(line(&call).starts_with("queue") && !line(&call).contains("held"), "{}", line(&call));
        call.faults = vec![Fault { name: "slow-1".to_owned(), action: "delay(2s)".to_owned() }];
        assert!(line(&call).ends_with(" (held by the fault slow-1)"), "{}", line(&call));
        assert!(line(&call).chars().count() <= 80, "{}", line(&call));
        call.faults = vec![Fault { name: "bad".to_owned(), action: "abort UNAVAILABLE".to_owned() }];
        call.policy = vec!["limit".to_owned()];
        assert!(line(&call).ends_with(" (held by the limit)"), "{}", line(&call));
    }
}
