//! The configuration file: the flags of `run` under names in camel case, the source of the node's
//! pods, and rules for probes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::flags::MAX_UID;
use super::kubelet;
use super::validator::Validator;
use super::values::choice;
use super::{ConfigProblem, Environment, ExecLimitFlags, Flags, exec_limits};
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::{FieldLines, Probe, ProbeType, Source, read_probe, syntax_error};
use crate::policy::{self, FaultRule};
use crate::probe::{KubeletSource, Rule, Selector, SpecResolver, matches};
use crate::regular_file::{MAX_YAML_BYTES, read_named_to_string, read_to_string};
use crate::socket::SocketPath;

/// Path that stands for no configuration file.
const NO_FILE: &str = "/dev/null";

/// Names of the fields that do not correspond to a flag with one value.
const NON_FLAG_FIELDS: [&str; 11] = [
    "allowUid",
    "allowControlUid",
    "httpPods",
    "redactCommands",
    "coalesceProbes",
    "execMatch",
    "manifests",
    "neverKill",
    "kubelet",
    "probes",
    "faults",
];

/// Contents of a configuration file that no flag can hold.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Rules for probes.
    pub(super) rules: Vec<Rule>,
    /// The source of the node's pods.
    pub(super) kubelet: Option<KubeletSource>,
    /// Selectors of containers that are never killed.
    pub(super) protected: Vec<Selector>,
    /// Fault rules.
    pub(super) faults: Vec<FaultRule>,
    /// Flags of the command line for limits and coalescing.
    pub(super) exec_flags: ExecLimitFlags,
    /// Path of the file.
    pub(super) path: Option<PathBuf>,
}

impl File {
    /// Returns a resolver with the rules of the file.
    pub(super) fn specs(&self) -> SpecResolver {
        SpecResolver::default().and_rules(self.rules.clone())
    }

    /// Reads the file that the flags name, or the default file if it exists, and fills in flags
    /// that are not set. Adds each error in the file to `validator` as a separate problem.
    pub(super) fn read(flags: &mut Flags, around: &Environment, validator: &mut Validator) -> Self {
        let path = flags.config.clone().or_else(|| around.default_config());
        let Some(path) = path.filter(|path| path != Path::new(NO_FILE)) else { return Self::default() };
        let read = if flags.config.is_some() { read_named_to_string } else { read_to_string };
        let text = read(&path, MAX_YAML_BYTES).map_err(|error| problem(&path, error.to_string()));
        let (text, value) = match text.and_then(|text| parsed(&path, &text).map(|value| (text, value))) {
            Ok(parsed) => parsed,
            Err(problem) => {
                validator.problems.push(problem);
                return Self::default();
            }
        };
        let (mut problems, exec_flags) = (Vec::new(), flags.exec_limits.clone());
        let root = Cursor::root("", &value);
        let file = root.object(&mut problems).map(|_| {
            validator.written = fill_in(flags, &root, &path, &mut problems);
            Self::from_root(&root, flags.redact_commands, &mut problems)
        });
        if !problems.is_empty() {
            let lines = FieldLines::from_text(&text, serde_saphyr::Options::default());
            let located = |wrong: &Violation| ConfigProblem {
                field: match lines.first() {
                    Some(lines) => format!("{}:{}:", path.display(), lines.line(wrong.path())),
                    None => format!("{}:", path.display()),
                },
                value: None,
                reason: wrong.to_string(),
            };
            validator.problems.extend(problems.iter().map(located));
        }
        Self { path: Some(path), exec_flags, ..file.unwrap_or_default() }
    }

    fn from_root(root: &Cursor<'_>, redacts: bool, problems: &mut Vec<Violation>) -> Self {
        let kubelet = root.field("kubelet").and_then(|node| kubelet::source(&node, problems));
        let rules = root.field("probes").map(|rules| if redacts { rules.secret() } else { rules });
        let rules = rules.map(|rules| rules.list(problems)).unwrap_or_default();
        let rules = rules.iter().map(|rule| self::rule(rule, problems)).collect();
        let protected = root.field("neverKill").map(|nodes| nodes.list(problems)).unwrap_or_default();
        let protected = protected.iter().map(|node| matches(node, problems)).collect();
        let faults = root.field("faults").map(|rules| policy::rules(&rules, problems)).unwrap_or_default();
        Self { rules, kubelet, protected, faults, ..Self::default() }
    }
}

