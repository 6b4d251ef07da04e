//! `probeshim explain`

use anstyle::Style;
use anyhow::Context as _;
use clap::Args;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::bar;
use super::call_arg::CallArg;
use crate::admin::api::{Explanation, ListedCall, Phases};
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};
use crate::terminal::{MAX_TEXT_WIDTH, sanitize, shortened};

/// Maximum width of lines, also if the width of the terminal is unknown.
const WIDTH: usize = 100;

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
        let answer = client.explain(self.call.find(&client).await?).await?;
        let not_one = "the response is not an explanation";
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                print(&self.output.document(serde_json::from_slice(&answer).context(not_one)?)?)?;
            }
            _ => {
                let screen = Screen::stdout();
                screen.print(&text(&serde_json::from_slice(&answer).context(not_one)?, screen))?;
            }
        }
        Ok(())
    }
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
        text += &bar(phases, call.duration_ms, width, screen);
    }
    text
}

/// Returns one line per known phase: its name, duration, share of the total, and a bar that shows
/// when it ran.
fn bar(phases: &Phases, total: f64, width: usize, screen: Screen) -> String {
    let room = width.saturating_sub(30).max(10);
    let mut started = 0.0;
    let line = |(name, time): (&str, Option<f64>)| {
        let time = time?;
        let bar = bar::part(started, time, total, room);
        started += time;
        let style = if screen.colour && !bar.is_empty() { bar::style(name) } else { Style::new() };
        let (took, percent) = (format::milliseconds(time), 100.0 * time / total.max(f64::MIN_POSITIVE));
        let line = format!("{name:<8}{took:>8} {percent:>5.1} %  {style}{bar}{style:#}");
        Some(line.trim_end().to_owned() + "\n")
    };
    phases.named().into_iter().filter_map(line).collect()
}
