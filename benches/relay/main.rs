//! What the relay costs: latency, throughput and memory, beside a direct connection, a plain byte relay (socat) and the relay
//! alone, with nobody watching its calls.
//!
//! They take turns in one run, so that a machine that changes its speed changes it for all. The runtime behind them is
//! procrun, most of whose containers answer at once, without a process; the client keeps to one connection, as the kubelet does.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on is of no use")]
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]
#![allow(clippy::cast_precision_loss, reason = "no figure here has 52 bits")]

mod bare;
mod case;
mod load;
mod target;

use std::path::PathBuf;

use case::Case;
use hdrhistogram::Histogram;
use load::Load;
use target::Target;
use tokio::time::Instant;

/// Turns that each of them takes in each case.
const ROUNDS: usize = 20;
/// Containers of the runtime.
const CONTAINERS: usize = 100;
/// Calls before the peak of memory is read.
const CALLS_BEFORE_PEAK: usize = 1_000_000;
/// ExecSyncs a second of a busy node.
const PACE: u32 = 200;
/// Containers of a crowded node, and for how long it is looked at.
const CROWD: usize = 1000;
const CROWDED_SECONDS: usize = 60;
/// Connections that are opened and closed.
const CONNECTIONS: usize = 2000;

/// What was measured of one target in one case.
struct Measured<'a> {
    target: &'a Target,
    load: Load,
    latencies: Histogram<u64>,
    /// The median of each turn, in microseconds.
    medians: Vec<f64>,
    seconds: f64,
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == bare::ARGUMENT) {
        let mut path = || PathBuf::from(arguments.next().unwrap());
        return bare::run(&path(), &path());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let folder = tempfile::tempdir().unwrap();
    let direct = Target::procrun(folder.path(), CONTAINERS);
    let socat = Target::socat(folder.path());
    let bare = Target::bare(folder.path());
    let probeshim = Target::probeshim(folder.path());
    let cases = case::all(direct.socket()).await;
    for case in &cases {
        for concurrency in [1, 32] {
            compare([&direct, &socat, &bare, &probeshim], case, concurrency).await;
        }
    }
    paced([&direct, &bare, &probeshim], &cases[2]).await;
    memory(&probeshim, &cases).await;
    crowded().await;
    procrun(&cases).await;
}

/// One case: all targets in turn, and what the relays add to a direct call.
async fn compare(targets: [&Target; 4], case: &Case, concurrency: usize) {
    println!("\n{}, {concurrency} at once", case.name);
    println!("{:>12} {:>12} {:>12} {:>12} {:>18}", "", "median µs", "p99 µs", "calls/s", "added µs");
    let mut measured = Vec::new();
    for target in targets {
        let mut load = Load::connect(target.socket()).await;
        // Not counted: connections, caches and the processor's clock warm up.
        load.run(case, concurrency, case.calls).await;
        let latencies = Histogram::new(3).unwrap();
        measured.push(Measured { target, load, latencies, medians: Vec::new(), seconds: 0.0 });
    }
    for round in 0..ROUNDS {
        // Another is first in each round, so that none has the better place.
        for turn in 0..measured.len() {
            let turn = (round + turn) % measured.len();
            let target = &mut measured[turn];
            let (latencies, took) = target.load.run(case, concurrency, case.calls).await;
            target.medians.push(micros(&latencies, 0.5));
            target.latencies.add(latencies).unwrap();
            target.seconds += took.as_secs_f64();
        }
    }
    let [direct, socat, bare, probeshim] = &measured[..] else { unreachable!("four targets were measured") };
    for target in [direct, socat, bare, probeshim] {
        println!(
            "{:>12} {:>12.1} {:>12.1} {:>12.0} {:>18.1}",
            target.target.name(),
            micros(&target.latencies, 0.5),
            micros(&target.latencies, 0.99),
            target.latencies.len() as f64 / target.seconds,
            target.added_to(direct),
        );
    }
    for other in [socat, bare] {
        let ratio = probeshim.added_to(direct) / other.added_to(direct);
        println!("{:>12} adds {ratio:.2} times what {} adds to the median", "probeshim", other.target.name());
    }
}

