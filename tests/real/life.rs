//! The whole life of a pod, directly and through the relay: the same output, the same exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::accounts::{self, Accounts};
use super::crictl::{Crictl, Output};
use super::image::BUSYBOX;
use super::server::wait_for;
use super::shim::Probeshim;

/// What a runtime is to do with the steps of a pod's life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The steps that are meant to fail, and a word of why. Two runs that fail alike would prove nothing.
    pub(crate) failing: &'static [(&'static str, &'static str)],
    /// Steps that fail with some versions and succeed with others.
    pub(crate) either: &'static [&'static str],
    /// Whether it writes maps in the order of the moment.
    pub(crate) is_unordered: bool,
}

/// What containerd does.
pub(crate) const CONTAINERD: Expected = Expected {
    failing: &[
        ("runp of the same pod again", "is reserved for"),
        ("exec -s, exit 3", "exited with 3"),
        ("exec -s, timeout", "DeadlineExceeded"),
        ("exec, streaming", "exit code 4"),
        ("pull", "127.0.0.1:1"),
        ("inspect of nobody", "NotFound"),
        ("start of nobody", "NotFound"),
        ("rmp of nobody", "NotFound"),
        ("exec in nobody", "NotFound"),
        ("exec in what has stopped", "CONTAINER_EXITED"),
    ],
    either: &["stop of nobody"],
    is_unordered: false,
};

/// What procrun does.
pub(crate) const PROCRUN: Expected = Expected {
    failing: &[
        ("runp of the same pod again", "is reserved for"),
        ("exec -s, exit 3", "exited with 3"),
        ("exec -s, timeout", "DeadlineExceeded"),
        ("exec, streaming", "procrun has no Exec"),
        ("inspect of nobody", "NotFound"),
        ("start of nobody", "NotFound"),
        ("exec in nobody", "NotFound"),
        ("rmp of nobody", "NotFound"),
        ("exec in what has stopped", "CONTAINER_EXITED"),
    ],
    either: &["stop of nobody"],
    is_unordered: false,
};

/// What CRI-O does.
pub(crate) const CRIO: Expected = Expected {
    failing: &[
        ("exec -s, exit 3", "exited with 3"),
        ("exec -s, timeout", "exited with -1: command timed out"),
        ("exec, streaming", "exit code 4"),
        ("pull", "127.0.0.1:1"),
        ("inspect of nobody", "NotFound"),
        ("start of nobody", "NotFound"),
        ("rmp of nobody", "NotFound"),
        ("exec in nobody", "NotFound"),
        ("exec in what has stopped", "NotFound"),
    ],
    either: &[],
    is_unordered: true,
};

/// A runtime whose pods live and die.
pub(crate) trait Runtime {
    /// What it does with the steps.
    const EXPECTED: Expected;

    fn socket(&self) -> PathBuf;
    fn folder(&self) -> &Path;
    /// The calls that it has counted since its start, if it counts any.
    fn accounts(&self) -> Option<Accounts>;
    /// The same calls as probeshim saw them, told apart as far as the runtime does.
    fn accounts_of(calls: &[Value]) -> Accounts;
}

/// Lives through a pod with each crictl, directly and through the relay, and compares what they said, and how many calls of which kind the
/// relay saw and the runtime counted.
pub(crate) fn compare<R: Runtime>(runtime: &R, shim: Probeshim) -> Result<(), String> {
    for version in ["crictl-1.36", "crictl-1.30"] {
        let direct = steps(&Crictl::new(version, &runtime.socket(), runtime.folder())?, runtime.folder());
        let (before, seen) = before(runtime, &shim);
        let relayed = steps(&Crictl::new(version, shim.socket(), runtime.folder())?, runtime.folder());
        compare_steps(version, R::EXPECTED, &direct, &relayed);
        let ours = || accounts::difference(&R::accounts_of(&shim.counted()), &seen);
        let counted = match &before {
            Some(before) => {
                accounts::agree(ours, || accounts::difference(&runtime.accounts().unwrap(), before))
            }
            None => ours(),
        };
        assert!(counted.values().sum::<u64>() > 30, "{counted:?}");
    }
    ends_quietly(shim);
    Ok(())
}

/// What both sides had counted at one time: when probeshim made no call of its own meanwhile.
pub(crate) fn before<R: Runtime>(runtime: &R, shim: &Probeshim) -> (Option<Accounts>, Accounts) {
    wait_for("a moment without a call", || {
        let seen = R::accounts_of(&shim.counted());
        let counted = runtime.accounts();
        (seen == R::accounts_of(&shim.counted())).then_some((counted, seen))
    })
}

