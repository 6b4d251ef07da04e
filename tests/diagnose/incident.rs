//! Incidents with a known cause, and the diagnoses that are right.

use std::fs;
use std::path::Path;

use fixtures::image::BUSYBOX;
use fixtures::kubelet::manifest_of;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

/// Command of a container that names none. The shell waits for orphans.
const COMMAND: [&str; 3] = ["sh", "-c", "while :; do sleep 1; done"];

/// Lints about the load of the machine, which runs several incidents at once: they are true, and
/// say nothing about an incident.
const OF_MACHINE: [&str; 3] = ["busy-node", "slow-disk", "memory-pressure"];

/// An incident, as its file in `incidents` describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Incident {
    /// Name of the file.
    #[serde(skip)]
    pub(crate) name: String,
    /// Name of the pod. It says nothing about the cause, because answers contain it.
    #[serde(skip)]
    pub(crate) pod_name: String,
    /// Cause, in a sentence.
    pub(crate) cause: String,
    /// Program that runs the probes.
    #[serde(default)]
    pub(crate) prober: Prober,
    /// Whether the incident belongs to the short form.
    #[serde(default)]
    pub(crate) short: bool,
    /// Whether no other incident may run at the same time.
    #[serde(default)]
    pub(crate) alone: bool,
    /// Earlier version of the pod, which its manifest replaces.
    pub(crate) before: Option<Before>,
    /// Intervention from outside, which ends when the condition holds.
    pub(crate) act: Option<Act>,
    /// Condition under which the diagnoses are read.
    pub(crate) until: Until,
    /// Number of equal containers.
    #[serde(default = "one")]
    containers: usize,
    /// Fields of the container, besides its name and image.
    container: Value,
    /// Fields of the spec, besides the containers.
    #[serde(default)]
    pod: Value,
    pub(crate) explain: Option<Explained>,
    pub(crate) lint: Option<Linted>,
    pub(crate) describe: Option<Expected>,
}

/// Earlier version of a pod.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Before {
    /// Condition under which the manifest is replaced.
    pub(crate) until: Until,
    /// Fields of the container, besides its name and image.
    container: Value,
}

/// Program that runs the probes of an incident.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Prober {
    /// A kubelet, whose runtime is probeshim.
    #[default]
    Kubelet,
    /// `probeshim play`.
    Probeshim,
}

/// An intervention from outside.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    /// The processes of the container are frozen.
    Freeze,
    /// Each of the first two processes of the container is killed with SIGKILL.
    Kill,
    /// The container may have no more processes than it has.
    LimitProcesses,
    /// The OCI runtime takes two seconds to start a command in the container.
    SlowStarts,
    /// The runtime is suspended.
    SuspendRuntime,
}

/// Conditions, all of which must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Until {
    /// Number of ExecSyncs of the pod.
    pub(crate) calls: usize,
    /// Number of those that failed.
    pub(crate) failed: usize,
    /// Number of those that were slow.
    pub(crate) slow: usize,
    /// Code of one of them.
    pub(crate) code: Option<String>,
    /// Number of restarts of the first container.
    pub(crate) restarts: u64,
    /// Reason of an event of the pod.
    pub(crate) event: Option<String>,
    /// Number of these events, if more than one is awaited.
    pub(crate) times: u64,
    /// Whether the first container is ready.
    pub(crate) ready: bool,
    /// Lint with a finding. It is awaited before the intervention ends, the rest afterwards.
    pub(crate) finding: Option<String>,
}

/// Expected explanation of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Explained {
    /// Flags that select the call among those of the pod.
    pub(crate) call: String,
    #[serde(flatten)]
    pub(crate) expected: Expected,
}

/// Expected findings. Each pattern is compared with one finding at a time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Linted {
    #[serde(default)]
    pub(crate) about: About,
    /// Names of all lints that may have a finding. Another finding is wrong.
    pub(crate) only: Vec<String>,
    #[serde(default)]
    must: Vec<String>,
    #[serde(default)]
    never: Vec<String>,
}

