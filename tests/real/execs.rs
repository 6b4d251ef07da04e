//! A pod in which things are executed through probeshim, and what it says of each.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::containerd::Containerd;
use super::crictl::{Crictl, Running};
use super::life::{Pod, Runtime};
use super::server::wait_for;
use super::shim::Probeshim;

/// How far the phases of a call may be from adding up to it, in milliseconds.
const EXACT: f64 = 5.0;

/// Number of periods in which a container is throttled.
const THROTTLED_PERIODS: u64 = 20;

/// Works until the kernel has counted `$1` more throttled periods of the container, by the files of cgroup v2 or v1, and fails then: of calls
/// that fail evidence is collected, however long they took.
const UNTIL_THROTTLED: &str = r#"
throttled() { cat /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpu/cpu.stat 2>/dev/null | sed -n 's/^nr_throttled //p'; }
before=$(throttled)
test -n "$before" || exit 9
while [ $(($(throttled) - before)) -lt "$1" ]; do
  i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done
done
exit 3"#;

/// A runtime, probeshim before it, and a pod.
pub(crate) struct Execs {
    pub(crate) crictl: Crictl,
    pub(crate) pod: Pod,
    pub(crate) shim: Probeshim,
}

/// Executes what is fast, what takes its time, and what fails, and finds each explained by where its time went.
pub(crate) fn are_explained(containerd: &Containerd) -> Result<(), String> {
    // What is slow is so by its timeout, however slow the machine is.
    let execs = Execs::start_with(containerd, &["--slow-threshold", "1h"])?;

    let fast = execs.exec(&["true"], 600);
    completely(&fast);
    assert_eq!((&fast["exec"]["assessment"], &fast["exec"]["exitCode"]), (&"fine".into(), &0.into()));
    assert_eq!((&fast["pod"]["name"], &fast["container"]["name"]), (&"execs".into(), &"main".into()));

    let sleeps = execs.exec(&["sleep", "6"], 10);
    spends(&sleeps, "run", Duration::from_secs(6));
    assert_eq!(sleeps["exec"]["slowBecause"], "half-of-timeout");
    let evidence = &sleeps["exec"]["evidence"];
    assert!(evidence["windowMs"].as_f64().unwrap() > 5000.0, "{evidence}");
    assert!(evidence["pids"]["current"].as_u64() >= Some(2) && evidence["frozen"] == false, "{evidence}");

    let held = execs.exec(&["sh", "-c", "sleep 4 & exit 7"], 0);
    spends(&held, "drain", Duration::from_secs(4));
    assert_eq!(held["exec"]["exitCode"], 7);

    let late = execs.exec(&["sleep", "100"], 3);
    spends(&late, "run", Duration::from_secs(3));
    let exec = &late["exec"];
    assert_eq!(
        (&late["code"], &exec["killed"], &exec["exitStatus"]),
        (&"DEADLINE_EXCEEDED".into(), &true.into(), &137.into())
    );
    assert!(
        exec["startedMs"].as_f64().unwrap() > 0.0 && exec["exitedMs"].as_f64().unwrap() > 3000.0,
        "{late}"
    );
    assert!(exec["marginMs"].as_f64().unwrap() < 0.0, "{late}");

    let nothing = execs.exec(&["no-such-program"], 0);
    completely(&nothing);

    execs.explains(&fast, &["Most of its time", "It was quick and went well"]);
    execs.explains(&sleeps, &["is run: the command itself ran", "within its timeout of 10.0s"]);
    execs.explains(&held, &["is drain", "keeps stdout or stderr open"]);
    execs.explains(&late, &["DEADLINE_EXCEEDED", "after its timeout of 3.00s was over", "was killed after"]);
    execs.explains(&nothing, &["was never heard to start"]);

    execs.tells_three_apart();
    execs.leaves_strangers_alone(containerd);
    execs.names_throttling(containerd);
    execs.end();
    Ok(())
}