/// Returns the field `admin` of the default configuration file, if the file exists, may be read by
/// this user and sets the field.
pub(super) fn admin_field(around: &Environment, validator: &mut Validator) -> Option<SocketPath> {
    let path = around.default_config()?;
    // The file of a probeshim that root runs need not be readable by others.
    let Ok(text) = read_to_string(&path, MAX_YAML_BYTES) else { return None };
    let root = parsed(&path, &text).map_err(|problem| validator.problems.push(problem)).ok()?;
    let text = root.get("admin")?.as_str()?;
    let wrong = |error| problem(&path, format!("admin {text:?} {error}"));
    SocketPath::parse(text).map_err(|error| validator.problems.push(wrong(error))).ok()
}

/// Parses the fields of a file that are also flags.
struct FlagFields<'a> {
    root: &'a Cursor<'a>,
    path: &'a Path,
    problems: &'a mut Vec<Violation>,
    known: Vec<&'static str>,
    /// File and field of each value, by the name of its flag.
    written: BTreeMap<&'static str, String>,
}

impl FlagFields<'_> {
    /// Parses a field, and sets the flag if the command line does not.
    fn fill<T, E: Display>(
        &mut self,
        field: &'static str,
        flag: &'static str,
        slot: &mut Option<T>,
        parse: fn(&str) -> Result<T, E>,
    ) {
        self.known.push(field);
        let Some(node) = self.root.field(field) else { return };
        let parsed = string(&node, self.problems).map(|text| parse(&text));
        if let Some(Err(error)) = &parsed {
            node.error(error.to_string(), self.problems);
        }
        if slot.is_none() {
            *slot = parsed.and_then(Result::ok);
            self.written.insert(flag, format!("{}: {field}", self.path.display()));
        }
    }

    /// Parses a field with a limit, and sets the flag if the command line does not.
    fn fill_limit(&mut self, field: &'static str, slot: &mut Option<NonZeroU32>) {
        self.known.push(field);
        let Some(node) = self.root.field(field) else { return };
        // A number in quotes is one too.
        let text = node.value().as_u64().map(|number| number.to_string());
        let text = text.or_else(|| node.value().as_str().map(str::to_owned)).unwrap_or_default();
        let parsed = exec_limits::limit(&text).map_err(|error| node.error(error.to_string(), self.problems));
        *slot = slot.or(parsed.ok());
    }
}

/// Sets the flags that the command line does not. Returns the file and field of each value, by the
/// name of its flag.
fn fill_in(
    flags: &mut Flags,
    root: &Cursor<'_>,
    path: &Path,
    problems: &mut Vec<Violation>,
) -> BTreeMap<&'static str, String> {
    let mut fields = FlagFields { root, path, problems, known: Vec::new(), written: BTreeMap::new() };
    fields.fill("listen", "--listen", &mut flags.listen, str::parse);
    fields.fill("upstream", "--upstream", &mut flags.upstream, str::parse);
    fields.fill("admin", "--admin", &mut flags.admin, str::parse);
    fields.fill("http", "--http", &mut flags.http, str::parse);
    let metrics = &mut flags.metrics;
    fields.fill("metricsListen", "--metrics-listen", &mut metrics.metrics_listen, str::parse);
    fields.fill("metricsTlsCert", "--metrics-tls-cert", &mut metrics.metrics_tls_cert, str::parse);
    fields.fill("metricsTlsKey", "--metrics-tls-key", &mut metrics.metrics_tls_key, str::parse);
    fields.fill("metricsClientCa", "--metrics-client-ca", &mut metrics.metrics_client_ca, str::parse);
    let token_review = &mut metrics.metrics_token_review;
    fields.fill("metricsTokenReview", "--metrics-token-review", token_review, str::parse);
    fields.fill("enforce", "--enforce", &mut flags.enforce, choice);
    fields.fill("maxKills", "--max-kills", &mut flags.max_kills, str::parse);
    fields.fill("stateDir", "--state-dir", &mut flags.state_dir, str::parse);
    fields.fill("recordLimit", "--record-limit", &mut flags.record_limit, str::parse);
    fields.fill("otlpEndpoint", "--otlp-endpoint", &mut flags.otlp_endpoint, str::parse);
    fields.fill("watchRuntime", "--watch-runtime", &mut flags.watch_runtime, choice);
    fields.fill("slowThreshold", "--slow-threshold", &mut flags.slow_threshold, str::parse);
    fields.fill("drainTimeout", "--drain-timeout", &mut flags.drain_timeout, str::parse);
    fields.fill("log", "--log", &mut flags.log, str::parse);
    let limits = &mut flags.exec_limits;
    fields.fill_limit("maxExecSyncs", &mut limits.max_exec_syncs);
    fields.fill_limit("maxExecSyncsPerContainer", &mut limits.max_exec_syncs_per_container);
    fields.fill("execSyncOverflow", "--exec-sync-overflow", &mut limits.exec_sync_overflow, choice);
    fields.fill("exec", "--exec", &mut limits.exec, choice);
    let FlagFields { known, mut written, .. } = fields;
    let known: Vec<&str> = known.into_iter().chain(NON_FLAG_FIELDS).collect();
    root.deny_unknown(&known, problems);
    let redacts = root.field("redactCommands").and_then(|it| it.flag(problems));
    flags.redact_commands |= redacts.unwrap_or(false);
    let coalesces = root.field("coalesceProbes").and_then(|it| it.flag(problems));
    flags.exec_limits.coalesce_probes |= coalesces.unwrap_or(false);
    let exec_match = root.field("execMatch").map(|node| matches(&node, problems));
    flags.exec_limits.exec_match = flags.exec_limits.exec_match.take().or(exec_match);
    let http_pods = root.field("httpPods").and_then(|it| it.flag(problems));
    flags.http_pods |= http_pods.unwrap_or(false);
    for (name, flag) in
        [("allowUid", &mut flags.allow_uid), ("allowControlUid", &mut flags.allow_control_uid)]
    {
        let uids = root.field(name).map(|uids| uids.list(problems)).unwrap_or_default();
        let uids: Vec<u32> = uids.iter().filter_map(|uid| parse_uid(uid, problems)).collect();
        if flag.is_empty() {
            *flag = uids;
        }
    }
    let manifests = root.field("manifests").map(|paths| paths.string_list(problems)).unwrap_or_default();
    if flags.manifests.is_empty() && !manifests.is_empty() {
        flags.manifests = manifests.into_iter().map(PathBuf::from).collect();
        written.insert("--manifests", format!("{}: manifests", path.display()));
    }
    written
}

