//! The same pods with a kubelet and with `play`, and where their lives differ.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;
use tokio::time::Instant;

use super::containerd::{Containerd, Version};
use super::crictl::Crictl;
use super::kubelet::NODE;
use super::life::Runtime as _;
use super::node::Node;
use super::play::Player;
use super::server::wait_for;
use super::story::{Case, Instance, Life, Observer};

/// Time without any change after which what is awaited is taken never to happen.
const NEVER: Duration = Duration::from_secs(60);

/// What times may differ by, beside the lag of the machine: probes are attempted on grids that begin with the pod, and are looked at once a
/// second. In seconds, and of what is waited under back-off the part that chance adds.
const JITTER: f64 = 2.5;
const SPREAD: f64 = 0.5;

/// A back-off that was served, in seconds.
const LONG: f64 = 5.0;

/// Why configurations differ: a kubelet has places and cgroups of its own, static pods have the name of their node, and our sandboxes are labelled as ours.
const PLACES: [&str; 4] = [
    "/log_directory",
    "/annotations/kubernetes.io~1config.seen",
    "/labels/probeshim.io~1state",
    "/linux/cgroup_parent",
];

/// What lasts with the kubelet until its next look, and has a row of its own in docs/parity.md.
const KNOWN: [&str; 3] =
    ["started false, ready true", "RestartingAllContainers", "AllContainersRestarting True"];

/// Whether the durations of lives and the times between them are compared. They depend on how fast the machine is, and on what else it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Compared, with a tolerance that follows the lag of the machine.
    Compared,
    /// Not compared. The order of starts, attempts, exit codes, reasons, states and configurations are.
    Ignored,
}

/// One of two sides on which the same pods live, watched from outside.
trait Side {
    /// Looks at the pods once.
    fn look(&mut self);

    /// The lives of the pods as far as they have been seen.
    fn observer(&self) -> &Observer;
}

/// `play` with its pods.
struct Played {
    player: Player,
    observer: Observer,
}

/// A kubelet with its pods.
struct Watched {
    node: Node,
    observer: Observer,
}

impl Side for Played {
    fn look(&mut self) {
        self.observer.look(&self.player.pods());
    }

    fn observer(&self) -> &Observer {
        &self.observer
    }
}

impl Side for Watched {
    fn look(&mut self) {
        self.observer.look(&self.node.kubelet.pods());
        self.read_log();
    }

    fn observer(&self) -> &Observer {
        &self.observer
    }
}

impl Watched {
    /// Until the kubelet has been up for as long as any period of these probes: before that it begins with each of them at a time of chance,
    /// and is deaf to all else until then (start jitter, which has a row of its own).
    fn start(cases: &[Case]) -> Result<Self, String> {
        let (node, begun) = (Node::start(false)?, Instant::now());
        let age = Duration::from_secs(cases.iter().map(Case::longest_period).max().unwrap_or(0));
        wait_for("the kubelet has been up for long", || (begun.elapsed() >= age).then_some(()));
        let crictl = Crictl::new("crictl-1.36", &node.containerd.socket(), node.containerd.folder())?;
        Ok(Self { node, observer: Observer::new(crictl, SUFFIX) })
    }

    fn run(&self, case: &Case) {
        self.node.kubelet.run(&case.value());
    }

    /// Adds the states that the kubelet's log proves. A kubelet of 1.36 shows `CrashLoopBackOff` from the sync at the end of the back-off until
    /// it has seen the container start again, which is too short to be seen by looking. Each sync that fails to start a container logs the
    /// reason that the status has from the next sync on.
    fn read_log(&mut self) {
        for line in self.node.kubelet.log().lines().filter(|line| line.contains("Error syncing pod")) {
            let Some((_, pod)) = line.rsplit_once(" pod=\"") else { continue };
            let name = pod.split(['/', '"']).nth(1).unwrap_or_default();
            for (_, [container, reason]) in START_FAILED.captures_iter(line).map(|found| found.extract()) {
                self.observer.has_waited(name, container, reason);
            }
        }
    }
}