/// ExecSyncs at the pace of a busy node: what watching and recording them adds to the relay alone.
async fn paced(targets: [&Target; 3], case: &Case) {
    println!("\n{}, {PACE} a second", case.name);
    println!("{:>12} {:>12} {:>12} {:>18}", "", "median µs", "p99 µs", "added µs");
    let mut measured = Vec::new();
    for target in targets {
        let mut load = Load::connect(target.socket()).await;
        load.pace(case, PACE, PACE as usize).await;
        let latencies = Histogram::new(3).unwrap();
        measured.push(Measured { target, load, latencies, medians: Vec::new(), seconds: 0.0 });
    }
    for round in 0..ROUNDS {
        for turn in 0..measured.len() {
            let turn = (round + turn) % measured.len();
            let target = &mut measured[turn];
            let latencies = target.load.pace(case, PACE, PACE as usize).await;
            target.medians.push(micros(&latencies, 0.5));
            target.latencies.add(latencies).unwrap();
        }
    }
    let [direct, bare, probeshim] = &measured[..] else { unreachable!("three targets were measured") };
    for target in [direct, bare, probeshim] {
        println!(
            "{:>12} {:>12.1} {:>12.1} {:>18.1}",
            target.target.name(),
            micros(&target.latencies, 0.5),
            micros(&target.latencies, 0.99),
            target.added_to(direct),
        );
    }
    let ratio = probeshim.added_to(direct) / bare.added_to(direct);
    println!("{:>12} adds {ratio:.2} times what {} adds to the median", "probeshim", bare.target.name());
}

/// What probeshim holds in front of a node with a thousand containers, which a kubelet lists every second, and in which a hundred ExecSyncs a
/// second are executed.
async fn crowded() {
    let folder = tempfile::tempdir().unwrap();
    let procrun = Target::procrun(folder.path(), CROWD);
    let probeshim = Target::probeshim(folder.path());
    let cases = case::all(procrun.socket()).await;
    let mut kubelet = Load::connect(probeshim.socket()).await;
    for _ in 0..CROWDED_SECONDS {
        kubelet.run(&cases[1], 1, 1).await;
        kubelet.pace(&cases[2], 100, 100).await;
    }
    println!("\nprobeshim with {CROWD} containers and 100 ExecSyncs a second, all of it recorded");
    println!("{:>40} {:>8} KiB", "held", probeshim.memory("VmRSS"));
    println!("{:>40} {:>8} KiB", "peak", probeshim.memory("VmHWM"));
}

impl Measured<'_> {
    /// What it takes longer than another, in microseconds: the median of the differences between the medians of each round, so that a
    /// round in which the machine was slower counts no more than any other.
    fn added_to(&self, other: &Self) -> f64 {
        let mut added: Vec<f64> =
            self.medians.iter().zip(&other.medians).map(|(mine, theirs)| mine - theirs).collect();
        added.sort_by(f64::total_cmp);
        added[added.len() / 2]
    }
}

/// The latency that this part of the calls stayed below, in microseconds.
fn micros(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}

/// What the relay holds after many calls and many connections.
async fn memory(probeshim: &Target, cases: &[Case; 4]) {
    println!("\nmemory and descriptors of probeshim");
    let mut load = Load::connect(probeshim.socket()).await;
    for (case, what) in [(&cases[0], "Versions"), (&cases[2], "ExecSyncs on top")] {
        load.run(case, 32, CALLS_BEFORE_PEAK).await;
        let peak = format!("peak after a million {what}");
        println!("{peak:>40} {:>8} KiB", probeshim.memory("VmHWM"));
    }
    println!("{:>40} {:>8}", "calls not observed until then", probeshim.dropped());
    drop(load);
    for round in ["first", "second"] {
        for _ in 0..CONNECTIONS {
            Load::connect(probeshim.socket()).await.run(&cases[0], 1, 1).await;
        }
        let held = format!("held after the {round} {CONNECTIONS} connections");
        let (memory, open) = (probeshim.memory("VmRSS"), probeshim.descriptors());
        println!("{held:>40} {memory:>8} KiB {open:>6} descriptors");
    }
}

/// What procrun takes: time until it answers, and memory.
async fn procrun(cases: &[Case; 4]) {
    println!("\nprocrun");
    println!(
        "{:>12} {:>16} {:>12} {:>28}",
        "containers", "answers after ms", "idle KiB", "peak KiB, listed ten times"
    );
    for synthetic in [0, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let procrun = Target::procrun(folder.path(), synthetic);
        Load::connect(procrun.socket()).await.run(&cases[0], 1, 1).await;
        let started = start.elapsed().as_secs_f64() * 1e3;
        let idle = procrun.memory("VmRSS");
        Load::connect(procrun.socket()).await.run(&cases[1], 1, 10).await;
        println!("{synthetic:>12} {started:>16.1} {idle:>12} {:>28}", procrun.memory("VmHWM"));
    }
}
