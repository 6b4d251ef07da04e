//! Measures the memory of probeshim and of procrun.

use tokio::time::Instant;

use crate::case::Cases;
use crate::load::Load;
use crate::target::Target;

/// Number of containers behind the relay.
const CONTAINERS: usize = 100;

/// Number of calls before the peak of memory is read.
const CALLS_BEFORE_PEAK: usize = 1_000_000;

/// Number of containers of a crowded node, and duration of its measurement.
const CROWD: usize = 1000;
const CROWDED_SECONDS: usize = 180;

/// Maximum growth in KiB from the resident memory at the start to the peak: with load on the relay
/// only, and in front of a crowded node.
const RELAY_AIM: u64 = 12 << 10;
const CROWD_AIM: u64 = 16 << 10;

/// Aim in KiB for the resident memory of probeshim after a million calls. The aim is not met yet.
const RESIDENT_AIM: u64 = 12 << 10;

/// Number of connections that are opened and closed.
const CONNECTIONS: usize = 2000;

/// Measures the memory of probeshim after a million calls that it only relays, and after many
/// connections. After that, measures the peak after a tenth as many calls of each kind that it
/// decodes and records. All calls are made as fast as they are answered.
pub(crate) async fn probeshim() {
    let folder = tempfile::tempdir().unwrap();
    let procrun = Target::procrun(folder.path(), CONTAINERS);
    let probeshim = Target::probeshim(folder.path());
    let cases = Cases::on(procrun.socket()).await;
    println!("\nmemory and descriptors of probeshim");
    let mut load = Load::connect(probeshim.socket()).await;
    load.run(&cases.version, 1, 1).await;
    let start = probeshim.memory("VmRSS");
    println!("{:>44} {start:>8} KiB", "after one Version");
    load.run(&cases.version, 32, CALLS_BEFORE_PEAK).await;
    println!("{:>44} {:>8} KiB", "peak after a million Versions", probeshim.memory("VmHWM"));
    print_resident(&probeshim);
    drop(load);
    for round in ["first", "second"] {
        for _ in 0..CONNECTIONS {
            Load::connect(probeshim.socket()).await.run(&cases.version, 1, 1).await;
        }
        let held = format!("held after the {round} {CONNECTIONS} connections");
        let (memory, open) = (probeshim.memory("VmRSS"), probeshim.descriptors());
        println!("{held:>44} {memory:>8} KiB {open:>6} descriptors");
    }
    let peak = probeshim.memory("VmHWM");
    assert_growth("peak with load on the relay only", start, peak, RELAY_AIM);
    let mut load = Load::connect(probeshim.socket()).await;
    for (case, what) in [(&cases.list, "ListContainers"), (&cases.synthetic, "ExecSyncs")] {
        load.run(case, 32, CALLS_BEFORE_PEAK / 10).await;
        let peak = format!("peak after {} more {what}", CALLS_BEFORE_PEAK / 10);
        println!("{peak:>44} {:>8} KiB", probeshim.memory("VmHWM"));
    }
    println!("{:>44} {:>8}", "calls not observed", probeshim.calls("dropped"));
}

/// Measures the memory of probeshim in front of a node with a thousand containers. A kubelet lists
/// them every second, and a hundred ExecSyncs per second are executed in them.
pub(crate) async fn crowd() {
    let folder = tempfile::tempdir().unwrap();
    let procrun = Target::procrun(folder.path(), CROWD);
    let probeshim = Target::probeshim(folder.path());
    let probes = Cases::of_each(procrun.socket()).await;
    assert_eq!(probes.len(), CROWD);
    let (mut probes, list) = (probes.iter().cycle(), Cases::list());
    let mut kubelet = Load::connect(probeshim.socket()).await;
    kubelet.run(&Cases::version(), 1, 1).await;
    let start = probeshim.memory("VmRSS");
    println!("\nprobeshim with {CROWD} containers and 100 ExecSyncs per second, all recorded");
    for second in 0..CROWDED_SECONDS {
        if [0, CROWDED_SECONDS / 2].contains(&second) {
            println!("{:>44} {:>8} KiB", format!("held after {second} seconds"), probeshim.memory("VmRSS"));
        }
        kubelet.run(&list, 1, 1).await;
        kubelet.pace(probes.by_ref().take(100), 100).await;
    }
    println!("{:>44} {:>8} KiB", "held", probeshim.memory("VmRSS"));
    let (observed, kept) = (probeshim.calls("observed"), probeshim.calls("kept"));
    println!("{:>44} {observed:>8}, {kept} of them kept in memory", "calls");
    assert_growth("peak", start, probeshim.memory("VmHWM"), CROWD_AIM);
}

/// Measures the memory of another build after the same million calls, if the environment names one.
pub(crate) async fn baseline() {
    let folder = tempfile::tempdir().unwrap();
    let procrun = Target::procrun(folder.path(), CONTAINERS);
    let Some(baseline) = Target::baseline(folder.path()) else { return };
    let cases = Cases::on(procrun.socket()).await;
    println!("\nmemory of the baseline");
    Load::connect(baseline.socket()).await.run(&cases.version, 32, CALLS_BEFORE_PEAK).await;
    print_resident(&baseline);
}

/// Prints the memory that a process holds, by kind.
fn print_resident(target: &Target) {
    let [total, anonymous, files] = ["VmRSS", "RssAnon", "RssFile"].map(|figure| target.memory(figure));
    let what = "held after a million Versions, 32 at a time";
    println!(
        "{what:>44} {total:>8} KiB, {anonymous} of it anonymous, {files} of files (aim: at most {RESIDENT_AIM})"
    );
}

/// Prints a peak, and fails if the peak exceeds the memory at the start by more than the aim. All
/// values are in KiB.
fn assert_growth(name: &str, start: u64, peak: u64, aim: u64) {
    let growth = peak.saturating_sub(start);
    println!("{name:>44} {peak:>8} KiB, {growth} more than at the start (aim: at most {aim})");
    assert!(growth <= aim, "{name}: {growth} KiB more than at the start, at most {aim}");
}

/// Measures procrun: the time until it answers, and its memory.
pub(crate) async fn procrun() {
    println!("\nprocrun");
    println!(
        "{:>12} {:>16} {:>12} {:>28}",
        "containers", "answers after ms", "idle KiB", "peak KiB, listed ten times"
    );
    for synthetic in [0, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let procrun = Target::procrun(folder.path(), synthetic);
        Load::connect(procrun.socket()).await.run(&Cases::version(), 1, 1).await;
        let started = start.elapsed().as_secs_f64() * 1e3;
        let idle = procrun.memory("VmRSS");
        Load::connect(procrun.socket()).await.run(&Cases::list(), 1, 10).await;
        println!("{synthetic:>12} {started:>16.1} {idle:>12} {:>28}", procrun.memory("VmHWM"));
    }
}
