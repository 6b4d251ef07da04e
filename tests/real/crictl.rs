//! crictl, and its output with everything taken out that differs from run to run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use regex::Regex;

use super::machine::tool;

/// One crictl against one endpoint.
#[derive(Debug)]
pub(crate) struct Crictl {
    program: PathBuf,
    config: PathBuf,
}

/// One that runs.
#[derive(Debug)]
pub(crate) struct Running(Child);

/// What one call printed and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Crictl {
    /// `name` is `crictl-1.36` or `crictl-1.30`; its settings go into `folder`.
    pub(crate) fn new(name: &str, endpoint: &Path, folder: &Path) -> Result<Self, String> {
        let program = tool(name)?.join("crictl");
        let config = folder.join(format!("{name}-{}.yaml", endpoint.file_stem().unwrap().display()));
        let endpoint = endpoint.display();
        let settings =
            format!("runtime-endpoint: unix://{endpoint}\nimage-endpoint: unix://{endpoint}\ntimeout: 30\n");
        fs::write(&config, settings).unwrap();
        Ok(Self { program, config })
    }

    /// Runs it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.spawn(arguments).output()
    }

    /// Starts it.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// What starts it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&self.config).args(arguments);
        command
    }

    /// Runs what must succeed, and returns what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.code, Some(0), "crictl {arguments:?}: {output:?}");
        output.stdout.trim().to_owned()
    }
}

impl Running {
    /// Waits for its end.
    pub(crate) fn output(self) -> Output {
        let output = self.0.wait_with_output().unwrap();
        Output {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// What differs between two runs that are the same: times, process ids, addresses, namespaces, sizes of growing things.
static VOLATILE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "TIME"),
        (r"\b[EWI]\d{4} [0-9:.]+ +\d+ ", "KLOG "),
        (r"(Less than a second|\d+ seconds?) ago", "AGO"),
        (r#""(pid|createdAt|startedAt|finishedAt|timestamp|Count)": "?-?\d+"?"#, r#""$1": N"#),
        (r"/proc/\d+/", "/proc/PID/"),
        (r"cni-[0-9a-f-]{36}", "CNI"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"vfs/dir/[0-9a-f]{64}", "vfs/dir/LAYER"),
        (r"\b198\.1[89]\.\d+\.\d+\b", "IP"),
        (r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC"),
        (r"fe80::[0-9a-f:]+", "IP6"),
        (r"veth[0-9a-f]+", "VETH"),
        (r"pid=\d+|pid \d+", "pid N"),
        // Columns are as wide as what was in them.
        (r" {2,}", "  "),
    ]
    .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
    .into()
});

impl Output {
    /// The same output with known names in place of ids, and without what changes from run to run.
    pub(crate) fn steady(&self, ids: &[(&str, &str)]) -> Self {
        let steady = |text: &str| {
            let mut text = text.to_owned();
            for (id, name) in ids.iter().filter(|(id, _)| !id.is_empty()) {
                text = text.replace(id, name);
                // Tables cut ids to 13 characters, and host names are made of 12.
                for length in [13, 12] {
                    text = text.replace(&id[..id.len().min(length)], name);
                }
            }
            for (pattern, with) in VOLATILE.iter() {
                text = pattern.replace_all(&text, *with).into_owned();
            }
            text
        };
        Self { code: self.code, stdout: steady(&self.stdout), stderr: steady(&self.stderr) }
    }

    /// The same output with its numbers taken out and its columns closed up, for figures.
    pub(crate) fn shape(self) -> Self {
        static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d+(\.\d+)?([kMG]?B)?").unwrap());
        let words = NUMBER.replace_all(&self.stdout, "N").split_whitespace().collect::<Vec<_>>().join(" ");
        Self { stdout: words, ..self }
    }
}
