//! Measures memory at rest, and memory that is returned to the system after clients took much of
//! it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::time::{sleep, timeout};

use crate::case::Cases;
use crate::load::Load;
use crate::raw::RawClient;
use crate::target::Target;

/// Time from the start of a process to the measurement of its memory at rest.
const REST_DELAY: Duration = Duration::from_secs(30);

/// Time from the disconnect of a client to the next measurement of memory.
const RECLAIM_DELAY: Duration = Duration::from_secs(20);

/// Maximum memory in KiB that a process may hold, `RECLAIM_DELAY` after an attack, beyond its
/// memory at rest.
const MAX_EXCESS_KIB: u64 = 20 << 10;

/// Number of containers of the runtime. A list of all of them takes 1.6 MiB.
const CONTAINERS: usize = 5000;

/// Maximum duration of a flood, and number of calls that it sends at a time.
const FLOOD_DURATION: Duration = Duration::from_secs(4);
const FLOOD_BATCH: usize = 1000;

/// Change of memory in KiB that shows that a process is still processing data.
const STEADY_KIB: u64 = 1 << 10;

/// A pod for `play`: a process that sleeps, and a probe.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: bench}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: bench
    command: [sleep, "1000000"]
    livenessProbe: {exec: {command: ["true"]}}
"#;

/// A way in which a client makes the server take memory.
#[derive(Clone, Copy)]
enum Attack {
    /// Opens streams and holds them: number of connections, and of streams on each.
    Streams(usize, usize),
    /// Opens and closes connections repeatedly: number of waves, and of connections in each.
    ConnectionWaves(usize, usize),
    /// Requests this many lists, and grants no window for them.
    UnreadLists(usize),
    /// Makes up to this many calls, and reads nothing.
    UnreadCalls(usize),
    /// Sends this many uploads of 4 MiB to a runtime that is stopped.
    StoppedRuntime(usize),
}

const ATTACKS: [(&str, Attack); 7] = [
    ("100,000 streams on one connection", Attack::Streams(1, 100_000)),
    ("300,000 streams on one connection", Attack::Streams(1, 300_000)),
    ("100,000 streams on 1,000 connections", Attack::Streams(1000, 100)),
    ("5,000 connections, four times", Attack::ConnectionWaves(4, 5000)),
    ("200 unread lists of 5,000 containers", Attack::UnreadLists(200)),
    ("200,000 calls without reading", Attack::UnreadCalls(200_000)),
    ("200 uploads to a stopped runtime", Attack::StoppedRuntime(200)),
];

/// Prints the memory that each serving command holds at rest.
pub(crate) async fn rest() {
    println!("\nmemory at rest, {} s after the start", REST_DELAY.as_secs());
    println!("{:>12} {:>10} {:>16} {:>12}", "", "RSS KiB", "of it anonymous", "of files");
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("pod.yaml");
    fs::write(&manifest, POD).unwrap();
    let procrun = Target::procrun(folder.path(), 0);
    let run = Target::probeshim(folder.path());
    let own_folder = tempfile::tempdir().unwrap();
    let _runtime = Target::procrun(own_folder.path(), 0);
    let play = Target::play(own_folder.path(), &manifest);
    sleep(REST_DELAY).await;
    for (name, target) in [("run", &run), ("runtime", &procrun), ("play", &play)] {
        let [total, anonymous, files] = ["VmRSS", "RssAnon", "RssFile"].map(|figure| target.memory(figure));
        println!("{name:>12} {total:>10} {anonymous:>16} {files:>12}");
    }
}

/// Attacks probeshim and procrun, one attack after the other on the same processes. Prints their
/// memory before each attack, at its peak and after it.
pub(crate) async fn attacks() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let procrun = Target::procrun(folder.path(), CONTAINERS);
    let probeshim = Target::probeshim(folder.path());
    sleep(REST_DELAY).await;
    let (names, targets) = (["probeshim", "procrun"], [&probeshim, &procrun]);
    println!("\nmemory in KiB before an attack, at its peak, and {} s after it", RECLAIM_DELAY.as_secs());
    println!("{:>40} {:^32} {:^32}", "", "probeshim", "procrun");
    let rest = targets.map(|target| target.memory("VmRSS"));
    let mut kept = Vec::new();
    for (name, attack) in ATTACKS {
        let before = targets.map(|target| target.memory("VmRSS"));
        for target in targets {
            target.reset_peak();
        }
        attack.run(&probeshim, &procrun).await;
        let peak = targets.map(|target| target.memory("VmHWM"));
        sleep(RECLAIM_DELAY).await;
        let after = targets.map(|target| target.memory("VmRSS"));
        print!("{name:>40}");
        for target in 0..targets.len() {
            print!(" {:>10} {:>10} {:>10}", before[target], peak[target], after[target]);
            if after[target] > rest[target] + MAX_EXCESS_KIB {
                kept.push(format!("{} after {name}", names[target]));
            }
        }
        println!();
    }
    assert!(kept.is_empty(), "more than {MAX_EXCESS_KIB} KiB above the memory at rest: {kept:?}");
}

impl Attack {
    /// Attacks, waits until the attack has had its effect, and disconnects.
    async fn run(self, probeshim: &Target, procrun: &Target) {
        let (socket, version, list) = (probeshim.socket(), Cases::version(), Cases::list());
        let upload = Bytes::from(vec![0; 4 << 20]);
        let (mut clients, mut uploading) = (Vec::new(), None);
        match self {
            Self::Streams(connections, streams) => {
                for _ in 0..connections {
                    let mut client = connect(socket).await;
                    client.read_everything();
                    // A server that limits its streams may close the connection instead.
                    let _ = client.open_streams(&version, streams).await;
                    clients.push(client);
                }
            }
            Self::ConnectionWaves(waves, connections) => {
                for _ in 0..waves {
                    clients.clear();
                    for _ in 0..connections {
                        clients.push(connect(socket).await);
                    }
                }
            }
            Self::UnreadLists(count) => {
                let mut client = connect(socket).await;
                client.call(&list, count).await.unwrap();
                clients.push(client);
            }
            Self::UnreadCalls(count) => {
                let mut client = connect(socket).await;
                let flood = async {
                    for _ in 0..count / FLOOD_BATCH {
                        let _ = client.call(&version, FLOOD_BATCH).await;
                    }
                };
                // The server may stop reading before the end of the flood.
                let _ = timeout(FLOOD_DURATION, flood).await;
                clients.push(client);
            }
            Self::StoppedRuntime(uploads) => {
                procrun.signal(Signal::STOP);
                let mut load = Load::connect(socket).await;
                let calls: Vec<_> = (0..uploads).map(|_| load.upload(&version, &upload)).collect();
                uploading = Some((load, calls));
            }
        }
        is_steady([probeshim, procrun]).await;
        drop((clients, uploading));
        procrun.signal(Signal::CONT);
    }
}

/// Connects without a window for responses. Retries while the backlog of the runtime is full.
async fn connect(socket: &Path) -> RawClient {
    loop {
        match RawClient::connect(socket, 0).await {
            Ok(client) => return client,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Waits until the memory of the processes is steady.
async fn is_steady(targets: [&Target; 2]) {
    let mut before = [0; 2];
    loop {
        sleep(Duration::from_secs(1)).await;
        let now = targets.map(|target| target.memory("VmRSS"));
        if now.iter().zip(before).all(|(now, before)| now.abs_diff(before) < STEADY_KIB) {
            return;
        }
        before = now;
    }
}