/// Asserts that a call is explained completely: the phases add up to its duration. Returns the duration of one of them.
fn explained(call: &Value, phase: &str) -> f64 {
    let (total, phases) = (call["durationMs"].as_f64().unwrap(), &call["exec"]["phases"]);
    assert_eq!(phases["state"], "complete", "{call:#}");
    let names = ["queue", "prepare", "start", "run", "drain", "other"];
    let time = |name: &str| phases[format!("{name}Ms")].as_f64().unwrap_or(0.0);
    let sum: f64 = names.iter().map(|name| time(name)).sum();
    assert!((sum - total).abs() < EXACT, "{sum} of {total}: {call:#}");
    time(phase)
}

/// Asserts that a call is explained completely.
pub(crate) fn completely(call: &Value) {
    explained(call, "run");
}

/// Asserts that a call is explained completely, and that the time which its command is known to have taken is found in this phase. The runtime
/// tells of a start a little late, so that half of the time is enough.
fn spends(call: &Value, phase: &str, known: Duration) {
    let found = explained(call, phase);
    assert!(found >= known.as_secs_f64() * 500.0, "{phase} is {found} ms, not about {known:?}: {call:#}");
}

impl Execs {
    /// Starts probeshim and the pod; says what is missing where that is not possible.
    pub(crate) fn start(runtime: &impl Runtime) -> Result<Self, String> {
        Self::start_with(runtime, &[])
    }

    /// The same, with more flags for probeshim.
    pub(crate) fn start_with(runtime: &impl Runtime, more: &[&str]) -> Result<Self, String> {
        Self::with(runtime, Probeshim::start_with(runtime.folder(), &runtime.socket(), more))
    }

    /// The same, with a probeshim that is there.
    pub(crate) fn with(runtime: &impl Runtime, shim: Probeshim) -> Result<Self, String> {
        let crictl = Crictl::new("crictl-1.36", shim.socket(), runtime.folder())?;
        let pod = Pod::new(&crictl, runtime.folder(), "execs");
        Ok(Self { crictl, pod, shim })
    }

    /// Executes something, and returns what is recorded of it.
    pub(crate) fn exec(&self, command: &[&str], timeout: u32) -> Value {
        self.exec_in(&self.pod, command, timeout)
    }

    /// The same in another pod.
    pub(crate) fn exec_in(&self, pod: &Pod, command: &[&str], timeout: u32) -> Value {
        let before = self.all().len();
        self.start_exec(pod, command, timeout).output();
        wait_for("the call is recorded", || self.all().get(before).cloned())
    }

    /// Begins to execute something.
    pub(crate) fn spawn(&self, command: &[&str], timeout: u32) -> Running {
        self.start_exec(&self.pod, command, timeout)
    }

    fn start_exec(&self, pod: &Pod, command: &[&str], timeout: u32) -> Running {
        let timeout = timeout.to_string();
        self.crictl.spawn(&[&["exec", "-s", "--timeout", &timeout, &pod.container][..], command].concat())
    }

    /// Executes several things at once, and returns what is recorded of them, in the order of their ends.
    fn exec_all(&self, commands: &[&[&str]]) -> Vec<Value> {
        let before = self.all().len();
        let running: Vec<Running> = commands.iter().map(|command| self.spawn(command, 0)).collect();
        for running in running {
            running.output();
        }
        wait_for("the calls are recorded", || {
            let all = self.all();
            (all.len() >= before + commands.len()).then(|| all[before..].to_vec())
        })
    }

    /// What is recorded of everything that was executed.
    pub(crate) fn all(&self) -> Vec<Value> {
        self.shim.list(&["calls", "--method", "ExecSync"])
    }

    /// What is said of a call has all of these words in it.
    pub(crate) fn explains(&self, call: &Value, words: &[&str]) {
        let said = self.shim.ask(&["explain", &call["id"].to_string()]).replace("\n  ", " ");
        for words in words {
            assert!(said.contains(words), "{words:?} is not in:\n{said}");
        }
    }

