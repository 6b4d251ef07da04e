//! The same pods with a kubelet and with `play`, and where their lives differ.

use std::collections::BTreeSet;
use std::time::Duration;

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

/// What times may differ by: probes are attempted on grids that begin with the pod, and are looked at once a second. In seconds, and of
/// what is waited under back-off the part that chance adds.
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

/// A kubelet that lives with pods, and who looks at them.
struct Watched {
    node: Node,
    observer: Observer,
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

    fn look(&mut self) {
        self.observer.look(&self.node.kubelet.pods());
    }
}

/// What the names of static pods end with.
const SUFFIX: &str = "-node";

/// Where `play` differs from a kubelet.
pub(crate) fn compared(cases: &[Case], watched: Duration) -> Result<Vec<String>, String> {
    assert_eq!(SUFFIX, format!("-{NODE}"));
    let containerd = Containerd::start(Version::V2_2)?;
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder())?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let mut kubelet = Watched::start(cases)?;
    for case in cases {
        player.run(&case.name, &case.manifest);
        kubelet.run(case);
    }
    let (mut ours, begun) = (Observer::new(crictl, ""), Instant::now());
    while begun.elapsed() < watched {
        ours.look(&player.pods());
        kubelet.look();
    }
    Ok(differences(cases, &ours, &kubelet.observer))
}

/// Where a kubelet differs from another.
pub(crate) fn noise(cases: &[Case], watched: Duration) -> Result<Vec<String>, String> {
    let (mut first, mut second) = (Watched::start(cases)?, Watched::start(cases)?);
    for case in cases {
        first.run(case);
        second.run(case);
    }
    let begun = Instant::now();
    while begun.elapsed() < watched {
        first.look();
        second.look();
    }
    Ok(differences(cases, &first.observer, &second.observer))
}

fn differences(cases: &[Case], ours: &Observer, theirs: &Observer) -> Vec<String> {
    let mut differences = Vec::new();
    for case in cases {
        let name = &case.name;
        match (ours.lives.get(name), theirs.lives.get(name)) {
            (Some(ours), Some(theirs)) => {
                let expects = case.story["containers"].as_object().is_some_and(|all| !all.is_empty());
                if expects && ours.containers.is_empty() && theirs.containers.is_empty() {
                    differences
                        .push(format!("{name}: there is no container, neither with us nor with the kubelet"));
                }
                lives(case, ours, theirs, &mut differences);
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

fn lives(case: &Case, ours: &Life, theirs: &Life, differences: &mut Vec<String>) {
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
            instances((&whose, case.longest_period()), (own, their), last, differences);
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
    (whose, period): (&str, u64),
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
        if (own.lived() - their.lived()).abs() > JITTER + chance {
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
        && (gap - their_gap).abs() > JITTER + SPREAD * gap.min(their_gap)
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
    let (mut own, mut their) = (plain(ours), plain(theirs));
    // What a kubelet mounts for a `subPath` is given as it is here, which has a row of its own.
    for place in 0..their["mounts"].as_array().map_or(0, Vec::len) {
        if their["mounts"][place]["host_path"]
            .as_str()
            .is_some_and(|path| path.starts_with("volume-subpaths/"))
        {
            for config in [&mut own, &mut their] {
                config["mounts"][place]["host_path"].take();
            }
        }
    }
    compare(whose, "", &own, &their, differences);
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
