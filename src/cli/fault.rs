//! `probeshim fault`

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::CliError;
use super::admin_args::{AdminArgs, OutputFormat};
use super::calls::subject;
use super::probe_result::OFF;
use super::query::query_status;
use super::stderr::note;
use super::table::{Cell, Column, Table};
use crate::admin::api::{ActiveFault, ClearBody, FaultBody, FaultPlan, FaultsBody, PlannedHit};
use crate::config::{BoundedDuration, Environment, read_faults};
use crate::policy::{FaultRule, MAX_COMMAND};
use crate::terminal::format;
use crate::terminal::screen::{Screen, print};
use crate::terminal::{harmless_lines, harmless_name};

/// Minimum width of the column of rules.
const MIN_RULE_WIDTH: usize = 40;

/// Maximum number of calls of a plan in a table: the last ones.
const MAX_PLANNED: usize = 50;

/// Error of a response with another form.
const NOT_FAULTS: &str = "the response is not a list of fault rules";

/// Arguments of `fault`.
#[derive(Debug, Args)]
pub struct FaultCommand {
    #[command(subcommand)]
    action: FaultAction,
}

#[derive(Debug, Subcommand)]
enum FaultAction {
    /// Activate a rule, or all rules of a file
    Add(AddCommand),

    /// Show the active rules
    #[command(visible_alias = "ls")]
    List(ListCommand),

    /// End rules: calls that they hold are forwarded
    Clear(ClearCommand),

    /// Show which of the recorded calls a rule would have hit, without activating it
    Plan(PlanCommand),
}

/// The rules of a command.
#[derive(Debug, Args)]
struct RuleArgs {
    /// Rule in the one-line form
    #[arg(value_name = "RULE", required_unless_present = "file", conflicts_with = "file")]
    rule: Option<String>,

    /// File with rules: the field `faults` of the configuration file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Name of the rule [default: fault-N]
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    name: Option<String>,

    /// Permit a rule that selects every call of every client
    #[arg(long, conflicts_with = "file")]
    all: bool,
}

#[derive(Debug, Args)]
struct AddCommand {
    #[command(flatten)]
    at: AdminArgs,

    #[command(flatten)]
    rules: RuleArgs,

    /// Duration after which the rule ends, 1s to 24h. A RULE needs it; it takes the place of `for`
    /// in a file
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    lifetime: Option<BoundedDuration<1>>,
}

#[derive(Debug, Args)]
struct ListCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Output format: table, json, yaml or name
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(FORMATS), hide_possible_values = true)]
    output: OutputFormat,
}

#[derive(Debug, Args)]
struct ClearCommand {
    #[command(flatten)]
    at: AdminArgs,

    /// Names of the rules to end [default: all rules]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct PlanCommand {
    #[command(flatten)]
    at: AdminArgs,

    #[command(flatten)]
    rules: RuleArgs,

