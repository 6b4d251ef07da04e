//! Latency and throughput: all targets in turns.

use std::iter::repeat_n;

use hdrhistogram::Histogram;

use crate::case::{Case, Cases};
use crate::load::Load;
use crate::target::Target;

/// Turns that each of them takes in each case.
const ROUNDS: usize = 20;

/// Containers of the runtime.
const CONTAINERS: usize = 100;

/// ExecSyncs a second of a busy node.
const PACE: u32 = 200;

/// How many times what the bare relay adds to the median probeshim may add at this pace. Measured: 0.86 to 1.02 on one machine, 1.08 to 1.19 on
/// another, where two builds that were measured in turn did not differ (0.99 to 1.00).
const PACE_AIM: f64 = 1.3;

/// What was measured of one target in one case.
struct Measured<'a> {
    target: &'a Target,
    load: Load,
    latencies: Histogram<u64>,
    /// The median of each turn, in microseconds.
    medians: Vec<f64>,
    seconds: f64,
}

/// How calls are made.
#[derive(Clone, Copy)]
enum Rhythm {
    /// So many at once, as fast as they are answered.
    AtOnce(usize),
    /// So many a second.
    PerSecond(u32),
}

/// Every case, one call at a time and many at once.
pub(crate) async fn latency() {
    let folder = tempfile::tempdir().unwrap();
    let mut targets = vec![
        Target::procrun(folder.path(), CONTAINERS),
        Target::socat(folder.path()),
        Target::bare(folder.path()),
    ];
    targets.extend(Target::baseline(folder.path()));
    targets.push(Target::probeshim(folder.path()));
    let cases = Cases::on(targets[0].socket()).await;
    for case in cases.all() {
        for concurrency in [1, 32] {
            println!("\n{}, {concurrency} at once", case.name);
            compare(&targets, case, Rhythm::AtOnce(concurrency)).await;
        }
    }
}

/// ExecSyncs at the pace of a busy node: what watching and recording them adds to the relay alone.
pub(crate) async fn pace() {
    let folder = tempfile::tempdir().unwrap();
    let mut targets = vec![Target::procrun(folder.path(), CONTAINERS), Target::bare(folder.path())];
    targets.extend(Target::baseline(folder.path()));
    targets.push(Target::probeshim(folder.path()));
    let cases = Cases::on(targets[0].socket()).await;
    println!("\n{}, {PACE} a second", cases.synthetic.name);
    let ratios = compare(&targets, &cases.synthetic, Rhythm::PerSecond(PACE)).await;
    assert!(ratios[0] <= PACE_AIM, "watching costs more than {PACE_AIM} times what the bare relay does");
}

/// One case: the targets in turn, and what the last adds to the first beside what each of the others adds.
async fn compare(targets: &[Target], case: &Case, rhythm: Rhythm) -> Vec<f64> {
    let mut measured = Vec::new();
    for target in targets {
        measured.push(Measured::of(target, case, rhythm).await);
    }
    for round in 0..ROUNDS {
        // Another is first in each round, so that none has the better place.
        for turn in 0..measured.len() {
            let turn = (round + turn) % measured.len();
            measured[turn].take_turn(case, rhythm).await;
        }
    }
    println!("{:>12} {:>12} {:>12} {:>12} {:>18}", "", "median µs", "p99 µs", "calls/s", "added µs");
    let (direct, probeshim) = (&measured[0], &measured[measured.len() - 1]);
    for target in &measured {
        println!(
            "{:>12} {:>12.1} {:>12.1} {:>12.0} {:>18.1}",
            target.target.name(),
            micros(&target.latencies, 0.5),
            micros(&target.latencies, 0.99),
            target.latencies.len() as f64 / target.seconds,
            target.added_to(direct),
        );
    }
    let ratio_to = |other: &Measured<'_>| {
        let ratio = probeshim.added_to(direct) / other.added_to(direct);
        println!("{:>12} adds {ratio:.2} times what {} adds to the median", "probeshim", other.target.name());
        ratio
    };
    measured[1..measured.len() - 1].iter().map(ratio_to).collect()
}

impl<'a> Measured<'a> {
    /// Connects. The first turn does not count: connections, caches and the processor's clock warm up.
    async fn of(target: &'a Target, case: &Case, rhythm: Rhythm) -> Self {
        let load = Load::connect(target.socket()).await;
        let mut warm =
            Self { target, load, latencies: Histogram::new(3).unwrap(), medians: Vec::new(), seconds: 0.0 };
        warm.take_turn(case, rhythm).await;
        Self { latencies: Histogram::new(3).unwrap(), medians: Vec::new(), seconds: 0.0, ..warm }
    }

    async fn take_turn(&mut self, case: &Case, rhythm: Rhythm) {
        let (latencies, took) = match rhythm {
            Rhythm::AtOnce(concurrency) => self.load.run(case, concurrency, case.calls).await,
            Rhythm::PerSecond(pace) => self.load.pace(repeat_n(case, pace as usize), pace).await,
        };
        self.medians.push(micros(&latencies, 0.5));
        self.latencies.add(latencies).unwrap();
        self.seconds += took.as_secs_f64();
    }

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
