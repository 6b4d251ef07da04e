//! `probeshim lint`

use std::fmt::Write as _;
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};

use super::CliError;
use super::admin_args::OutputFormat;
use super::period_args::{PeriodArgs, check_selection, last_hour};
use super::pod_arg::NamespaceArg;
use crate::admin::Client;
use crate::history::timeline::Period;
use crate::lint::{LINTS, LintFinding, Severity};
use crate::report::Selection;
use crate::terminal::format::{counted, wrapped};
use crate::terminal::harmless_text;
use crate::terminal::screen::{Screen, print};

/// Maximum width of lines, also if the width of the terminal is unknown.
const WIDTH: usize = 100;

/// Indentation of the lines below the first line of a finding.
const INDENT: &str = "  ";

/// Arguments of `lint`.
#[derive(Debug, Args)]
pub struct LintCommand {
    #[command(flatten)]
    period: PeriodArgs,

    /// Show only findings about this pod: NAME or NAMESPACE/NAME. Findings about the node are not
    /// shown
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// Lints whose findings are not shown, separated by commas, such as same-command,exec-cost
    #[arg(long, value_name = "LINT", value_delimiter = ',', value_parser = lints(), hide_possible_values = true)]
    ignore: Vec<String>,

    /// Exit with code 1 if there is a finding with this severity or a worse one: info, warning or
    /// error
    #[arg(long, value_name = "SEVERITY", hide_possible_values = true)]
    fail_on: Option<Severity>,

    /// Output format: table (sentences), json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = OutputFormat::parser(OutputFormat::DOCUMENTS), hide_possible_values = true)]
    output: OutputFormat,
}

impl LintCommand {
    /// Reads the period and prints its findings.
    pub async fn run(self) -> Result<(), CliError> {
        let Self { period, pod, namespace, ignore, fail_on, output } = self;
        let period = period.read().await?;
        let selection = Selection { pod, namespace: namespace.namespace };
        check_selection(&selection, &period)?;
        let mut findings = selection.lint(&period);
        findings.retain(|found| !ignore.iter().any(|name| name == found.lint));
        if output.is_document() {
            let items: Result<Vec<Box<RawValue>>, _> = findings.iter().map(to_raw_value).collect();
            let items = items.context("a finding cannot be written as JSON")?;
            print(&output.list(&items.iter().map(AsRef::as_ref).collect::<Vec<_>>())?)?;
        } else {
            Screen::stdout().print(&finding_lines(&findings, &period, &selection))?;
        }
        failure(&findings, fail_on)
    }
}

/// Returns the findings about the last hour, for standard output.
pub(super) async fn last_hour_text(client: &Client) -> Result<String, CliError> {
    let (period, selection) = (last_hour(client).await?, Selection::default());
    Ok(finding_lines(&selection.lint(&period), &period, &selection))
}

/// Returns the findings about the last hour, the worst first.
pub(super) async fn last_hour_findings(client: &Client) -> Result<Vec<LintFinding>, CliError> {
    Ok(Selection::default().lint(&last_hour(client).await?))
}

/// Returns findings about a period, for standard output.
fn finding_lines(findings: &[LintFinding], period: &Period, selection: &Selection) -> String {
    render(findings, &examined(period, selection, !findings.is_empty()), Screen::stdout())
}

/// Returns the parser of the names of lints.
fn lints() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(LINTS)
}

/// Returns an error if there is a finding with this severity or a worse one.
fn failure(findings: &[LintFinding], fail_on: Option<Severity>) -> Result<(), CliError> {
    let Some(least) = fail_on else { return Ok(()) };
    match findings.iter().filter(|finding| finding.severity >= least).count() {
        0 => Ok(()),
        count => Err(CliError::from_display(format!(
            "--fail-on {}: {} with this severity or a worse one",
            least.name(),
            counted(count, "finding")
        ))),
    }
}

