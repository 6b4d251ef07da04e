//! A document of Kubernetes → the pods that it makes, and what is executed in their containers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;

use super::expand::expand;
use super::node::{Node, Problem};
use super::owner::{Kind, Owner};
use super::spec::{ExecUse, Source, Use, Written};

/// What the kubelet takes for a probe that says nothing else, in seconds.
const TIMEOUT: i32 = 1;

/// The same, from one attempt to the next.
const PERIOD: i32 = 10;

/// The pods that a document makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Which pods they are.
    pub(super) owner: Owner,
    /// What is executed in their containers, by the container's name.
    pub(super) containers: BTreeMap<String, Vec<Written>>,
}

/// Reads a document. One that makes no pods makes nothing; a list makes what its items make.
pub(super) fn read(document: &Value, source: Source, problems: &mut Vec<Problem>) -> Vec<Manifest> {
    read_node(&Node::root("", document), source, problems)
}

fn read_node(node: &Node<'_>, source: Source, problems: &mut Vec<Problem>) -> Vec<Manifest> {
    if node.object(problems).is_none() {
        return Vec::new();
    }
    let Some(kind) = node.field("kind") else {
        node.complain("must have a kind, such as Pod or Deployment", problems);
        return Vec::new();
    };
    let Some(kind) = kind.text(problems) else { return Vec::new() };
    if kind == "List" || kind == "PodList" {
        let items = node.field("items").map(|items| items.list(problems)).unwrap_or_default();
        return items.iter().flat_map(|item| read_node(item, source, problems)).collect();
    }
    let Some(kind) = Kind::named(&kind) else { return Vec::new() };
    let pod = match kind {
        Kind::Pod => Some(node.clone()),
        Kind::CronJob => node.at(&["spec", "jobTemplate", "spec", "template"]),
        _ => node.at(&["spec", "template"]),
    };
    let Some(pod) = pod else {
        node.complain("must have a pod template in its spec", problems);
        return Vec::new();
    };
    let Some(named) = node.at(&["metadata", "name"]) else {
        node.complain("must have a name in its metadata", problems);
        return Vec::new();
    };
    let Some(name) = named.text(problems) else { return Vec::new() };
    if !is_name(&name) {
        named.complain(
            "must be a name of Kubernetes: up to 253 lower-case letters, digits, - and ., with a letter or digit at each end",
            problems,
        );
    }
    let text =
        |path: &[&str], problems: &mut Vec<Problem>| node.at(path).and_then(|node| node.text(problems));
    let owner = Owner {
        kind,
        name,
        namespace: text(&["metadata", "namespace"], problems).unwrap_or_else(|| "default".to_owned()),
        uid: text(&["metadata", "uid"], problems).filter(|_| kind == Kind::Pod),
        labels: labels(&pod, problems),
    };
    vec![Manifest { owner, containers: containers(&pod, source, problems) }]
}

/// Whether the API server takes it for the name of what makes pods.
fn is_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().next_back()];
    ends.into_iter().all(|end| end.is_some_and(is_word))
        && name.len() <= 253
        && name.bytes().all(|byte| is_word(byte) || byte == b'-' || byte == b'.')
}

fn labels(pod: &Node<'_>, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let Some(labels) = pod.at(&["metadata", "labels"]) else { return BTreeMap::new() };
    let Some(object) = labels.object(problems) else { return BTreeMap::new() };
    let read = |key: &String| Some((key.clone(), labels.field(key)?.text(problems)?));
    object.keys().filter_map(read).collect()
}

/// What is executed in the containers of a pod, init containers included: sidecars are among them.
fn containers(pod: &Node<'_>, source: Source, problems: &mut Vec<Problem>) -> BTreeMap<String, Vec<Written>> {
    let mut read = BTreeMap::new();
    for list in ["initContainers", "containers"] {
        let Some(list) = pod.at(&["spec", list]) else { continue };
        for container in list.list(problems) {
            if container.object(problems).is_none() {
                continue;
            }
            match container.field("name").map(|name| name.text(problems)) {
                Some(Some(name)) => {
                    read.insert(name, container_uses(&container, source, problems));
                }
                Some(None) => {}
                None => container.complain("must have a name", problems),
            }
        }
    }
    read
}

fn container_uses(container: &Node<'_>, source: Source, problems: &mut Vec<Problem>) -> Vec<Written> {
    let env = env(container, problems);
    let mut uses = Vec::new();
    for (used, field) in Use::PROBES {
        let probe = container.field(field);
        uses.extend(probe.map(|probe| (used, self::probe(used, &probe, &env, source, problems))));
    }
    for (used, field) in Use::HOOKS {
        let hook = container.at(&["lifecycle", field]);
        uses.extend(hook.map(|hook| (used, self::hook(used, &hook, source, problems))));
    }
    uses
}

/// The variables that the kubelet expands in the commands of probes: those with a value in the spec. One that takes its value from
/// elsewhere is there, and empty.
fn env(container: &Node<'_>, problems: &mut Vec<Problem>) -> HashMap<String, String> {
    let list = container.field("env").map(|env| env.list(problems)).unwrap_or_default();
    let mut env = HashMap::new();
    for variable in list {
        let name = variable.field("name").and_then(|name| name.text(problems));
        let value = variable.field("value").and_then(|value| value.secret().text(problems));
        env.extend(name.map(|name| (name, value.unwrap_or_default())));
    }
    env
}

/// A probe, if it executes something.
pub(super) fn probe(
    used: Use,
    probe: &Node<'_>,
    env: &HashMap<String, String>,
    source: Source,
    problems: &mut Vec<Problem>,
) -> Option<ExecUse> {
    probe.object(problems)?;
    let mut seconds =
        |field, default| probe.field(field).map_or(default, |seconds| seconds.seconds_or(default, problems));
    let timeout_seconds = i64::from(seconds("timeoutSeconds", TIMEOUT));
    let period = Duration::from_secs(seconds("periodSeconds", PERIOD).unsigned_abs().into());
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
    one_handler(probe, &handlers, "must have one of exec, httpGet, tcpSocket and grpc", problems);
    let command = command(probe, problems)?;
    Some(ExecUse { used, command: expand(&command, env), timeout_seconds, period: Some(period), source })
}

/// A hook, if it executes something. The kubelet expands nothing in it, and sets no timeout.
pub(super) fn hook(
    used: Use,
    hook: &Node<'_>,
    source: Source,
    problems: &mut Vec<Problem>,
) -> Option<ExecUse> {
    hook.object(problems)?;
    let handlers = ["exec", "httpGet", "tcpSocket", "sleep"];
    one_handler(hook, &handlers, "must have one of exec, httpGet, tcpSocket and sleep", problems);
    let command = command(hook, problems)?;
    Some(ExecUse { used, command, timeout_seconds: 0, period: None, source })
}

/// Complains of a probe or hook that does nothing, or more than one thing.
fn one_handler(node: &Node<'_>, handlers: &[&str], reason: &'static str, problems: &mut Vec<Problem>) {
    let there = handlers.iter().filter(|handler| node.field(handler).is_some());
    if there.count() != 1 {
        node.complain(reason, problems);
    }
}

fn command(handler: &Node<'_>, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    let exec = handler.field("exec")?;
    exec.object(problems)?;
    let Some(command) = exec.field("command") else {
        exec.complain("must have a command", problems);
        return None;
    };
    let before = problems.len();
    let texts = command.texts(problems);
    if texts.is_empty() && problems.len() == before {
        command.complain("must name a program", problems);
    }
    (problems.len() == before).then_some(texts)
}