    /// Three at once are told apart by how they exit, or not at all.
    fn tells_three_apart(&self) {
        let exits: [&[&str]; 3] = [
            &["sh", "-c", "sleep 2; exit 1"],
            &["sh", "-c", "sleep 2; exit 2"],
            &["sh", "-c", "sleep 2; exit 3"],
        ];
        for call in self.exec_all(&exits) {
            spends(&call, "run", Duration::from_secs(2));
        }
        let alike: [&[&str]; 3] = [&["sleep", "1"]; 3];
        for call in self.exec_all(&alike) {
            let phases = &call["exec"]["phases"];
            assert!(["ambiguous", "complete"].iter().any(|state| phases["state"] == *state), "{call:#}");
            if phases["state"] == "ambiguous" {
                assert!(
                    phases["candidates"].as_array().unwrap().len() >= 2 && phases["runMs"].is_null(),
                    "{call:#}"
                );
                self.explains(&call, &["nothing tells which was"]);
            }
        }
    }

    /// What others begin and end while a call lasts is not taken for its: what `ctr` executes by its id; what `crictl exec` does, which goes
    /// through the runtime's streaming server, by its exit code, and not at all where that is the same.
    fn leaves_strangers_alone(&self, containerd: &Containerd) {
        let container = self.pod.container.as_str();
        let ctr = ["tasks", "exec", "--exec-id", "stranger", container, "true"];
        let (call, lasted) = self.exec_beside(&mut containerd.ctr_command(&ctr));
        spends(&call, "run", lasted);
        let (call, lasted) =
            self.exec_beside(&mut self.crictl.command(&["exec", container, "sh", "-c", "exit 9"]));
        spends(&call, "run", lasted);
        let (call, _) = self.exec_beside(&mut self.crictl.command(&["exec", container, "true"]));
        let phases = &call["exec"]["phases"];
        assert_eq!(
            (&phases["state"], &phases["candidateCount"]),
            (&"ambiguous".into(), &2.into()),
            "{call:#}"
        );
        self.explains(&call, &["2 commands were executed in the container at that time"]);
    }

    /// Executes a command that outlasts another one in the container: by more than that takes, so that their durations cannot be confused.
    /// Returns what is recorded of the call, and for how long its command ran at least.
    fn exec_beside(&self, stranger: &mut Command) -> (Value, Duration) {
        let before = self.all().len();
        // A file that is its own, by which the command is found as well.
        let file = format!("/tmp/over-{before}-{}", self.pod.container);
        let call = self.spawn(&["sh", "-c", "until test -f $0; do sleep 0.1; done", &file], 0);
        wait_for("the command runs", || process_with("sh", &file));
        let runs = Instant::now();
        stranger.output().unwrap();
        let took = runs.elapsed();
        wait_for("the command has run for longer", || {
            (runs.elapsed() > took * 2 + Duration::from_secs(1)).then_some(())
        });
        assert_eq!(self.all().len(), before, "the stranger was over before the call was");
        let lasted = runs.elapsed();
        wait_for("the command is told to end", || {
            std::fs::write(format!("/proc/{}/root{file}", process_with("sh", &file)?), "").ok()
        });
        call.output();
        (wait_for("the call is recorded", || self.all().get(before).cloned()), lasted)
    }

    /// Executes a command in a container with a quota of 5 % until the container has been throttled often, and finds that said.
    fn names_throttling(&self, containerd: &Containerd) {
        let resources = json!({"linux": {"resources": {"cpu_quota": 5000, "cpu_period": 100_000}}});
        let pod = Pod::with(&self.crictl, containerd.folder(), "throttled", &resources);
        let periods = THROTTLED_PERIODS.to_string();
        let call = self.exec_in(&pod, &["sh", "-c", UNTIL_THROTTLED, "sh", &periods], 0);
        assert_eq!(call["exec"]["exitCode"], 3, "{call:#}");
        let cpu = &call["exec"]["evidence"]["cpu"];
        assert_eq!(cpu["quota"], 0.05, "{call:#}");
        // Measuring begins a little after the call, once the container has been found.
        assert!(cpu["throttledPeriods"].as_u64() >= Some(THROTTLED_PERIODS / 2), "{call:#}");
        self.explains(&call, &["throttled by its quota of 0.05 processors"]);
        pod.remove(&self.crictl);
    }

    pub(crate) fn end(self) {
        self.pod.remove(&self.crictl);
    }
}

/// The process id of a program that has this argument.
pub(crate) fn process_with(program: &str, argument: &str) -> Option<u32> {
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let mut words = command.split('\0');
        (words.next() == Some(program) && words.any(|word| word == argument)).then_some(pid)
    })
}