/// Describes the attempts and the time that were examined.
fn examined(period: &Period, selection: &Selection, has_findings: bool) -> String {
    let probes = period.probes.iter().filter(|probe| selection.has_series(&probe.series));
    let attempts: u64 = probes.map(|probe| u64::from(probe.total().attempts())).sum();
    let nothing = match attempts {
        0 if !has_findings => {
            ": nothing was observed yet; a kubelet's httpGet, tcpSocket and grpc probes do not pass the runtime"
        }
        _ => "",
    };
    let attempts = counted(attempts, "attempt");
    format!("in {attempts} from {} to {} (UTC){nothing}", time(period.from), time(period.to))
}

fn time(time: SystemTime) -> String {
    Timestamp::try_from(time)
        .map_or_else(|_| "an unknown time".to_owned(), |time| time.strftime("%F %H:%M:%S").to_string())
}

/// Returns the text of findings for a terminal, for a fuzz target.
pub(crate) fn finding_text(findings: &[LintFinding]) -> String {
    render(findings, "in no attempts", Screen::narrow())
}

/// Returns a paragraph per finding, and a line with their numbers.
fn render(findings: &[LintFinding], examined: &str, screen: Screen) -> String {
    let width = screen.width.unwrap_or(WIDTH).min(WIDTH);
    let mut text: String = findings.iter().map(|finding| paragraph(finding, width, screen) + "\n").collect();
    let counts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Info]
        .into_iter()
        .filter_map(|severity| {
            let count = findings.iter().filter(|finding| finding.severity == severity).count();
            (count > 0).then(|| format!("{count} {}", severity.name()))
        })
        .collect();
    let summary = if findings.is_empty() {
        format!("no findings {examined}")
    } else {
        format!("{} ({}) {examined}", counted(findings.len(), "finding"), counts.join(", "))
    };
    text += &wrapped(&summary, width);
    text + "\n"
}