/// The container that a sync failed to start, and the reason, in a line of the kubelet's log.
static START_FAILED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"StartContainer\\?" for \\?"([^"\\]+)\\?" with (\w+): "#).unwrap());

/// What the names of static pods end with.
const SUFFIX: &str = "-node";

/// Where `play` differs from a kubelet. The pods are watched for at least `least`.
pub(crate) fn compared(cases: &[Case], least: Duration, timing: Timing) -> Result<Vec<String>, String> {
    assert_eq!(SUFFIX, format!("-{NODE}"));
    let containerd = Containerd::start(Version::V2_2)?;
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder())?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let mut kubelet = Watched::start(cases)?;
    for case in cases {
        player.run(&case.name, &case.manifest);
        kubelet.run(case);
    }
    let mut ours = Played { player, observer: Observer::new(crictl, "") };
    Ok(watch(cases, [&mut ours, &mut kubelet], least, timing))
}

/// Where a kubelet differs from another. The pods are watched for at least `least`.
pub(crate) fn noise(cases: &[Case], least: Duration) -> Result<Vec<String>, String> {
    let (mut first, mut second) = (Watched::start(cases)?, Watched::start(cases)?);
    for case in cases {
        first.run(case);
        second.run(case);
    }
    Ok(watch(cases, [&mut first, &mut second], least, Timing::Compared))
}

/// Watches the pods of both sides for at least `least`, until each has lived its story on both sides and the sides agree. Returns what is
/// open, once nothing about it has changed for so long that it never will.
fn watch(cases: &[Case], sides: [&mut dyn Side; 2], least: Duration, timing: Timing) -> Vec<String> {
    let [ours, theirs] = sides;
    let (mut ours_unfinished, mut theirs_unfinished) =
        (cases.iter().collect::<Vec<_>>(), cases.iter().collect::<Vec<_>>());
    let begun = Instant::now();
    let (mut open, mut since) = (Vec::new(), begun);
    loop {
        ours.look();
        theirs.look();
        let (ours, theirs) = (ours.observer(), theirs.observer());
        let mut now = unfinished(&mut ours_unfinished, "us", ours);
        now.extend(unfinished(&mut theirs_unfinished, "the kubelet", theirs));
        if now.is_empty() {
            now = differences(cases, ours, theirs, timing);
        }
        if open != now {
            (open, since) = (now, Instant::now());
        }
        let is_over = open.is_empty() || since.elapsed() >= NEVER;
        if is_over && begun.elapsed() >= least {
            return open;
        }
    }
}

/// Removes the cases that have lived their story on a side, and returns what the others wait for.
fn unfinished(cases: &mut Vec<&Case>, side: &str, observer: &Observer) -> Vec<String> {
    let mut unfinished = Vec::new();
    cases.retain(|case| {
        let waits_for = match observer.lives.get(&case.name) {
            Some(life) => case.unfinished(life),
            None => Some("it is not there".to_owned()),
        };
        unfinished.extend(waits_for.iter().map(|what| format!("{}: with {side}: {what}", case.name)));
        waits_for.is_some()
    });
    unfinished
}

fn differences(cases: &[Case], ours: &Observer, theirs: &Observer, timing: Timing) -> Vec<String> {
    let mut differences = Vec::new();
    let lag = match timing {
        Timing::Compared => ours.lag().max(theirs.lag()),
        Timing::Ignored => f64::INFINITY,
    };
    for case in cases {
        let name = &case.name;
        match (ours.lives.get(name), theirs.lives.get(name)) {
            (Some(ours), Some(theirs)) => {
                let expects = case.story["containers"].as_object().is_some_and(|all| !all.is_empty());
                if expects && ours.containers.is_empty() && theirs.containers.is_empty() {
                    differences
                        .push(format!("{name}: there is no container, neither with us nor with the kubelet"));
                }
                lives((case, lag), ours, theirs, &mut differences);
                let [mut own, mut their] = [&ours.sandbox, &theirs.sandbox].map(Value::clone);
                if case.value()["spec"]["dnsPolicy"] != "None" {
                    // Resolvers are the node's.
                    for sandbox in [&mut own, &mut their] {
                        sandbox.as_object_mut().map(|config| config.remove("dns_config"));
                    }
                }
                configs(&format!("{name} sandbox"), &own, &their, &mut differences);
            }
            (ours, theirs) => differences.push(format!(
                "{name}: seen with us {}, with the kubelet {}",
                ours.is_some(),
                theirs.is_some()
            )),
        }
    }
    differences
}

