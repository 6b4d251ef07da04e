//! What probeshim and its runtime of plain processes hold.

use tokio::time::Instant;

use crate::case::Cases;
use crate::load::Load;
use crate::target::Target;

/// Containers behind the relay.
const CONTAINERS: usize = 100;

/// Calls before the peak of memory is read.
const CALLS_BEFORE_PEAK: usize = 1_000_000;

/// Containers of a crowded node, and for how long it is looked at.
const CROWD: usize = 1000;
const CROWDED_SECONDS: usize = 180;

/// KiB that the peak may exceed the resident memory at the start, where only the relay is loaded, and in front of a crowded node.
const RELAY_AIM: u64 = 12 << 10;
const CROWD_AIM: u64 = 16 << 10;

/// The aim for what probeshim holds after a million calls, in KiB. It is not met yet.
const RESIDENT_AIM: u64 = 12 << 10;

/// Connections that are opened and closed.
const CONNECTIONS: usize = 2000;

/// What probeshim holds after many calls that it only relays, and many connections; and after as many that it explains and records, as fast
/// as they are answered.
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
    assert_growth("peak, where only the relay was loaded", start, peak, RELAY_AIM);
    let mut load = Load::connect(probeshim.socket()).await;
    for (case, what) in [(&cases.list, "ListContainers"), (&cases.synthetic, "ExecSyncs")] {
        load.run(case, 32, CALLS_BEFORE_PEAK / 10).await;
        let peak = format!("peak after {} {what} on top", CALLS_BEFORE_PEAK / 10);
        println!("{peak:>44} {:>8} KiB", probeshim.memory("VmHWM"));
    }
    println!("{:>44} {:>8}", "calls not observed", probeshim.calls("dropped"));
}

/// What probeshim holds in front of a node with a thousand containers, which a kubelet lists every second, and in which a hundred ExecSyncs
/// a second are executed.
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
    println!("\nprobeshim with {CROWD} containers and 100 ExecSyncs a second, all of it recorded");
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

/// What another build holds after the same million calls, if one is named.
pub(crate) async fn baseline() {
    let folder = tempfile::tempdir().unwrap();
    let procrun = Target::procrun(folder.path(), CONTAINERS);
    let Some(baseline) = Target::baseline(folder.path()) else { return };
    let cases = Cases::on(procrun.socket()).await;
    println!("\nmemory of the baseline");
    Load::connect(baseline.socket()).await.run(&cases.version, 32, CALLS_BEFORE_PEAK).await;
    print_resident(&baseline);
}

/// Prints the memory that a process holds, and of which kinds it is.
fn print_resident(target: &Target) {
    let [total, anonymous, files] = ["VmRSS", "RssAnon", "RssFile"].map(|figure| target.memory(figure));
    let what = "held after a million Versions, 32 at once";
    println!(
        "{what:>44} {total:>8} KiB, {anonymous} of it anonymous, {files} of files (aim: at most {RESIDENT_AIM})"
    );
}

/// Prints a peak, and fails where it exceeds the memory at the start by more than the aim. All figures are KiB.
fn assert_growth(name: &str, start: u64, peak: u64, aim: u64) {
    let growth = peak.saturating_sub(start);
    println!("{name:>44} {peak:>8} KiB, {growth} more than at the start (aim: at most {aim})");
    assert!(growth <= aim, "{name}: {growth} KiB more than at the start, at most {aim}");
}

/// What procrun takes: time until it answers, and memory.
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
