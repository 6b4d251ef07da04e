//! Commands without the runtime while the helper is killed, and containers are paused, killed,
//! removed, and have too little memory and too many processes. `PROBESHIM_CHAOS_EXECS` changes the
//! number of commands.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixtures::containerd::Containerd;
use fixtures::crictl::Crictl;
use fixtures::need;
use fixtures::pod::configs;
use fixtures::runtime::Runtime as _;
use fixtures::shim::Probeshim;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::ExecSyncRequest;
use probeshim::cri::v1::runtime_service_client::RuntimeServiceClient;
use probeshim::socket::SocketPath;
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::direct_attacks::helper_of;

/// Number of containers.
const CONTAINERS: usize = 3;

/// Number of commands in flight in each container.
const CONCURRENCY: usize = 3;

/// Number of commands, by default.
const EXECS: usize = 600;

/// A container, which is replaced when its init process was killed.
struct Target {
    name: String,
    /// Directory on the host that the container has as `/log`.
    log: PathBuf,
    id: Mutex<String>,
}

/// Returns the time for which a container is in trouble.
fn pause(random: &mut fastrand::Rng) -> Duration {
    Duration::from_millis(random.u64(1..100))
}

/// Answer that a client received to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Succeeded,
    Failed,
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "shows what was examined")]
async fn under_chaos_no_command_is_lost_executed_twice_or_executed_outside_its_container() {
    let execs = std::env::var("PROBESHIM_CHAOS_EXECS").map_or(EXECS, |text| text.parse().unwrap());
    let containerd = need!(Containerd::start_unified());
    let shim = Probeshim::start_with(containerd.folder(), &containerd.socket(), &["--exec", "direct-all"]);
    let crictl = need!(Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder()));
    let targets: Vec<Arc<Target>> =
        (0..CONTAINERS).map(|number| Arc::new(Target::start(&crictl, containerd.folder(), number))).collect();
    let socket = SocketPath::parse(shim.socket().to_str().unwrap()).unwrap();
    let workers: Vec<_> = targets
        .iter()
        .flat_map(|target| (0..CONCURRENCY).map(move |worker| (target.clone(), worker)))
        .map(|(target, worker)| {
            let client = runtime_client(&socket);
            tokio::spawn(async move {
                let mut answers = HashMap::new();
                for number in 0..execs / (CONTAINERS * CONCURRENCY) {
                    let name = format!("{worker}-{number}");
                    // A command that is repeated, with which a container is verified.
                    target.exec(&client, "true").await;
                    // The shell waits a moment, so that the command is hit while it runs.
                    let script = format!("usleep 20000; echo \"$NAME {name}\" >>/log/executed");
                    answers.insert(name, target.exec(&client, &script).await);
                }
                (target, answers)
            })
        })
        .collect();
    let mut random = fastrand::Rng::new();
    while workers.iter().any(|worker| !worker.is_finished()) {
        sleep(Duration::from_millis(random.u64(20..200))).await;
        let target = &targets[random.usize(..CONTAINERS)];
        match random.u8(..10) {
            0 => target.replace(&crictl, containerd.folder()),
            1 | 2 => target.set(&crictl, "cgroup.freeze", "1", "0", pause(&mut random)).await,
            // With the limits, not even the shell of a command can be started.
            3 => target.set(&crictl, "pids.max", "1", "max", pause(&mut random)).await,
            4 => target.set(&crictl, "memory.max", "65536", "max", pause(&mut random)).await,
            _ => {
                if let Some(helper) = helper_of(shim.pid()) {
                    let _ = kill_process(helper, Signal::KILL);
                }
            }
        }
    }
    let mut succeeded = 0;
    for worker in workers {
        let (target, answers) = worker.await.unwrap();
        let executed = target.executed();
        for (name, answer) in answers {
            let count = executed.iter().filter(|line| **line == format!("{} {name}", target.name)).count();
            match answer {
                Answer::Succeeded => assert_eq!(count, 1, "{} {name} succeeded", target.name),
                Answer::Failed => assert!(count <= 1, "{} {name} failed, and ran {count} times", target.name),
            }
            succeeded += usize::from(answer == Answer::Succeeded);
        }
        let is_own = |line: &&String| line.starts_with(&format!("{} ", target.name));
        assert!(executed.iter().all(|line| is_own(&line)), "{executed:?}");
    }
    let metrics = shim.metrics();
    let direct = metrics.lines().find_map(|line| line.strip_prefix("probeshim_direct_execs_total "));
    let direct: usize = direct.unwrap().parse().unwrap();
    println!(
        "{succeeded} of {execs} commands succeeded; {direct} executed directly, with those for the verification"
    );
    assert!(direct > 0 && succeeded > 0, "{direct} executed directly, {succeeded} succeeded");
    assert!(!Path::new("/log").exists(), "a command was executed on the host");
}