/// Compares the containers of a pod, and how it stood. Times may differ by `lag` seconds because the machine is slow.
fn lives((case, lag): (&Case, f64), ours: &Life, theirs: &Life, differences: &mut Vec<String>) {
    let name = &case.name;
    let names: BTreeSet<&String> = ours.containers.keys().chain(theirs.containers.keys()).collect();
    for container in names {
        let whose = format!("{name} {container}");
        let (own, their) = (ours.instances(container), theirs.instances(container));
        let last_attempt = |all: &[&Instance]| all.last().map_or(0, |last| last.attempt);
        if last_attempt(&own).abs_diff(last_attempt(&their)) > 1 || own.is_empty() != their.is_empty() {
            let [own, their] = [&own, &their].map(|all| all.iter().map(|it| it.attempt).collect::<Vec<_>>());
            differences.push(format!("{whose}: attempts {own:?} with us, {their:?} with the kubelet"));
        }
        let mut last = None::<(&Instance, &Instance)>;
        // One that lived for less than a look may not have been seen.
        for own in own {
            let Some(their) = their.iter().copied().find(|it| it.attempt == own.attempt) else { continue };
            if last.is_none() {
                configs(&whose, &own.config, &their.config, differences);
            }
            instances((&whose, case.longest_period(), lag), (own, their), last, differences);
            last = Some((own, their));
        }
    }
    let (own, their) = (order(ours), order(theirs));
    for (first, second) in
        own.iter().filter(|(first, second)| their.contains(&(second.clone(), first.clone())))
    {
        differences
            .push(format!("{name}: with us {first} begins before {second}, with the kubelet after it"));
    }
    for (who, lasting, ever) in
        [("us", &ours.stood, &theirs.stood_once), ("the kubelet", &theirs.stood, &ours.stood_once)]
    {
        for stood in lasting.difference(ever).filter(|stood| !KNOWN.iter().any(|known| stood.contains(known)))
        {
            let subject = stood.split([':', ' ']).next().unwrap_or_default();
            let others: Vec<&String> = ever.iter().filter(|other| other.starts_with(subject)).collect();
            differences.push(format!("{name}: only with {who}: {stood}; the other: {others:?}"));
        }
    }
}

