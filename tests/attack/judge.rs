//! The cost of an attack, and the comparison with the limits.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use crate::attacks::{Attack, Measure};
use crate::processes::{Processes, Served};
use crate::victim::{Latencies, Victim};

/// Maximum p99 of the second client, as a multiple of its p99 without an attack.
const MAX_P99_FACTOR: f64 = 10.0;

/// Maximum difference between the second client's worst call through probeshim and directly on the
/// attacked stub, in milliseconds.
const MAX_WORST_DIFFERENCE: f64 = 100.0;

/// Maximum of the second client's worst call through probeshim, as a multiple of the worst directly
/// on the attacked stub.
const MAX_WORST_FACTOR: f64 = 2.0;

/// Duration in milliseconds that a worst call may always have.
const NOTICEABLE: f64 = 20.0;

/// Maximum memory for one connection, in MiB: 10,000 streams, 64 MiB of unread data, and memory
/// that the allocator keeps.
const MAX_MEMORY: f64 = 160.0;

/// Duration of the measurement without an attack.
const QUIET: Duration = Duration::from_secs(1);

/// Time after the attack in which the second client continues and memory settles.
const AFTER: Duration = Duration::from_secs(1);

/// The cost of one run of an attack.
#[derive(Debug)]
pub(crate) struct Attacked {
    /// Latencies of the second client through probeshim, without an attack.
    quiet: Option<Latencies>,
    /// Latencies of the second client through probeshim, during the attack.
    shim: Option<Latencies>,
    /// Latencies of the second client of the stub, while the stub is attacked.
    stub: Option<Latencies>,
    /// Number of bytes that probeshim has taken from the attacker.
    sent: u64,
    /// Memory of probeshim in MiB: before the attack, at its peak, and after the attack.
    memory: [f64; 3],
}

impl Attacked {
    pub(crate) fn measure(attack: &Attack) -> Self {
        let processes = Processes::start();
        let is_stopped = attack.measure == Measure::MemoryWhileStopped;
        let quiet = (!is_stopped).then(|| {
            let victim = Victim::start(&processes.shim.socket);
            run(async { sleep(QUIET).await });
            victim.stop()
        });
        let before = processes.shim.memory("VmRSS");
        if is_stopped {
            processes.stub.signal(Signal::STOP);
        }
        let (shim, sent) = attacked(attack, &processes.shim, is_stopped);
        let memory = [before, processes.shim.memory("VmHWM"), processes.shim.memory("VmRSS")];
        if is_stopped {
            processes.stub.signal(Signal::CONT);
        }
        drop(processes);
        // A new stub is used, because the stub that was attacked through probeshim may not have
        // recovered.
        let stub = if is_stopped { None } else { attacked(attack, &Processes::start().stub, false).0 };
        Self { quiet, shim, stub, sent, memory }
    }
}

/// Attacks a process while a second client calls it, unless the process is stopped and cannot
/// answer.
fn attacked(attack: &Attack, served: &Served, is_stopped: bool) -> (Option<Latencies>, u64) {
    let victim = (!is_stopped).then(|| Victim::start(&served.socket));
    let socket: &Path = &served.socket;
    let sent = thread::scope(|scope| scope.spawn(|| run((attack.make)(socket))).join().unwrap());
    run(async { sleep(AFTER).await });
    (victim.map(Victim::stop), sent)
}

/// Runs a future on this thread.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn print_heading() {
    println!(
        "{:<32} {:>9} {:>20} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6}",
        "ATTACK", "MiB SENT", "RSS, PEAK, AFTER", "p99 QUIET", "p99", "FACTOR", "WORST", "DIRECT", "FAILED"
    );
}

/// Prints the medians, and returns the violations of the limits.
pub(crate) fn judge(attack: &Attack, measured: &[Attacked]) -> Vec<String> {
    let of = |figure: &dyn Fn(&Attacked) -> Option<f64>| median(measured.iter().filter_map(figure).collect());
    let memory = [0, 1, 2].map(|at| of(&|run| Some(run.memory[at])).unwrap());
    let sent = of(&|run| Some(run.sent as f64 / f64::from(1 << 20))).unwrap();
    let mut failures = Vec::new();
    let least = measured.iter().map(|run| run.sent).min().unwrap_or_default();
    if least < attack.min_sent {
        failures.push(format!(
            "{}: not effective: {least} bytes were taken, the minimum is {}",
            attack.name, attack.min_sent
        ));
    }
    let [_, peak, _] = memory;
    if peak > MAX_MEMORY && attack.measure != Measure::WorstCall {
        failures
            .push(format!("{}: probeshim used {peak:.0} MiB, the limit is {MAX_MEMORY} MiB", attack.name));
    }
    let memory = memory.map(|mib| format!("{mib:.0}")).join(", ");
    let figures = (
        of(&|run| Some(run.quiet?.p99)),
        of(&|run| Some(run.shim?.p99)),
        of(&|run| Some(run.shim?.max)),
        of(&|run| Some(run.stub?.max)),
    );
    let (Some(quiet), Some(p99), Some(worst), Some(direct)) = figures else {
        println!("{:<32} {sent:>9.1} {memory:>20}", attack.name);
        return failures;
    };
    let factor = p99 / quiet;
    let failed: u64 = measured.iter().filter_map(|run| Some(run.shim?.failed)).sum();
    println!(
        "{:<32} {sent:>9.1} {memory:>20} {quiet:>9.2} {p99:>9.2} {factor:>6.1} {worst:>9.1} {direct:>9.1} {failed:>6}",
        attack.name
    );
    if failed > 0 {
        failures.push(format!("{}: {failed} calls of the second client failed", attack.name));
    }
    if attack.measure == Measure::WorstCall {
        if worst > (direct * MAX_WORST_FACTOR).max(NOTICEABLE) {
            failures.push(format!(
                "{}: the second client's worst call took {worst:.1} ms, {direct:.1} ms directly, the limit is {MAX_WORST_FACTOR} times",
                attack.name
            ));
        }
        return failures;
    }
    if factor > MAX_P99_FACTOR {
        failures.push(format!(
            "{}: the second client's p99 is {p99:.2} ms, {factor:.1} times its p99 without an attack, the limit is {MAX_P99_FACTOR} times",
            attack.name
        ));
    }
    if worst > direct + MAX_WORST_DIFFERENCE {
        failures.push(format!(
            "{}: the second client's worst call took {worst:.1} ms, {direct:.1} ms directly, the limit is {MAX_WORST_DIFFERENCE} ms more",
            attack.name
        ));
    }
    failures
}

/// Returns the median; `None` without figures.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
