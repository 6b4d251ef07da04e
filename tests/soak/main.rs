//! `make soak`: 50 ExecSyncs per second on a real containerd for ten minutes, with a crash of
//! containerd in the middle. The output shows probeshim's memory and processor time.
//!
//! `SOAK_MINUTES`, `SOAK_PER_SECOND` and `SOAK_PODS` change the numbers. A build with `--release`
//! shows the figures that users will see.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_precision_loss, reason = "no figure here has 52 bits")]
#![allow(clippy::print_stdout, reason = "it is what a soak is for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixtures::containerd::{Containerd, Version};
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::scenarios::execs::Execs;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::ExecSyncRequest;
use probeshim::socket::SocketPath;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Maximum number of calls in flight. Calls that the machine cannot make in time are skipped and do
/// not pile up.
const IN_FLIGHT: usize = 32;

/// Maximum growth of memory after the first quarter, as a share of the memory in the second
/// quarter. Allocators keep some freed memory.
const FLAT: f64 = 0.15;

/// Maximum share of a core that the evidence sampler's thread may use at 100 calls per second.
const SAMPLER_AIM: f64 = 0.02;

/// Returns the number in this environment variable, or the default.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn memory_of_probeshim_stays_flat_and_no_call_hangs() {
    let (minutes, per_second) = (number("SOAK_MINUTES", 10), number("SOAK_PER_SECOND", 50));
    let mut containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    let pods: Vec<Pod> = (0..number("SOAK_PODS", 5))
        .map(|pod| {
            Pod::new(&execs.crictl, fixtures::runtime::Runtime::folder(&containerd), &format!("soak-{pod}"))
        })
        .collect();
    let targets: Vec<String> = pods.iter().map(|pod| pod.container.clone()).collect();
    let socket = SocketPath::new(execs.shim.socket()).unwrap();
    let (made, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let slots = minutes * 4;
    let mut held = Vec::new();
    println!("{:>6} {:>10} {:>8} {:>10} {:>22}", "min", "calls", "failed", "KiB", "cpu ms/s (all/sampler)");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stop = CancellationToken::new();
    let calls = call(socket, targets, per_second, made.clone(), failed.clone(), stop.clone());
    let calling = std::thread::spawn(move || runtime().block_on(calls));
    let runtime = runtime();
    let mut before = execs.shim.processor_time();
    for slot in 1..=slots {
        let until = Instant::now() + Duration::from_secs(15);
        runtime.block_on(async { tokio::time::sleep_until(until).await });
        if slot == slots / 2 {
            containerd.crash_and_restart();
        }
        let (memory, now) = (execs.shim.memory(), execs.shim.processor_time());
        let spent = |thread| (time_of(&now, thread) - time_of(&before, thread)) as f64 / 15.0;
        println!(
            "{:>6.2} {:>10} {:>8} {memory:>10} {:>13.1} {:>8.1}",
            slot as f64 / 4.0,
            made.load(Ordering::Relaxed),
            failed.load(Ordering::Relaxed),
            spent(None),
            spent(Some("sampler")),
        );
        held.push(memory);
        before = now;
    }
    stop.cancel();
    calling.join().unwrap();
    let metrics = execs.shim.metrics();
    let states: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("probeshim_exec_phase_coverage_total")).collect();
    println!("{}", states.join("\n"));
    println!("peak {} KiB", execs.shim.peak());
    let sampler = time_of(&execs.shim.processor_time(), Some("sampler"));
    let sampler = sampler as f64 / made.load(Ordering::Relaxed) as f64 / 1e3 * 100.0;
    println!("the sampler takes {:.2} % of a core at 100 calls a second", 100.0 * sampler);
    assert!(sampler < SAMPLER_AIM, "the sampler uses more than its share of a core: {sampler}");
    let quarter = held.len() / 4;
    let most = |held: &[u64]| *held.iter().max().unwrap() as f64;
    let (early, late) = (most(&held[quarter..2 * quarter]), most(&held[3 * quarter..]));
    assert!(late < early * (1.0 + FLAT), "memory grows: {held:?}");
    let state = |state: &str| -> u64 {
        let prefix = format!("probeshim_exec_phase_coverage_total{{state=\"{state}\"}} ");
        states.iter().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    };
    // Maximum number of calls that the crash may fail: those in flight, and those of the time until
    // containerd runs again.
    let (made, failed) = (made.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    let outage = 5 * per_second + u64::try_from(IN_FLIGHT).unwrap();
    let asked = minutes * 60 * per_second;
    assert!(
        made >= asked * 9 / 10,
        "this machine made only {made} of {asked} calls: set a lower SOAK_PER_SECOND"
    );
    assert!(failed <= outage, "{failed} of {made} calls failed");
    assert!(state("missing") <= failed + outage, "{states:?}");
    assert!(state("complete") + state("ambiguous") + failed + outage >= made, "{states:?}");
    for pod in pods {
        pod.remove(&execs.crictl);
    }
    execs.end();
}

/// Returns the milliseconds of processor time of this thread, or of all threads.
fn time_of(times: &[(String, u64)], thread: Option<&str>) -> u64 {
    let is_it = |name: &str| thread.is_none_or(|thread| name == thread);
    times.iter().filter(|(name, _)| is_it(name)).map(|(_, time)| time).sum()
}

/// Makes calls at this rate until `stop` is cancelled, and then waits for the calls in flight.
async fn call(
    socket: SocketPath,
    containers: Vec<String>,
    per_second: u64,
    made: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    stop: CancellationToken,
) {
    let client = runtime_client(&socket);
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(per_second).unwrap());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for container in containers.iter().cycle() {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            break;
        }
        let place = room.clone().acquire_owned().await.unwrap();
        let (mut client, made, failed) = (client.clone(), made.clone(), failed.clone());
        let request =
            ExecSyncRequest { container_id: container.clone(), cmd: vec!["true".to_owned()], timeout: 10 };
        tokio::spawn(async move {
            made.fetch_add(1, Ordering::Relaxed);
            if client.exec_sync(request).await.is_err() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            drop(place);
        });
    }
    let all = u32::try_from(IN_FLIGHT).unwrap();
    drop(room.acquire_many(all).await);
}