fn parse_uid(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<u32> {
    let uid = node.value().as_u64().filter(|uid| *uid <= MAX_UID).and_then(|uid| u32::try_from(uid).ok());
    if uid.is_none() {
        node.error(format!("must be a whole number from 0 to {MAX_UID}"), problems);
    }
    uid
}

/// Returns a problem of the file at this path.
fn problem(path: &Path, reason: String) -> ConfigProblem {
    ConfigProblem { field: format!("{}:", path.display()), value: None, reason }
}

/// Parses the text of the file at this path.
fn parsed(path: &Path, text: &str) -> Result<Value, ConfigProblem> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        let (at, reason) = syntax_error(path, text, &error);
        ConfigProblem { field: format!("{at}:"), value: None, reason }
    })?;
    // An empty file sets nothing.
    Ok(if value.is_null() { Value::Object(serde_json::Map::new()) } else { value })
}

/// Returns the string of a node. YAML parses an unquoted on or off as a boolean, which is converted
/// back.
fn string(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<String> {
    match node.value() {
        Value::Bool(true) => Some("on".to_owned()),
        Value::Bool(false) => Some("off".to_owned()),
        _ => node.text(problems),
    }
}

fn rule(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Rule {
    if node.object(problems).is_none() {
        return Rule::default();
    }
    node.deny_unknown(&["match", "startupProbe", "readinessProbe", "livenessProbe"], problems);
    let chosen = node.field("match");
    if chosen.is_none() {
        node.missing("match", "must select containers; {} selects all", problems);
    }
    let selector = chosen.map(|chosen| matches(&chosen, problems)).unwrap_or_default();
    let before = problems.len();
    let mut probes: Vec<(ProbeType, Option<Arc<Probe>>)> = Vec::new();
    for probe_type in ProbeType::ALL {
        let Some(probe) = node.field(probe_type.field()) else { continue };
        if probe.value() == "off" || probe.value() == &Value::Bool(false) {
            probes.push((probe_type, None));
        } else if !probe.value().is_object() {
            probe.error("must be a probe, or off", problems);
        } else if let Some(read) = read_probe(probe_type, &probe, Source::Config, problems) {
            probes.push((probe_type, Some(Arc::new(read))));
        }
    }
    if probes.is_empty() && problems.len() == before {
        node.error("must have at least one of startupProbe, readinessProbe and livenessProbe", problems);
    }
    Rule { selector, probes }
}