type Step = (&'static str, Output);

fn compare_steps(version: &str, expected: Expected, direct: &[Step], relayed: &[Step]) {
    for (name, output) in direct.iter().filter(|(name, _)| !expected.either.contains(name)) {
        match expected.failing.iter().find(|(failing, _)| failing == name) {
            Some((_, why)) => {
                assert!(output.code == Some(1) && output.stderr.contains(why), "{name}: {output:?}");
            }
            None => assert_eq!(output.code, Some(0), "{name}: {output:?}"),
        }
    }
    let differing: Vec<String> = direct
        .iter()
        .zip(relayed)
        .flat_map(|((name, direct), (_, relayed))| {
            let lines = [direct, relayed].map(|output| lines(output, expected.is_unordered));
            difference(name, &lines)
        })
        .collect();
    assert!(
        differing.is_empty(),
        "{version}, first directly, then through the relay:\n{}",
        differing.join("\n")
    );
}

/// Everything that a step printed and its exit code, a line each. Where order means nothing, the words instead, sorted.
fn lines(output: &Output, is_unordered: bool) -> Vec<String> {
    let printed = output.stdout.lines().chain(output.stderr.lines()).map(str::to_owned);
    let lines = std::iter::once(format!("exit code {:?}", output.code)).chain(printed);
    if !is_unordered {
        return lines.collect();
    }
    let punctuation = [' ', ',', '{', '}', '[', ']', '"', '\\'];
    let mut words: Vec<String> =
        lines.flat_map(|line| line.split(punctuation).map(str::to_owned).collect::<Vec<_>>()).collect();
    words.retain(|word| !word.is_empty());
    words.sort();
    words
}

/// The first lines in which a step differs; what follows them may only be shifted.
fn difference(name: &str, [direct, relayed]: &[Vec<String>; 2]) -> Vec<String> {
    (0..direct.len().max(relayed.len()))
        .map(|line| (direct.get(line), relayed.get(line)))
        .filter(|(direct, relayed)| direct != relayed)
        .map(|(direct, relayed)| format!("{name}: {direct:?} {relayed:?}"))
        .take(20)
        .collect()
}

fn ends_quietly(shim: Probeshim) {
    let log = shim.stop();
    assert!(!log.contains("\"WARN\"") && !log.contains("\"ERROR\""), "{log}");
}

/// A pod with one container that runs.
pub(crate) struct Pod {
    id: String,
    pub(crate) container: String,
}

impl Pod {
    pub(crate) fn new(crictl: &Crictl, folder: &Path, name: &str) -> Self {
        Self::with(crictl, folder, name, &serde_json::Value::Null)
    }

    /// The same, with more in the configuration of its container.
    pub(crate) fn with(crictl: &Crictl, folder: &Path, name: &str, more: &Value) -> Self {
        let [sandbox, container] = configs(folder, name);
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&container).unwrap()).unwrap();
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        fs::write(&container, config.to_string()).unwrap();
        let id = crictl.ok(&["runp", &sandbox]);
        let container = crictl.ok(&["create", &id, &container, &sandbox]);
        crictl.ok(&["start", &container]);
        Self { id, container }
    }

    /// Waits until a command runs twice in the container.
    pub(crate) fn runs_twice(&self, crictl: &Crictl, command: &str) {
        wait_for(command, || {
            let processes = crictl.ok(&["exec", "-s", &self.container, "ps"]);
            (processes.lines().filter(|line| line.ends_with(command)).count() == 2).then_some(())
        });
    }

    pub(crate) fn remove(self, crictl: &Crictl) {
        crictl.ok(&["stop", "--timeout", "0", &self.container]);
        crictl.ok(&["rm", &self.container]);
        crictl.ok(&["stopp", &self.id]);
        crictl.ok(&["rmp", &self.id]);
    }
}