/// Compares two instances of a container, whose probes have this period at most, and how long they have come after those before them.
fn instances(
    (whose, period, lag): (&str, u64, f64),
    (own, their): (&Instance, &Instance),
    last: Option<(&Instance, &Instance)>,
    differences: &mut Vec<String>,
) {
    let whose = format!("{whose} {}", own.attempt);
    let last = last.filter(|(own_last, their_last)| {
        own_last.attempt + 1 == own.attempt && own_last.has_ended() && their_last.has_ended()
    });
    let gaps = last
        .filter(|_| own.started > 0.0 && their.started > 0.0)
        .map(|(own_last, their_last)| (own.started - own_last.finished, their.started - their_last.finished));
    if own.has_ended() && their.has_ended() {
        let told = |it: &Instance| (it.exit_code, it.reason.clone());
        if told(own) != told(their) {
            differences.push(format!(
                "{whose}: ended {:?} with us, {:?} with the kubelet",
                told(own),
                told(their)
            ));
        }
        // Whoever has waited for long begins anywhere in the period of its probes.
        let has_waited = gaps.is_some_and(|(gap, their_gap)| gap.max(their_gap) > LONG);
        let chance = if has_waited { Duration::from_secs(period).as_secs_f64() } else { 0.0 };
        if (own.lived() - their.lived()).abs() > JITTER + lag + chance {
            differences.push(format!(
                "{whose}: lived {:.1}s with us, {:.1}s with the kubelet",
                own.lived(),
                their.lived()
            ));
        }
    }
    // Whether those that a probe has killed serve their back-off depends, from the third restart on, on the chance in the one before
    // (section 5.10): both have looked at the time since an earlier end.
    let is_chance = own.attempt >= 3
        && last.is_some_and(|(own_last, their_last)| own_last.lived().min(their_last.lived()) > 3.0);
    if let Some((gap, their_gap)) = gaps.filter(|_| !is_chance)
        && (gap - their_gap).abs() > JITTER + lag + SPREAD * gap.min(their_gap)
    {
        differences
            .push(format!("{whose}: started after {gap:.1}s with us, {their_gap:.1}s with the kubelet"));
    }
}

/// Which containers have begun clearly before which others.
fn order(life: &Life) -> BTreeSet<(String, String)> {
    let began: Vec<(&String, f64)> =
        life.containers.keys().filter_map(|name| Some((name, life.began(name)?))).collect();
    let mut order = BTreeSet::new();
    for (first, at) in &began {
        for (second, _) in began.iter().filter(|(_, later)| *later > at + 1.0) {
            order.insert(((*first).clone(), (*second).clone()));
        }
    }
    order
}

fn configs(whose: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    compare(whose, "", &plain(ours), &plain(theirs), differences);
}

/// A configuration without what has to differ.
fn plain(config: &Value) -> Value {
    if config.is_null() {
        // It was not seen.
        return Value::Null;
    }
    let labels = &config["labels"];
    let text = |key: &str| labels[key].as_str().unwrap_or_default().to_owned();
    let (pod, uid) = (text("io.kubernetes.pod.name"), text("io.kubernetes.pod.uid"));
    let mut config = config.clone();
    for place in PLACES {
        if let Some((parent, field)) = place.rsplit_once('/') {
            let field = field.replace("~1", "/");
            config.pointer_mut(parent).and_then(Value::as_object_mut).map(|object| object.remove(&field));
        }
    }
    for list in ["/envs", "/dns_config/options"] {
        // A kubelet keeps them in no order.
        if let Some(list) = config.pointer_mut(list).and_then(Value::as_array_mut) {
            list.sort_by_key(ToString::to_string);
        }
    }
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        let path = mount["host_path"].as_str().unwrap_or_default().to_owned();
        if let Some((_, below)) = path.split_once(&format!("/pods/{uid}/")) {
            // The name of the file for last words is a matter of chance.
            let below = below.split("/containers/").next().unwrap_or(below);
            let below = if below.starts_with("containers/") { "containers" } else { below };
            mount["host_path"] = below.into();
        }
    }
    let text = config.to_string().replace(&uid, "UID");
    let text = match pod.strip_suffix(SUFFIX) {
        Some(plain) => text.replace(&pod, plain),
        None => text,
    };
    serde_json::from_str(&text).unwrap()
}

fn compare(whose: &str, path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(own), Value::Object(their)) => {
            let keys: BTreeSet<&String> = own.keys().chain(their.keys()).collect();
            for key in keys {
                compare(whose, &format!("{path}/{key}"), &ours[key], &theirs[key], differences);
            }
        }
        (Value::Array(own), Value::Array(their)) if own.len() == their.len() => {
            for (place, (own, their)) in own.iter().zip(their).enumerate() {
                compare(whose, &format!("{path}/{place}"), own, their, differences);
            }
        }
        _ if ours == theirs => {}
        _ => differences.push(format!("{whose} config {path}: {ours} with us, {theirs} with the kubelet")),
    }
}
