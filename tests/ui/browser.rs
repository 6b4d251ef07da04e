//! Examines a page in Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::machine::{program, repository, tool};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Maximum size of a printed page, in bytes.
const MAX_PRINTED_BYTES: usize = 12 << 20;

/// Maximum number of sheets of a printed page. The page of a day of 200 probes has the most.
const MAX_PRINTED_PAGES: usize = 60;

/// Programs that show a page.
#[derive(Debug)]
pub(crate) struct Browser {
    chromium: PathBuf,
    tools: PathBuf,
}

/// Contents of a page in a browser, and the problems that it has.
#[derive(Debug, Deserialize)]
pub(crate) struct Examination {
    /// Title of the page.
    pub(crate) title: String,
    /// Visible text of the page.
    pub(crate) text: String,
    /// Names of the elements, each once.
    pub(crate) elements: Vec<String>,
    /// Attributes with handlers of events.
    pub(crate) handlers: Vec<String>,
    /// Links to elements that do not exist.
    pub(crate) missing: Vec<String>,
    /// Requests other than that of the page.
    pub(crate) requests: Vec<String>,
    /// Messages on the console, errors and dialogs.
    pub(crate) messages: Vec<String>,
    /// Views of the page: on a desktop and a phone, light and dark.
    pub(crate) views: Vec<View>,
    /// The printed page, as a PDF.
    #[serde(skip)]
    pub(crate) printed: Vec<u8>,
}

/// A view of a page.
#[derive(Debug, Deserialize)]
pub(crate) struct View {
    /// Name of the view.
    pub(crate) name: String,
    /// Elements that are wider than the screen.
    pub(crate) wide: Vec<String>,
    /// Violations that axe found.
    pub(crate) violations: Vec<String>,
}

impl Browser {
    /// Finds the programs. The error names what this machine lacks.
    pub(crate) fn find() -> Result<Self, String> {
        program("node", "nodejs")?;
        Ok(Self { chromium: program("chromium", "chromium")?, tools: tool("puppeteer-24")? })
    }

    /// Opens the page in a file. Screenshots of all views are written to `target/ui/NAME`.
    pub(crate) fn examine(&self, page: &Path, name: &str) -> Examination {
        let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("ui").join(name);
        fs::create_dir_all(&shots).unwrap();
        fs::copy(page, shots.join("page.html")).unwrap();
        let job =
            json!({"chromium": self.chromium, "url": format!("file://{}", page.display()), "shots": shots});
        let mut found: Examination = self.run("examine.cjs", &job);
        found.printed = fs::read(shots.join("print.pdf")).unwrap();
        found
    }

    /// Returns the command that runs a script of this directory with Node.js.
    pub(crate) fn command(&self, script: &str, job: &Value) -> Command {
        let mut command = Command::new("node");
        command.arg(repository().join("tests/ui").join(script)).arg(&self.tools).arg(job.to_string());
        command
    }

    pub(crate) fn chromium(&self) -> &Path {
        &self.chromium
    }

    /// Runs a script of this directory with Node.js. Returns what it prints.
    pub(crate) fn run<T: DeserializeOwned>(&self, script: &str, job: &Value) -> T {
        let run = self.command(script, job).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        serde_json::from_slice(&run.stdout).unwrap()
    }
}

impl Examination {
    /// Fails if the page sends requests, logs messages, has broken links, violates a rule of axe,
    /// or does not fit on a screen.
    pub(crate) fn assert_is_clean(&self) {
        assert_eq!(self.requests, [""; 0], "the page sends requests");
        assert_eq!(self.messages, [""; 0], "the page logs messages");
        assert_eq!(self.missing, [""; 0], "the page has broken links");
        assert_eq!(self.views.len(), 4);
        for View { name, wide, violations } in &self.views {
            assert!(violations.is_empty(), "{name}: axe found {violations:#?}");
            assert!(wide.is_empty(), "{name}: {wide:#?}");
        }
        self.assert_is_printed();
    }

    /// Fails unless the printed page is a complete PDF with pages that have text, and of a size
    /// that can be sent to a colleague.
    fn assert_is_printed(&self) {
        assert!(self.printed.starts_with(b"%PDF-") && self.printed.trim_ascii_end().ends_with(b"%%EOF"));
        assert!(self.printed.len() <= MAX_PRINTED_BYTES, "{} bytes", self.printed.len());
        // The objects of the file are not compressed, but their streams are.
        let text = String::from_utf8_lossy(&self.printed);
        let objects: Vec<&str> = text.split("endobj").collect();
        let pages: Vec<&&str> = objects.iter().filter(|object| is_page(object)).collect();
        assert!((1..=MAX_PRINTED_PAGES).contains(&pages.len()), "{} pages", pages.len());
        assert!(pages.iter().all(|page| page.contains("/Font")), "a page has no text: {pages:#?}");
    }
}

/// Returns whether an object of a PDF is a page.
fn is_page(object: &str) -> bool {
    let mut types = object.split("/Type").skip(1).map(str::trim_start);
    types.any(|name| name.strip_prefix("/Page").is_some_and(|rest| !rest.starts_with('s')))
}