/// Returns the lines of a finding.
fn paragraph(finding: &LintFinding, width: usize, screen: Screen) -> String {
    let LintFinding { lint, severity, subject, sentence, evidence, remedy, calls, .. } = finding;
    let style = match severity {
        _ if !screen.colour => Style::new(),
        Severity::Error => AnsiColor::Red.on_default(),
        Severity::Warning => AnsiColor::Yellow.on_default(),
        Severity::Info => AnsiColor::Cyan.on_default(),
    };
    // The style is added to the wrapped line, because its codes have no width.
    let first = wrapped(&format!("{} {lint}: {}", severity.name(), harmless_text(&subject.text())), width);
    let name = severity.name();
    let mut text = format!("{style}{name}{style:#}{}\n", first.strip_prefix(name).unwrap_or_default());
    let mut add = |line: &str| {
        let lines = wrapped(&harmless_text(line), width.saturating_sub(INDENT.len()));
        lines.lines().for_each(|line| {
            let _ = writeln!(text, "{INDENT}{line}");
        });
    };
    add(sentence);
    for line in evidence {
        add(&format!("- {line}"));
    }
    add(&format!("What to do: {remedy}"));
    if let Some(last) = calls.last() {
        let ids: Vec<String> = calls.iter().map(u64::to_string).collect();
        add(&format!("Calls: {} (`probeshim explain {last}`)", ids.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::super::snapshots::assert_screens;
    use super::*;
    use crate::history::timeline::PeriodBuilder;
    use crate::lint::LintSubject;

    fn findings() -> [LintFinding; 3] {
        let text = |text: &str| Some(text.to_owned());
        let probe = LintSubject {
            learned: None,
            namespace: text("shop"),
            pod: text("web-7d4b9c6f8-x2x9z"),
            container: text("main"),
            probe: text("liveness"),
            prober: text("kubelet"),
        };
        let hostile = LintSubject { pod: text("web\u{1b}[31m\u{202e}<b>"), ..probe.clone() };
        let finding = |lint, severity, subject, sentence: &str, calls: &[u64]| LintFinding {
            lint,
            severity,
            subject,
            sentence: sentence.to_owned(),
            evidence: vec![
                "Half of the 400 attempts took at most 11.0ms, and 99 % at most 2.38s.".to_owned(),
            ],
            remedy: "Make the handler faster, or raise timeoutSeconds (now 1).".to_owned(),
            affected: 38,
            calls: calls.to_vec(),
        };
        [
            finding(
                "timeout",
                Severity::Error,
                probe,
                "38 of 400 attempts (9 %) failed because of the timeout of 1.00s.",
                &[4711, 4712],
            ),
            finding("held-output", Severity::Warning, hostile, "The command printf '\u{7}\n' runs.", &[1]),
            finding("incomplete", Severity::Info, LintSubject::NODE, "The period has 1 gap.", &[]),
        ]
    }

    fn period() -> Period {
        let from = UNIX_EPOCH + Duration::from_secs(1_000_000_020);
        PeriodBuilder::new(from, from + Duration::from_secs(3600), 1).build()
    }

    #[test]
    fn findings_are_paragraphs_in_which_hostile_names_are_escaped() {
        let examined = |has_findings| examined(&period(), &Selection::default(), has_findings);
        assert_screens("lint", |screen| render(&findings(), &examined(true), screen));
        assert_screens("lint_without_findings", |screen| render(&[], &examined(false), screen));
    }

    #[test]
    fn the_json_of_a_finding_has_its_object_and_null_for_absent_names() {
        let [probe, _, node] = findings().map(|finding| serde_json::to_value(finding).unwrap());
        assert_eq!(
            probe,
            serde_json::json!({
                "lint": "timeout", "severity": "error", "namespace": "shop", "pod": "web-7d4b9c6f8-x2x9z",
                "container": "main", "probe": "liveness", "prober": "kubelet", "affected": 38, "calls": [4711, 4712],
                "sentence": "38 of 400 attempts (9 %) failed because of the timeout of 1.00s.",
                "learned": null,
                "evidence": ["Half of the 400 attempts took at most 11.0ms, and 99 % at most 2.38s."],
                "remedy": "Make the handler faster, or raise timeoutSeconds (now 1).",
            })
        );
        assert!(node["pod"].is_null() && node["probe"].is_null(), "{node}");
    }

    #[test]
    fn only_findings_of_the_severity_or_worse_are_a_failure() {
        let [error, warning, info] = findings();
        assert!(failure(&[error], None).is_ok());
        assert!(failure(std::slice::from_ref(&info), Some(Severity::Warning)).is_ok());
        let failed = failure(&[warning, info], Some(Severity::Warning)).unwrap_err();
        assert_eq!(failed.to_string(), "--fail-on warning: 1 finding with this severity or a worse one");
    }

    #[test]
    fn a_filter_selects_pods_by_name_and_namespace_and_an_unknown_one_is_an_error() {
        let selected = |pod: Option<&str>, namespace: Option<&str>| {
            let filter = Selection { pod: pod.map(str::to_owned), namespace: namespace.map(str::to_owned) };
            findings().map(|finding| filter.has_subject(&finding.subject))
        };
        assert_eq!(selected(None, None), [true, true, true]);
        assert_eq!(selected(None, Some("shop")), [true, true, false]);
        assert_eq!(selected(Some("web-7d4b9c6f8-x2x9z"), None), [true, false, false]);
        assert_eq!(selected(Some("shop/web-7d4b9c6f8-x2x9z"), None), [true, false, false]);
        assert_eq!(selected(Some("shop/web"), None), [false, false, false]);
        let filter = Selection { pod: Some("web".to_owned()), namespace: None };
        let error = check_selection(&filter, &period()).unwrap_err().to_string();
        assert_eq!(error, "--pod \"web\": no attempts and no events in the period");
        assert!(check_selection(&Selection::default(), &period()).is_ok());
    }
}