impl Target {
    fn start(crictl: &Crictl, folder: &Path, number: usize) -> Self {
        let name = format!("chaos-{number}");
        let log = folder.join(format!("{name}-log"));
        fs::create_dir(&log).unwrap();
        let target = Self { name, log, id: Mutex::default() };
        target.replace(crictl, folder);
        target
    }

    /// Kills the init process, if there is one, and starts a pod with a new container.
    fn replace(&self, crictl: &Crictl, folder: &Path) {
        let [sandbox, container] = configs(folder, &self.name);
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&container).unwrap()).unwrap();
        config["envs"] = json!([{"key": "NAME", "value": self.name}]);
        config["mounts"] = json!([{"host_path": self.log, "container_path": "/log"}]);
        fs::write(&container, config.to_string()).unwrap();
        if let Some(init) = self.init(crictl) {
            let _ = kill_process(init, Signal::KILL);
            let pods = crictl.ok(&["pods", "--quiet", "--name", &self.name]);
            for pod in pods.lines() {
                crictl.ok(&["rmp", "--force", pod]);
            }
        }
        let pod = crictl.ok(&["runp", &sandbox]);
        let id = crictl.ok(&["create", &pod, &container, &sandbox]);
        crictl.ok(&["start", &id]);
        *self.id.lock().unwrap() = id;
    }

    /// Executes a command of the shell.
    async fn exec(&self, client: &RuntimeServiceClient<Channel>, script: &str) -> Answer {
        let request = ExecSyncRequest {
            container_id: self.id.lock().unwrap().clone(),
            cmd: ["sh", "-c", script].map(str::to_owned).to_vec(),
            timeout: 60,
        };
        match client.clone().exec_sync(request).await {
            Ok(response) if response.get_ref().exit_code == 0 => Answer::Succeeded,
            _ => Answer::Failed,
        }
    }

    /// Returns the pid of the init process.
    fn init(&self, crictl: &Crictl) -> Option<Pid> {
        let id = self.id.lock().unwrap().clone();
        let inspected = crictl.run(&["inspect", &id]).stdout;
        let inspected: Value = serde_json::from_str(&inspected).ok()?;
        Pid::from_raw(i32::try_from(inspected["info"]["pid"].as_i64()?).unwrap())
    }

    /// Sets a file of the container's cgroup for a time, if it has the file.
    async fn set(&self, crictl: &Crictl, file: &str, value: &str, normal: &str, time: Duration) {
        let Some(init) = self.init(crictl) else { return };
        let Ok(cgroups) = fs::read_to_string(format!("/proc/{}/cgroup", init.as_raw_nonzero())) else {
            return;
        };
        let cgroup = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        let mounts = Process::myself().unwrap().mountinfo().unwrap();
        let unified = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2").unwrap().mount_point;
        let file = unified.join(cgroup).join(file);
        // The container may have been removed, and the kernel may lack the controller.
        if fs::write(&file, value).is_ok() {
            sleep(time).await;
            let _ = fs::write(&file, normal);
        }
    }

    /// Returns the lines that commands have written.
    fn executed(&self) -> Vec<String> {
        let text = fs::read_to_string(self.log.join("executed")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
