//! What has become of pods, as it is seen from outside: the lives of their containers, and how they stood.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::crictl::{Crictl, Output};
use super::kubelet::statuses;

/// The manifests that are played, each with its story beside it.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/pods");

/// How long a state lasts that is seen whoever looks: a look takes up to a second or two, and a kubelet tells of some things a sync later.
const LASTING: Duration = Duration::from_secs(4);

/// Steps in which a runtime starts or stops something. Each may take as long as a call of crictl does on the same machine.
const STEPS: u32 = 4;

/// A manifest, and what is expected of it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) manifest: String,
    pub(crate) story: Value,
}

impl Case {
    /// The manifest, with modes as Kubernetes reads them.
    pub(crate) fn value(&self) -> Value {
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        serde_saphyr::from_str_with_options(&self.manifest, options).unwrap()
    }

    /// The longest period of its probes, in seconds.
    pub(crate) fn longest_period(&self) -> u64 {
        let spec = &self.value()["spec"];
        let lists = ["initContainers", "containers"].into_iter().filter_map(|list| spec[list].as_array());
        let probes = lists.flatten().flat_map(|container| {
            ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| container[probe].clone())
        });
        let periods = probes.filter(|probe| !probe.is_null());
        periods.map(|probe| probe["periodSeconds"].as_u64().unwrap_or(10)).max().unwrap_or(0)
    }
}

/// A container that has been there.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    id: String,
    pub(crate) attempt: u64,
    /// Seconds since 1970; 0 where it has not come to that.
    pub(crate) started: f64,
    pub(crate) finished: f64,
    pub(crate) exit_code: i64,
    pub(crate) reason: String,
    /// What the runtime was asked for.
    pub(crate) config: Value,
    state: String,
    /// It was removed before it was seen to have ended.
    pub(crate) is_gone: bool,
}

/// A pod as it was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// By the names of containers: their instances, by attempt.
    pub(crate) containers: BTreeMap<String, BTreeMap<u64, Instance>>,
    /// What the runtime was asked for to be its sandbox.
    pub(crate) sandbox: Value,
    /// The last status.
    pub(crate) status: Value,
    /// How containers and conditions stood for long enough for others to be seen so as well, once there was a container: how long the first
    /// one takes is a matter of how busy a machine is. Where there never is one, how they stood at all.
    pub(crate) stood: BTreeSet<String>,
    /// How they stood in any.
    pub(crate) stood_once: BTreeSet<String>,
    /// How they stand now, and since when.
    since: BTreeMap<String, Instant>,
    has_begun: bool,
    /// When it was seen to be ready first.
    pub(crate) ready_at: Option<f64>,
}

/// Looks at pods from outside.
#[derive(Debug)]
pub(crate) struct Observer {
    crictl: Crictl,
    /// What the names of pods end with on this node.
    suffix: &'static str,
    pub(crate) lives: BTreeMap<String, Life>,
    /// The longest call of crictl.
    slowest: Cell<Duration>,
}

