//! Measures latency and throughput. All targets take turns.

use std::iter::repeat_n;

use hdrhistogram::Histogram;

use crate::case::{Case, Cases};
use crate::load::Load;
use crate::target::Target;

/// Number of turns of each target in each case.
const ROUNDS: usize = 20;

/// Number of containers of the runtime.
pub(crate) const CONTAINERS: usize = 100;

/// Number of ExecSyncs per second on a busy node.
const PACE: u32 = 200;

/// Maximum ratio at `PACE` between the latencies that probeshim and the bare relay add to the
/// median. The ratio was 0.86 to 1.02 on one machine, and 1.08 to 1.19 on another, where two builds
/// that were measured in turn did not differ (0.99 to 1.00).
const PACE_AIM: f64 = 1.3;

/// Measurements of one target in one case.
pub(crate) struct Measured<'a> {
    target: &'a Target,
    load: Load,
    latencies: Histogram<u64>,
    /// Median of each turn in microseconds.
    medians: Vec<f64>,
    seconds: f64,
}

/// Rhythm in which calls are made.
#[derive(Clone, Copy)]
pub(crate) enum Rhythm {
    /// This many calls at the same time, as fast as they are answered.
    AtOnce(usize),
    /// This many calls per second.
    PerSecond(u32),
}

/// Measures every case, with one call at a time and with many.
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
            println!("\n{}, {concurrency} at a time", case.name);
            compare(&targets, case, Rhythm::AtOnce(concurrency)).await;
        }
    }
}

/// Measures ExecSyncs at the pace of a busy node: the latency that observing and recording them add
/// to the bare relay.
pub(crate) async fn pace() {
    let folder = tempfile::tempdir().unwrap();
    let mut targets = vec![Target::procrun(folder.path(), CONTAINERS), Target::bare(folder.path())];
    targets.extend(Target::baseline(folder.path()));
    targets.push(Target::probeshim(folder.path()));
    let cases = Cases::on(targets[0].socket()).await;
    println!("\n{}, {PACE} per second", cases.synthetic.name);
    let ratios = compare(&targets, &cases.synthetic, Rhythm::PerSecond(PACE)).await;
    assert!(
        ratios[0] <= PACE_AIM,
        "observation adds more than {PACE_AIM} times the latency that the bare relay adds"
    );
}

/// Measures one case, with the targets in turn. Returns a ratio for each target between the first
/// and the last: the latency that the last target adds to the first, divided by the latency that
/// this target adds.
async fn compare(targets: &[Target], case: &Case, rhythm: Rhythm) -> Vec<f64> {
    let measured = measure(targets, case, rhythm).await;
    let probeshim = &measured[measured.len() - 1];
    let ratio_to = |other: &Measured<'_>| {
        let direct = &measured[0];
        let ratio = probeshim.added_to(direct) / other.added_to(direct);
        println!("{:>12} adds {ratio:.2} times what {} adds to the median", "probeshim", other.target.name());
        ratio
    };
    measured[1..measured.len() - 1].iter().map(ratio_to).collect()
}

/// Measures one case, with the targets in turn, and prints the results.
pub(crate) async fn measure<'a>(targets: &'a [Target], case: &Case, rhythm: Rhythm) -> Vec<Measured<'a>> {
    let mut measured = Vec::new();
    for target in targets {
        measured.push(Measured::of(target, case, rhythm).await);
    }
    for round in 0..ROUNDS {
        // Each round starts with another target, so that none has the better place.
        for turn in 0..measured.len() {
            let turn = (round + turn) % measured.len();
            measured[turn].take_turn(case, rhythm).await;
        }
    }
    println!("{:>12} {:>12} {:>12} {:>12} {:>18}", "", "median µs", "p99 µs", "calls/s", "added µs");
    let direct = &measured[0];
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
    measured
}

impl<'a> Measured<'a> {
    /// Connects, and takes a turn that does not count: connections, caches and the processor's
    /// clock warm up.
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

    /// Returns the ratio between the medians of this target and of another: the median of the
    /// ratios of each round.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        let mut ratios: Vec<f64> =
            self.medians.iter().zip(&other.medians).map(|(mine, theirs)| mine / theirs).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    pub(crate) fn name(&self) -> &str {
        self.target.name()
    }

    /// Returns the latency in microseconds that this target adds to another: the median of the
    /// differences between the medians of each round. A round in which the machine was slower
    /// therefore counts no more than any other.
    fn added_to(&self, other: &Self) -> f64 {
        let mut added: Vec<f64> =
            self.medians.iter().zip(&other.medians).map(|(mine, theirs)| mine - theirs).collect();
        added.sort_by(f64::total_cmp);
        added[added.len() / 2]
    }
}

/// Returns the latency in microseconds at a quantile.
fn micros(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}