    /// Duration for which the rule would have been active, from the first recorded call, 1s to 24h
    /// [default: no limit]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    lifetime: Option<BoundedDuration<1>>,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

/// Formats of the list of rules.
const FORMATS: &[OutputFormat] =
    &[OutputFormat::Table, OutputFormat::Json, OutputFormat::Yaml, OutputFormat::Name];

impl FaultCommand {
    /// Runs the subcommand.
    pub async fn run(self) -> Result<(), CliError> {
        match self.action {
            FaultAction::Add(add) => add.run().await,
            FaultAction::List(list) => list.run().await,
            FaultAction::Clear(clear) => clear.run().await,
            FaultAction::Plan(plan) => plan.run().await,
        }
    }
}

impl RuleArgs {
    /// Parses the rules, so that an invalid one is refused without a running probeshim.
    fn parse(self, lifetime: Option<BoundedDuration<1>>) -> Result<FaultsBody, CliError> {
        let Self { rule, file, name, all } = self;
        let for_ms =
            lifetime.map(|lifetime| u64::try_from(Duration::from(lifetime).as_millis()).unwrap_or(u64::MAX));
        let Some(file) = file else {
            let rule = rule.unwrap_or_default();
            if Path::new(&rule).is_file() {
                let file = harmless_name(&rule);
                return Err(CliError::Usage(format!("RULE {rule:?} is a file; use -f {file}")));
            }
            let parsed = FaultRule::parse(name.as_deref().unwrap_or("fault"), &rule, None, all);
            parsed.map_err(|error| CliError::Usage(error.to_string()))?;
            return Ok(FaultsBody { rules: vec![FaultBody { name, rule, for_ms, all }] });
        };
        let rules = read_faults(&file, &Environment::detect())?;
        if rules.is_empty() {
            return Err(CliError::Usage(format!("{}: has no rules: faults is empty", file.display())));
        }
        let body = |rule: &FaultRule| {
            let body = FaultBody::from(rule);
            FaultBody { for_ms: for_ms.or(body.for_ms), ..body }
        };
        Ok(FaultsBody { rules: rules.iter().map(body).collect() })
    }
}

impl AddCommand {
    async fn run(self) -> Result<(), CliError> {
        let needs_lifetime = self.rules.file.is_none() && self.lifetime.is_none();
        let rules = self.rules.parse(self.lifetime)?;
        if needs_lifetime {
            return Err(CliError::Usage("a RULE needs --for <DURATION>, such as --for 10m".to_owned()));
        }
        let client = self.at.client()?;
        let added = faults(&client.add_faults(&rules).await?)?;
        let mut text = String::new();
        for fault in &added {
            let ends = ends(fault, Timestamp::now());
            let _ = writeln!(text, "fault {} is active, and ends in {ends}: {}", fault.name, fault.rule);
        }
        if let [fault] = &added[..] {
            let _ = writeln!(text, "`probeshim fault clear {}` ends it earlier", fault.name);
        }
        print(&harmless_lines(&text))?;
        if added.iter().any(misses_own_probes)
            && query_status(&client).await.is_ok_and(|status| status.mode != OFF)
        {
            note("probes that this probeshim runs itself are hit only by rules with client=probeshim");
        }
        Ok(())
    }
}

/// Returns whether a rule is about ExecSyncs of all clients, which the probes that probeshim runs
/// itself are not.
fn misses_own_probes(fault: &ActiveFault) -> bool {
    let is_for_all = |rule: FaultRule| rule.matches.client.is_none();
    fault.rule.starts_with("ExecSync ")
        && FaultRule::parse(&fault.name, &fault.rule, None, true).is_ok_and(is_for_all)
}

impl ListCommand {
    async fn run(self) -> Result<(), CliError> {
        let answer = self.at.client()?.faults().await?;
        match self.output {
            OutputFormat::Json | OutputFormat::Yaml => {
                let items: Vec<&RawValue> = serde_json::from_slice(&answer).context(NOT_FAULTS)?;
                print(&self.output.list(&items)?)?;
            }
            OutputFormat::Name => {
                let names = faults(&answer)?.into_iter().map(|fault| format!("fault/{}\n", fault.name));
                print(&harmless_lines(&names.collect::<String>()))?;
            }
            _ => {
                let faults = faults(&answer)?;
                let screen = Screen::stdout();
                let text = match faults.len() {
                    0 => "no fault rule is active\n".to_owned(),
                    _ => table(&faults, Timestamp::now(), screen),
                };
                screen.print(&text)?;
            }
        }
        Ok(())
    }
}

impl ClearCommand {
    async fn run(self) -> Result<(), CliError> {
        let ended = self.at.client()?.clear_faults(&ClearBody { names: self.names }).await?;
        let ended = faults(&ended)?;
        let lines = ended.iter().map(|fault| {
            let calls = format::counted(fault.hits, "call");
            format!("fault {} has ended; it has hit {calls}\n", fault.name)
        });
        let text: String = lines.collect();
        print(&if text.is_empty() { "no fault rule is active\n".to_owned() } else { harmless_lines(&text) })?;
        Ok(())
    }
}

impl PlanCommand {
    async fn run(self) -> Result<(), CliError> {
        let rules = self.rules.parse(self.lifetime)?;
        let answer = self.at.client()?.plan_faults(&rules).await?;
        let not_plan = "the response is not a plan of fault rules";
        if self.output != OutputFormat::Table {
            print(&self.output.document(serde_json::from_slice(&answer).context(not_plan)?)?)?;
            return Ok(());
        }
        let plan: FaultPlan = serde_json::from_slice(&answer).context(not_plan)?;
        let screen = Screen::stdout();
        screen.print(&plan_table(&plan, Timestamp::now(), screen))?;
        Ok(())
    }
}

fn faults(answer: &[u8]) -> Result<Vec<ActiveFault>, CliError> {
    Ok(serde_json::from_slice(answer).context(NOT_FAULTS)?)
}

fn table(faults: &[ActiveFault], now: Timestamp, screen: Screen) -> String {
    let columns = [
        Column::text("NAME"),
        Column::text("ENDS IN"),
        Column::numeric("HITS"),
        Column::text("SOURCE"),
        Column::text("RULE"),
    ];
    let row = |fault: &ActiveFault| {
        let hits = fault.hits.to_string();
        [&fault.name, &ends(fault, now), &hits, &fault.source, &fault.rule].map(Cell::new).to_vec()
    };
    let rows: Vec<Vec<Cell>> = faults.iter().map(row).collect();
    let mut text = Table::new(columns, screen).render_wrapped(&rows, MIN_RULE_WIDTH);
    for fault in faults.iter().filter(|fault| fault.long_commands > 0) {
        let (calls, limit) = (format::counted(fault.long_commands, "call"), MAX_COMMAND >> 10);
        let name = harmless_name(&fault.name);
        let _ =
            writeln!(text, "{name} left out {calls}: command= compares no command of more than {limit} KiB");
    }
    text
}

/// Returns the time until the end of a rule.
fn ends(fault: &ActiveFault, now: Timestamp) -> String {
    fault.expires.as_ref().map_or_else(|| "never".to_owned(), |expires| format::time_until(expires, now))
}

/// Returns the calls of a plan, and their number.
fn plan_table(plan: &FaultPlan, now: Timestamp, screen: Screen) -> String {
    let FaultPlan { considered, unknown, hits } = plan;
    let mut text = String::new();
    if !hits.is_empty() {
        let columns = [
            Column::numeric("ID"),
            Column::text("TIME (UTC)"),
            Column::text("METHOD"),
            Column::text("OBJECT"),
            Column::text("RULE"),
            Column::text("ACTION"),
        ];
        let row = |hit: &PlannedHit| {
            let call = &hit.call;
            vec![
                Cell::new(call.id.to_string()),
                Cell::new(format::recent_time(&call.start, now)),
                Cell::new(&call.method),
                Cell::new(subject(call.pod.as_ref(), call.container.as_ref(), None)),
                Cell::new(&hit.rule),
                Cell::new(hit.actions.join("+")),
            ]
        };
        let shown = &hits[hits.len().saturating_sub(MAX_PLANNED)..];
        text = Table::new(columns, screen).render(&shown.iter().map(row).collect::<Vec<_>>());
        if shown.len() < hits.len() {
            let _ = writeln!(text, "and {} earlier ones; -o json has all", hits.len() - shown.len());
        }
    }
    let _ = writeln!(text, "{} of {considered} recorded calls would have been hit", hits.len());
    if *unknown > 0 {
        let _ = writeln!(
            text,
            "for {unknown} more it is unknown: their pod or container is no longer on the node, or their command is cut"
        );
    }
    text
}