/// All manifests with their stories; those that use the tool of that name find it in its folder.
pub(crate) fn cases(probes: &Path) -> Vec<Case> {
    let mut cases: Vec<Case> = fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .map(|path| Case {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            manifest: fs::read_to_string(&path).unwrap().replace("PROBES", probes.to_str().unwrap()),
            story: serde_saphyr::from_str(&fs::read_to_string(path.with_extension("story")).unwrap())
                .unwrap(),
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

impl Observer {
    pub(crate) fn new(crictl: Crictl, suffix: &'static str) -> Self {
        Self { crictl, suffix, lives: BTreeMap::new(), slowest: Cell::default() }
    }

    /// By how many seconds what the pods do may be late because the machine is slow or busy. Measured by the calls of crictl, each of which
    /// starts a process and asks the runtime, as starting, probing and stopping a container do.
    pub(crate) fn lag(&self) -> f64 {
        (self.slowest.get() * STEPS).as_secs_f64()
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let begun = Instant::now();
        let output = self.crictl.run(arguments);
        self.slowest.set(self.slowest.get().max(begun.elapsed()));
        output
    }

    /// Looks once: at the runtime, and at what is told of the pods.
    pub(crate) fn look(&mut self, pods: &[Value]) {
        let listed = self.ask(&["ps", "-a", "-o", "json"]);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        for container in listed["containers"].as_array().into_iter().flatten() {
            let name = self.name_of(&container["labels"]["io.kubernetes.pod.name"]);
            let id = container["id"].as_str().unwrap();
            let of = container["metadata"]["name"].as_str().unwrap().to_owned();
            let attempt = container["metadata"]["attempt"].as_u64().unwrap_or(0);
            let known = self.lives.get(&name).and_then(|life| life.containers.get(&of)?.get(&attempt));
            if known.is_some_and(|known| container["state"] == known.state.as_str()) {
                continue;
            }
            // It may have been removed since.
            let Some(inspected) = self.inspect("inspect", id) else { continue };
            let instance = Instance::of(&inspected, attempt);
            let sandbox = container["podSandboxId"].as_str().unwrap();
            let is_new = self.lives.get(&name).is_none_or(|life| life.sandbox.is_null());
            let sandbox = is_new.then(|| self.inspect("inspectp", sandbox)).flatten();
            let life = self.lives.entry(name).or_default();
            life.containers.entry(of).or_default().insert(attempt, instance);
            if let Some(sandbox) = sandbox {
                life.sandbox = sandbox["info"]["config"].clone();
            }
        }
        let ids: BTreeSet<&str> = listed["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["id"].as_str())
            .collect();
        let all = self.lives.values_mut().flat_map(|life| life.containers.values_mut());
        for instance in all.flat_map(BTreeMap::values_mut) {
            instance.is_gone |= !instance.has_ended() && !ids.contains(instance.id.as_str());
        }
        for pod in pods {
            let name = self.name_of(&pod["metadata"]["name"]);
            self.lives.entry(name).or_default().take(pod);
        }
    }

    /// Adds that a container of a pod has waited for a reason, where something else than a look tells so.
    pub(crate) fn has_waited(&mut self, pod: &str, container: &str, reason: &str) {
        let pod = pod.strip_suffix(self.suffix).unwrap_or(pod).to_owned();
        let state = format!("{container}: waiting {reason}, started false, ready false");
        self.lives.entry(pod).or_default().stood_once.insert(state);
    }

    fn inspect(&self, what: &str, id: &str) -> Option<Value> {
        let output = self.ask(&[what, id]);
        (output.code == Some(0)).then(|| serde_json::from_str(&output.stdout).unwrap())
    }

    fn name_of(&self, name: &Value) -> String {
        let name = name.as_str().unwrap_or_default();
        name.strip_suffix(self.suffix).unwrap_or(name).to_owned()
    }
}

impl Instance {
    fn of(inspected: &Value, attempt: u64) -> Self {
        let status = &inspected["status"];
        Self {
            id: status["id"].as_str().unwrap_or_default().to_owned(),
            attempt,
            started: seconds(&status["startedAt"]),
            finished: seconds(&status["finishedAt"]),
            exit_code: status["exitCode"].as_i64().unwrap_or(0),
            reason: status["reason"].as_str().unwrap_or_default().to_owned(),
            config: inspected["info"]["config"].clone(),
            state: status["state"].as_str().unwrap_or_default().to_owned(),
            is_gone: false,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == "CONTAINER_EXITED"
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == "CONTAINER_RUNNING"
    }

    /// Seconds that it has lived.
    pub(crate) fn lived(&self) -> f64 {
        self.finished - self.started
    }
}

/// Seconds since 1970; 0 where there is no time yet.
fn seconds(time: &Value) -> f64 {
    let time = time.as_str().and_then(|time| time.parse::<Timestamp>().ok());
    #[expect(clippy::cast_precision_loss, reason = "milliseconds are enough")]
    time.map_or(0.0, |time| (time.as_millisecond() as f64 / 1e3).max(0.0))
}

impl Life {
    fn take(&mut self, pod: &Value) {
        let mut now = BTreeSet::new();
        for container in statuses(pod) {
            let (name, state) = (container["name"].as_str().unwrap(), &container["state"]);
            let word = state.as_object().and_then(|state| state.keys().next().cloned()).unwrap_or_default();
            let reason = state[&word]["reason"].as_str().unwrap_or_default();
            let flags = ["started", "ready"].map(|flag| container[flag] == true);
            now.insert(format!("{name}: {word} {reason}, started {}, ready {}", flags[0], flags[1]));
        }
        for condition in pod["status"]["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            now.insert(format!("{} {} {}", text("type"), text("status"), text("reason")));
            if text("type") == "Ready" && text("status") == "True" && self.ready_at.is_none() {
                let since = Timestamp::now().as_millisecond();
                #[expect(clippy::cast_precision_loss, reason = "milliseconds are enough")]
                let since = since as f64 / 1e3;
                self.ready_at = Some(since);
            }
        }
        now.insert(format!("phase {}", pod["status"]["phase"].as_str().unwrap_or_default()));
        if !self.containers.is_empty() && !self.has_begun {
            (self.has_begun, self.stood, self.since) = (true, BTreeSet::new(), BTreeMap::new());
        }
        self.stood_once.extend(now.iter().cloned());
        self.since.retain(|stood, _| now.contains(stood));
        for stood in now {
            let since = self.since.entry(stood.clone()).or_insert_with(Instant::now);
            if since.elapsed() >= LASTING {
                self.stood.insert(stood);
            }
        }
        self.status = pod["status"].clone();
    }

    /// All instances of a container, in their order.
    pub(crate) fn instances(&self, name: &str) -> Vec<&Instance> {
        self.containers.get(name).map(|all| all.values().collect()).unwrap_or_default()
    }

    /// When the first instance of a container was started.
    pub(crate) fn began(&self, name: &str) -> Option<f64> {
        self.instances(name).first().map(|first| first.started).filter(|started| *started > 0.0)
    }
}

impl Case {
    /// For how long it is looked at, in seconds, where nothing is expected to happen.
    pub(crate) fn lasts(&self) -> f64 {
        self.story["lasts"].as_f64().unwrap_or(0.0)
    }

    /// What has not happened yet of the story in a life that is compared with another: the instances and the states that it names. Times and
    /// exit codes are not judged.
    pub(crate) fn unfinished(&self, life: &Life) -> Option<String> {
        for (container, expected) in self.story["containers"].as_object().into_iter().flatten() {
            for (place, expected) in (0..).zip(expected.as_array().unwrap()) {
                let whose = format!("instance {place} of {container}");
                // One that lived for less than a look may not have been seen.
                let later = life.containers.get(container).and_then(|all| all.range(place..).next());
                let Some((attempt, instance)) = later else { return Some(format!("{whose} is not there")) };
                if *attempt > place {
                    continue;
                }
                if instance.started == 0.0 {
                    return Some(format!("{whose} has not started"));
                }
                if expected["lives"].is_array() && !instance.has_ended() && !instance.is_gone {
                    return Some(format!("{whose} has not ended"));
                }
            }
        }
        self.missing_of_pod(life, 0.0).ok().flatten()
    }

    /// What is not so yet of the story, as far as it is told; `Err` for what can never be so any more. Whatever happens may be late by `lag`
    /// seconds.
    pub(crate) fn missing(&self, life: &Life, events: &[Value], lag: f64) -> Result<Option<String>, String> {
        let name = &self.name;
        for (container, expected) in self.story["containers"].as_object().into_iter().flatten() {
            let (instances, mut last) = (life.instances(container), None::<&Instance>);
            for (place, expected) in (0..).zip(expected.as_array().unwrap()) {
                let whose = format!("{name}: instance {place} of {container}");
                let later = life.containers.get(container).and_then(|all| all.range(place..).next());
                let Some((attempt, instance)) = later.filter(|(_, it)| it.started > 0.0) else {
                    return Ok(Some(format!("{whose} is not there")));
                };
                if *attempt > place {
                    // It lived for less than a look, and was not seen.
                    last = None;
                    continue;
                }
                if let (Some(after), Some(last)) = (expected["after"].as_array(), last) {
                    within(
                        &format!("{whose} is started after"),
                        instance.started - last.finished,
                        after,
                        lag,
                    )?;
                }
                if expected["running"] == true && !instance.is_running() {
                    let state = &instance.state;
                    return Err(format!("{whose} is expected to run, and is {state}: {}", instance.reason));
                }
                if let Some(lives) = expected["lives"].as_array() {
                    if instance.is_gone {
                        last = None;
                        continue;
                    }
                    if !instance.has_ended() {
                        return Ok(Some(format!("{whose} has not ended")));
                    }
                    within(&format!("{whose} lives"), instance.lived(), lives, lag)?;
                    let told = (instance.exit_code, instance.reason.as_str());
                    let code = expected["exit"].as_i64().unwrap_or(told.0);
                    let reason = expected["reason"].as_str().unwrap_or(told.1);
                    if told != (code, reason) {
                        return Err(format!("{whose} ended with {told:?}, not {code} {reason}"));
                    }
                }
                last = Some(instance);
            }
            let is_whole = expected.as_array().unwrap().last().is_some_and(|last| last["running"] == true);
            if is_whole && instances.len() > expected.as_array().unwrap().len() {
                return Err(format!("{name}: {container} has had {} instances", instances.len()));
            }
        }
        for container in self.story["never"].as_array().into_iter().flatten() {
            if let [first, ..] = &life.instances(container.as_str().unwrap())[..] {
                return Err(format!("{name}: {container} should never be there, and is {}", first.state));
            }
        }
        let order: Vec<&str> =
            self.story["order"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for pair in order.windows(2) {
            if let (Some(first), Some(second)) = (life.began(pair[0]), life.began(pair[1]))
                && first > second
            {
                return Err(format!("{name}: {} began before {}", pair[1], pair[0]));
            }
        }
        if let Some(missing) = self.missing_of_pod(life, lag)? {
            return Ok(Some(missing));
        }
        for (reason, count) in self.story["events"].as_object().into_iter().flatten() {
            let of_it =
                events.iter().filter(|it| it["pod"] == name.as_str() && it["reason"] == reason.as_str());
            let told: u64 = of_it.filter_map(|event| event["count"].as_u64()).sum();
            if told < count.as_u64().unwrap() {
                return Ok(Some(format!("{name}: {told} events {reason}")));
            }
        }
        Ok(None)
    }

    fn missing_of_pod(&self, life: &Life, lag: f64) -> Result<Option<String>, String> {
        let (name, expected) = (&self.name, &self.story["pod"]);
        let phase = &life.status["phase"];
        assert!(expected["phase"].is_string(), "{name} has no story");
        if expected["phase"] != *phase {
            return Ok(Some(format!("{name}: phase is {phase}")));
        }
        let conditions = life.status["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        if expected["ready"].as_bool().is_some_and(|ready| ready != is_ready) {
            return Ok(Some(format!("{name}: ready is {is_ready}")));
        }
        if let (Some(window), Some(ready)) = (expected["readyAfter"].as_array(), life.ready_at) {
            let began = life.began("main").unwrap_or(0.0);
            within(&format!("{name}: ready after"), ready - began, window, lag)?;
        }
        for (container, reason) in self.story["waiting"].as_object().into_iter().flatten() {
            let is_it = |status: &&Value| status["name"] == container.as_str();
            let lists = ["containerStatuses", "initContainerStatuses"].map(|field| &life.status[field]);
            let mut all = lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
            let waiting = all.find(is_it).map(|status| &status["state"]["waiting"]["reason"]);
            if waiting != Some(reason) {
                return Ok(Some(format!("{name}: {container} waits for {waiting:?}")));
            }
        }
        Ok(None)
    }
}

/// Seconds that have to be in a window. They may be more by `lag`.
fn within(what: &str, seconds: f64, window: &[Value], lag: f64) -> Result<(), String> {
    let [least, most] = [0, 1].map(|place| window[place].as_f64().unwrap());
    // What the runtime takes to start or stop something.
    if (least - 0.5..=most + 0.5 + lag).contains(&seconds) {
        return Ok(());
    }
    Err(format!("{what} {seconds:.1}s, not {least} to {most}"))
}