/// Writes the configurations of a sandbox and its container; returns their paths.
fn configs(folder: &Path, name: &str) -> [String; 2] {
    let logs = folder.join("logs").join(name);
    fs::create_dir_all(&logs).unwrap();
    let sandbox = serde_json::json!({
        "metadata": {"name": name, "namespace": "e2e", "uid": format!("uid-{name}"), "attempt": 1},
        "log_directory": logs,
        "labels": {"app": name},
        "linux": {},
    });
    let container = serde_json::json!({
        "metadata": {"name": "main", "attempt": 2},
        "image": {"image": BUSYBOX},
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; echo to stdout; echo to stderr >&2; while true; do sleep 0.1; done"],
        "log_path": "main.log",
        "labels": {"app": name},
        "linux": {"resources": {"cpu_shares": 100}},
    });
    [("sandbox", sandbox), ("container", container)].map(|(kind, config)| {
        let path = folder.join(format!("{name}-{kind}.json"));
        fs::write(&path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

/// Every step of the life of a pod, with what crictl said to each.
fn steps(crictl: &Crictl, folder: &Path) -> Vec<Step> {
    let mut seen: Vec<Step> = Vec::new();
    let mut step = |name, output: Output, ids: &[(&str, &str)]| seen.push((name, output.steady(ids)));

    step("version", crictl.run(&["version"]), &[]);
    step("info", crictl.run(&["info"]), &[]);
    step("images", crictl.run(&["images"]), &[]);
    let [sandbox, container] = configs(folder, "life");
    let run = crictl.run(&["runp", &sandbox]);
    let pod_id = run.stdout.trim().to_owned();
    assert_eq!(run.code, Some(0), "{run:?}");
    let pod = [(pod_id.as_str(), "POD")];
    step("runp", run, &pod);
    step("runp of the same pod again", crictl.run(&["runp", &sandbox]), &pod);
    let created = crictl.run(&["create", &pod_id, &container, &sandbox]);
    assert_eq!(created.code, Some(0), "{created:?}");
    let id = created.stdout.trim().to_owned();
    let ids = [(pod_id.as_str(), "POD"), (id.as_str(), "CONTAINER")];
    step("create", created, &ids);
    step("start", crictl.run(&["start", &id]), &ids);
    step("ps", crictl.run(&["ps"]), &ids);
    step("pods", crictl.run(&["pods"]), &ids);
    step("inspect", crictl.run(&["inspect", &id]), &ids);
    step("inspectp", crictl.run(&["inspectp", &pod_id]), &ids);
    step("exec -s, exit 0", crictl.run(&["exec", "-s", &id, "sh", "-c", "echo out; echo err >&2"]), &ids);
    step("exec -s, exit 3", crictl.run(&["exec", "-s", &id, "sh", "-c", "echo failing; exit 3"]), &ids);
    step("exec -s, timeout", crictl.run(&["exec", "-s", "--timeout", "1", &id, "sleep", "20"]), &ids);
    let large = crictl.run(&["exec", "-s", &id, "sh", "-c", "yes 0123456789abcde | head -c 1048576"]);
    let lines = large.stdout.lines().filter(|line| *line == "0123456789abcde").count();
    assert_eq!(lines, (1 << 20) / 16, "{:?}", large.stderr);
    step("exec -s, 1 MiB", large, &ids);
    step("exec, streaming", crictl.run(&["exec", &id, "sh", "-c", "echo streamed; exit 4"]), &ids);
    step("logs", crictl.run(&["logs", &id]), &ids);
    step("stats", crictl.run(&["stats", &id]).steady(&ids).shape(), &ids);
    step("update", crictl.run(&["update", "--cpu-share", "200", &id]), &ids);
    step("inspect after update", crictl.run(&["inspect", &id]), &ids);
    step("pull", crictl.run(&["pull", "127.0.0.1:1/nobody/is:here"]), &ids);
    step("inspect of nobody", crictl.run(&["inspect", "nobody"]), &ids);
    step("start of nobody", crictl.run(&["start", "nobody"]), &ids);
    step("stop of nobody", crictl.run(&["stop", "nobody"]), &ids);
    step("rmp of nobody", crictl.run(&["rmp", "nobody"]), &ids);
    step("exec in nobody", crictl.run(&["exec", "-s", "nobody", "true"]), &ids);
    step("stop", crictl.run(&["stop", "--timeout", "5", &id]), &ids);
    step("ps -a after stop", crictl.run(&["ps", "-a"]), &ids);
    step("exec in what has stopped", crictl.run(&["exec", "-s", &id, "true"]), &ids);
    step("rm", crictl.run(&["rm", &id]), &ids);
    step("stopp", crictl.run(&["stopp", &pod_id]), &ids);
    step("rmp", crictl.run(&["rmp", &pod_id]), &ids);
    step("pods when all are gone", crictl.run(&["pods", "-q"]), &ids);
    seen
}
