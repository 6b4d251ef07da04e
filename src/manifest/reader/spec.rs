//! Reads the fields of a pod that probes, hooks and restarts depend on, by the rules of Kubernetes
//! 1.36.

use std::sync::Arc;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::exec_purpose::ExecPurpose;
use crate::manifest::pod_spec::{
    ContainerKind, ContainerPort, ContainerSpec, Env, GRACE_PERIOD, PodSpec, RestartPolicy, RestartRule,
};
use crate::manifest::probe::ProbeType;
use crate::manifest::reader::probe::{hook, probe};
use crate::manifest::source::Source;
use crate::manifest::validation::PORT_NUMBER;

/// Longest grace period of a pod in seconds. Kubernetes has no maximum; this one is 68 years.
const MAX_GRACE_PERIOD: u32 = i32::MAX.unsigned_abs();

/// Limits of the API server for the restart rules of a container (`core/validation/validation.go`:
/// `validateContainerRestartPolicy`).
const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

/// The part of a pod that probes, hooks and restarts depend on.
pub(super) struct SpecReading<'a> {
    pub(super) spec: PodSpec,
    /// Nodes of the containers, in the order of [`PodSpec::containers`], from which the rest of the
    /// reader reads the other fields.
    pub(super) containers: Vec<(Cursor<'a>, Arc<ContainerSpec>)>,
}

/// Reads the fields of a pod or a pod template that probes, hooks and restarts depend on, and
/// ignores other fields.
pub(crate) fn read(pod: &Cursor<'_>, source: Source, problems: &mut Vec<Violation>) -> PodSpec {
    match pod.field("spec") {
        Some(spec) => read_spec(pod, &spec, source, problems).spec,
        None => PodSpec::default(),
    }
}

/// Reads the fields that probes, hooks and restarts depend on, and returns the nodes of the
/// containers as well. `spec` is the field of `pod`.
pub(super) fn read_spec<'a>(
    pod: &Cursor<'_>,
    spec: &Cursor<'a>,
    source: Source,
    problems: &mut Vec<Violation>,
) -> SpecReading<'a> {
    // An empty text counts as absent.
    let policy = spec.field("restartPolicy").filter(|policy| policy.value() != "");
    let policy = policy.and_then(|policy| policy.one_of(&RestartPolicy::NAMED, problems));
    let grace = spec.field("terminationGracePeriodSeconds");
    let grace = grace.and_then(|at| match at.value().as_i64() {
        // `pkg/apis/core/v1/conversion.go`: `Convert_v1_Pod_To_core_Pod`.
        Some(..0) => Some(1),
        Some(grace) => Some(u32::try_from(grace).unwrap_or(u32::MAX).min(MAX_GRACE_PERIOD)),
        None => at.non_negative(problems),
    });
    let mut containers = Vec::new();
    for (list, is_init) in [("containers", false), ("initContainers", true)] {
        for node in spec.field(list).map(|list| list.list(problems)).unwrap_or_default() {
            let read = container(&node, is_init, source, problems);
            containers.extend(read.map(|container| (node, Arc::new(container))));
        }
    }
    no_probes(spec, problems);
    let spec = PodSpec {
        is_deleted: pod.at(&["metadata", "deletionTimestamp"]).is_some(),
        restart_policy: policy.unwrap_or_default(),
        termination_grace_period: Some(grace.unwrap_or(GRACE_PERIOD)),
        containers: containers.iter().map(|(_, container)| container.clone()).collect(),
    };
    SpecReading { spec, containers }
}

/// Reports probes of ephemeral containers, which have none.
fn no_probes(spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let list = spec.field("ephemeralContainers").map(|list| list.list(problems)).unwrap_or_default();
    for container in list {
        forbid(&container, "cannot be set for an Ephemeral Container", problems);
    }
}

/// Reports each probe and the lifecycle of a container.
fn forbid(container: &Cursor<'_>, reason: &'static str, problems: &mut Vec<Violation>) {
    let probes = ProbeType::ALL.map(ProbeType::field).into_iter();
    for field in probes.chain(["lifecycle"]).filter_map(|field| container.field(field)) {
        field.forbidden(reason, problems);
    }
}

