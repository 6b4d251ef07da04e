//! `probeshim report`

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tempfile::NamedTempFile;

use super::CliError;
use super::period_args::{PeriodArgs, check_selection};
use super::pod_arg::NamespaceArg;
use crate::report::{Report, ReportInput, Selection, html, redacted, report};
use crate::terminal::format;
use crate::terminal::{harmless_text, print};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportCommand {
    #[command(flatten)]
    period: PeriodArgs,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// Report only about this pod: its name, or NAMESPACE/NAME
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// File to write: FILE.html for a page, or FILE.json for programs. An existing file is
    /// replaced. Only its owner can read the file, because it may show commands and their output
    #[arg(short, long, value_name = "FILE")]
    output: ReportFile,

    /// Reduce commands to their programs, and leave out output, messages of the runtime and query
    /// strings of URLs
    #[arg(long)]
    redact_commands: bool,
}

/// File of a report, with the format that its name has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportFile {
    path: PathBuf,
    format: ReportFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportFormat {
    Html,
    Json,
}

/// Error of a text that names no file of a report.
#[derive(Debug, thiserror::Error)]
#[error("must be the name of a file that ends with .html or .json, such as report.html")]
struct ReportFileError;

impl ReportCommand {
    /// Reads the period, and writes the report.
    pub async fn run(self) -> Result<(), CliError> {
        let source = self.period.source();
        let selection = Selection { namespace: self.namespace.namespace, pod: self.pod };
        let mut period = self.period.read().await?;
        if self.redact_commands {
            period = redacted(period);
        }
        let findings = selection.lint(&period);
        check_selection(&selection, &period)?;
        selection.apply(&mut period);
        let input = ReportInput { generated: SystemTime::now(), source, selection, findings };
        let report = report(&period, input);
        let text = match self.output.format {
            ReportFormat::Html => html(&report),
            ReportFormat::Json => {
                serde_json::to_string_pretty(&report).context("the report cannot be written as JSON")? + "\n"
            }
        };
        let path = self.output.path;
        write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        print(&format!("{}\n", harmless_text(&summary(&path, &text, &report))))?;
        Ok(())
    }
}

/// Writes a file that only its owner can read. A file with this name is replaced once the new one
/// is complete.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.is_dir() {
        return Err(anyhow!("it is a directory"));
    }
    if path.exists() && !path.is_file() {
        return Err(anyhow!("it is not a regular file"));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

/// Returns the line that says what was written.
fn summary(path: &Path, text: &str, report: &Report) -> String {
    let totals = &report.totals;
    let counts = [
        (totals.probes as u64, "probe", "probes"),
        (totals.failed_probes as u64, "with failures", "with failures"),
        (totals.kills, "kill", "kills"),
        (report.findings.len() as u64, "finding", "findings"),
    ];
    let counts = counts.map(|(count, one, more)| format!("{count} {}", if count == 1 { one } else { more }));
    let content = report.empty_because.clone().unwrap_or_else(|| counts.join(", "));
    format!("{} ({}): {content}", path.display(), format::size(text.len() as u64))
}

impl FromStr for ReportFile {
    type Err = ReportFileError;

    fn from_str(text: &str) -> Result<Self, ReportFileError> {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(OsStr::to_str) {
            Some("html" | "htm") => ReportFormat::Html,
            Some("json") => ReportFormat::Json,
            _ => return Err(ReportFileError),
        };
        Ok(Self { path, format })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_name_of_a_report_decides_its_format() {
        let format = |name: &str| name.parse::<ReportFile>().map(|file| file.format);
        assert_eq!(format("a/report.html").unwrap(), ReportFormat::Html);
        assert_eq!(format("report.2026.json").unwrap(), ReportFormat::Json);
        for invalid in ["json", "html", "-", "", ".json", "report", "report.txt", "report.HTML/"] {
            let error = format(invalid).unwrap_err().to_string();
            assert!(error.contains(".html or .json"), "{invalid}: {error}");
        }
    }

    #[test]
    fn a_report_replaces_an_earlier_one_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        std::fs::write(&path, "old").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_report_replaces_a_link_and_not_the_file_to_which_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["report.html", "other"].map(|name| dir.path().join(name));
        std::fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write(&path, "new").unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
        let texts = [&path, &other].map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(texts, ["new", "other"]);
    }

    #[test]
    fn a_report_is_not_written_over_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(write(&path, "new").unwrap_err().to_string(), "it is a directory");
    }
}
