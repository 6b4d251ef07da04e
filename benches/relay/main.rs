//! What the relay costs: latency, throughput and memory, beside a direct connection and a plain byte relay (socat).
//!
//! The three take turns in one run, so that a machine that changes its speed changes it for all. The runtime behind them is
//! a stub that answers at once, and the client keeps to one connection, as the kubelet does.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on is of no use")]
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]
#![allow(clippy::cast_precision_loss, reason = "no figure here has 52 bits")]

mod load;
mod stub;
mod target;

use hdrhistogram::Histogram;
use load::Load;
use target::Target;

/// Turns that each of the three takes in each case.
const ROUNDS: usize = 12;
/// Calls in each turn.
const CALLS: usize = 1500;
/// Calls before the peak of memory is read.
const MILLION: usize = 1_000_000;
/// Connections that are opened and closed.
const CONNECTIONS: usize = 2000;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    stub::serve(&folder.path().join("stub.sock"));
    let targets =
        [Target::direct(folder.path()), Target::socat(folder.path()), Target::probeshim(folder.path())];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for method in stub::METHODS {
            for concurrency in [1, 32] {
                compare(&targets, method, concurrency).await;
            }
        }
        memory(&targets[2]).await;
    });
}

/// One case: all targets in turn, and what the relays add to a direct call.
async fn compare(targets: &[Target], method: &str, concurrency: usize) {
    println!("\n{method}, {concurrency} at once");
    println!("{:>12} {:>12} {:>12} {:>12} {:>18}", "", "median µs", "p99 µs", "calls/s", "median added µs");
    let mut results: Vec<(Histogram<u64>, f64)> = Vec::new();
    let mut loads = Vec::new();
    for target in targets {
        let mut load = Load::connect(target.socket()).await;
        load.run(method, concurrency, CALLS).await;
        loads.push(load);
        results.push((Histogram::new(3).unwrap(), 0.0));
    }
    for _ in 0..ROUNDS {
        for (load, (latencies, seconds)) in loads.iter_mut().zip(&mut results) {
            let (measured, took) = load.run(method, concurrency, CALLS).await;
            latencies.add(measured).unwrap();
            *seconds += took.as_secs_f64();
        }
    }
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let direct = micros(results[0].0.value_at_quantile(0.5));
    let added: Vec<f64> =
        results.iter().map(|(latencies, _)| micros(latencies.value_at_quantile(0.5)) - direct).collect();
    for ((target, (latencies, seconds)), added) in targets.iter().zip(&results).zip(&added) {
        println!(
            "{:>12} {:>12.1} {:>12.1} {:>12.0} {added:>18.1}",
            target.name(),
            micros(latencies.value_at_quantile(0.5)),
            micros(latencies.value_at_quantile(0.99)),
            (ROUNDS * CALLS) as f64 / seconds,
        );
    }
    println!("{:>12} adds {:.2} times what socat adds to the median", "probeshim", added[2] / added[1]);
}

/// What the relay holds after many calls and many connections.
async fn memory(probeshim: &Target) {
    println!("\nmemory and descriptors of probeshim");
    let mut load = Load::connect(probeshim.socket()).await;
    load.run(stub::METHODS[0], 32, MILLION).await;
    println!("{:>40} {:>8} KiB", "peak after a million calls", probeshim.memory("VmHWM"));
    drop(load);
    for round in ["first", "second"] {
        for _ in 0..CONNECTIONS {
            Load::connect(probeshim.socket()).await.run(stub::METHODS[0], 1, 1).await;
        }
        let held = format!("held after the {round} {CONNECTIONS} connections");
        let (memory, open) = (probeshim.memory("VmRSS"), probeshim.descriptors());
        println!("{held:>40} {memory:>8} KiB {open:>6} descriptors");
    }
}