fn container(
    node: &Cursor<'_>,
    is_init: bool,
    source: Source,
    problems: &mut Vec<Violation>,
) -> Option<ContainerSpec> {
    node.object(problems)?;
    let Some(name) = node.field("name") else {
        node.missing("name", "", problems);
        return None;
    };
    let name = name.text(problems)?;
    let policy = node.field("restartPolicy");
    let restart_policy = policy.and_then(|policy| policy.one_of(&RestartPolicy::NAMED, problems));
    let role = match (is_init, restart_policy) {
        (false, _) => ContainerKind::Regular,
        (true, Some(RestartPolicy::Always)) => ContainerKind::Sidecar,
        (true, _) => ContainerKind::Init,
    };
    if role == ContainerKind::Init {
        forbid(node, "may not be set for init containers without restartPolicy=Always", problems);
    }
    let mut container = ContainerSpec { name, role, restart_policy, ..ContainerSpec::default() };
    container.image = node.field("image").and_then(|image| image.text(problems));
    container.restart_rules = rules(node, problems);
    container.ports = ports(node, problems);
    container.env = env(node, problems);
    if !node.is_lenient() {
        reject_misplaced_probes(node, problems);
    }
    if role != ContainerKind::Init {
        for probe_type in ProbeType::ALL {
            let read = node.field(probe_type.field());
            let read = read.and_then(|node| probe(probe_type, &node, source, problems));
            container.probes.extend(read.map(|probe| (probe_type, Some(Arc::new(probe)))));
        }
        for (used, field) in ExecPurpose::HOOK_PURPOSES {
            let read = node.at(&["lifecycle", field]);
            let read = read.and_then(|node| hook(&node, problems));
            container.hooks.extend(read.map(|hook| (used, hook)));
        }
    }
    Some(container)
}

/// Reports fields that look like misspelt names of probes, because probeshim would ignore them.
fn reject_misplaced_probes(container: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let fields = container.value().as_object().into_iter().flat_map(|object| object.keys());
    let is_slip = |field: &&String| {
        let small = field.to_ascii_lowercase();
        small.contains("probe") && ProbeType::ALL.iter().all(|known| known.field() != field.as_str())
    };
    for slip in fields.filter(is_slip).filter(|field| container.field(field).is_some()) {
        container.unknown_field(slip, &ProbeType::ALL.map(ProbeType::field), problems);
    }
}

/// Reads the restart rules of a container.
fn rules(container: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<RestartRule> {
    let Some(node) = container.field("restartPolicyRules") else { return Vec::new() };
    let rules = node.list(problems);
    if container.field("restartPolicy").is_none() && !rules.is_empty() {
        container.missing(
            "restartPolicy",
            "must specify restartPolicy when restart rules are used",
            problems,
        );
    }
    if rules.len() > MAX_RESTART_RULES {
        node.too_many(MAX_RESTART_RULES, problems);
    }
    rules.iter().filter_map(|rule| self::rule(rule, problems)).collect()
}

fn rule(rule: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<RestartRule> {
    rule.object(problems)?;
    rule.deny_unknown(&["action", "exitCodes"], problems);
    let actions = [("Restart", false), ("RestartAllContainers", true)];
    let action = rule.field("action").map(|action| action.one_of(&actions, problems));
    if action.is_none() {
        rule.missing("action", "supported values: \"Restart\", \"RestartAllContainers\"", problems);
    }
    let Some(exit_codes) = rule.field("exitCodes") else {
        rule.missing("exitCodes", "must be specified", problems);
        return None;
    };
    exit_codes.object(problems)?;
    exit_codes.deny_unknown(&["operator", "values"], problems);
    let operators = [("In", true), ("NotIn", false)];
    let operator = exit_codes.field("operator").map(|operator| operator.one_of(&operators, problems));
    if operator.is_none() {
        exit_codes.missing("operator", "supported values: \"In\", \"NotIn\"", problems);
    }
    let values = exit_codes.field("values");
    let list = values.as_ref().map(|values| values.list(problems)).unwrap_or_default();
    if let Some(values) = values.filter(|_| list.len() > MAX_EXIT_CODES) {
        values.too_many(MAX_EXIT_CODES, problems);
    }
    let code = |code: &Cursor<'_>| {
        code.number(i32::MIN.into()..=i32::MAX.into(), "must be a 32-bit integer", problems)
    };
    let codes = list.iter().filter_map(code).collect();
    Some(RestartRule { is_in: operator??, codes, restarts_all: action?? })
}

fn ports(container: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<ContainerPort> {
    let list = container.field("ports").map(|ports| ports.list(problems)).unwrap_or_default();
    list.iter().filter_map(|node| port(node, problems)).collect()
}

/// Reads a port from a spec or from the kubelet's annotation.
pub(crate) fn port(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<ContainerPort> {
    let name = node.field("name").and_then(|name| name.text(problems));
    let number = node.field("containerPort")?.number(1..=65_535, PORT_NUMBER, problems)?;
    Some(ContainerPort { name: name.filter(|name| !name.is_empty()), number })
}

fn env(container: &Cursor<'_>, problems: &mut Vec<Violation>) -> Env {
    let list = container.field("env").map(|env| env.list(problems)).unwrap_or_default();
    let mut env = Env::new();
    for variable in list {
        let name = variable.field("name").and_then(|name| name.text(problems));
        let value = variable.field("value").and_then(|value| value.secret().text(problems));
        env.extend(name.map(|name| (name, value.unwrap_or_default())));
    }
    env
}