/// Findings that are compared.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum About {
    /// Findings that name the pod.
    #[default]
    Pod,
    /// Findings about the node.
    Node,
}

/// Patterns that a text must match, and patterns that it must not match.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expected {
    must: Vec<String>,
    never: Vec<String>,
}

fn one() -> usize {
    1
}

impl Incident {
    /// Reads all incidents, in the order of their names.
    pub(crate) fn read_all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnose/incidents");
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let read = |(nth, file): (usize, &std::path::PathBuf)| {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let parsed = serde_saphyr::from_str(&fs::read_to_string(file).unwrap());
            let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            Self { name, pod_name: format!("case-{nth}"), ..parsed }
        };
        files.iter().enumerate().map(read).collect()
    }

    /// Returns the manifest of the pod. `unused` is an address that replaces the word `UNUSED`.
    pub(crate) fn manifest(&self, unused: &str) -> Value {
        self.manifest_with(&self.container, unused)
    }

    /// Returns the manifest of the pod's earlier version, if it has one.
    pub(crate) fn earlier_manifest(&self, unused: &str) -> Option<(&Until, Value)> {
        let before = self.before.as_ref()?;
        Some((&before.until, self.manifest_with(&before.container, unused)))
    }

    fn manifest_with(&self, fields: &Value, unused: &str) -> Value {
        let mut container = json!({"image": BUSYBOX, "imagePullPolicy": "Never", "command": COMMAND});
        extend(&mut container, fields);
        let named = |nth: usize| {
            let mut container = container.clone();
            container["name"] = if nth == 0 { "main".into() } else { format!("main-{nth}").into() };
            container
        };
        let containers: Vec<Value> = (0..self.containers).map(named).collect();
        let mut spec = json!({"terminationGracePeriodSeconds": 1, "containers": containers});
        extend(&mut spec, &self.pod);
        let spec = spec.to_string().replace("UNUSED", unused);
        manifest_of(&self.pod_name, &serde_json::from_str(&spec).unwrap())
    }
}

impl Expected {
    /// Returns the expectations that a text does not meet.
    pub(crate) fn unmet_by(&self, text: &str) -> Vec<String> {
        unmet(&self.must, &self.never, &[text])
    }
}

impl Linted {
    /// Returns the expectations that findings do not meet.
    pub(crate) fn unmet_by(&self, findings: &[&str]) -> Vec<String> {
        let is_expected = |finding: &&str| {
            let lint = finding.split([' ', ':']).nth(1).unwrap_or_default();
            self.only.iter().any(|expected| expected == lint) || OF_MACHINE.contains(&lint)
        };
        let others = findings.iter().filter(|finding| !is_expected(finding));
        let others =
            others.map(|finding| format!("must not find {:?}", finding.lines().next().unwrap_or_default()));
        others.chain(unmet(&self.must, &self.never, findings)).collect()
    }
}

/// Returns the patterns that no text matches, and those that a text must not match. Line breaks of
/// a text do not matter.
fn unmet(must: &[String], never: &[String], texts: &[&str]) -> Vec<String> {
    let texts: Vec<String> =
        texts.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let has = |pattern: &str| {
        let pattern = pattern_of(pattern);
        texts.iter().any(|text| pattern.is_match(text))
    };
    let missing = must.iter().filter(|pattern| !has(pattern)).map(|it| format!("must match {it:?}"));
    let wrong = never.iter().filter(|pattern| has(pattern)).map(|it| format!("must not match {it:?}"));
    missing.chain(wrong).collect()
}

fn pattern_of(pattern: &str) -> Regex {
    let regex = RegexBuilder::new(pattern).case_insensitive(true).build();
    regex.unwrap_or_else(|error| panic!("{error}"))
}

fn extend(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}
