//! Runs of probeshim, and the times of a period of which nothing is recorded.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::line::{Irregularity, time_at};
use super::period::{Gap, GapCause};

/// Time after the last record of a run from which nothing counts as recorded. A process writes its
/// results once per minute.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(90);

/// Runs of probeshim, and irregularities of their observation.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: HashMap<u32, Run>,
    irregularities: Vec<Irregularity>,
}

/// Time for which the records of a run are complete.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: SystemTime,
    to: SystemTime,
    has_ended: bool,
}

impl Runs {
    /// Adds a time at which a run recorded something.
    pub(super) fn add(&mut self, run: u32, time: SystemTime) {
        let run = self.runs.entry(run).or_insert(Run { from: time, to: time, has_ended: false });
        run.from = run.from.min(time);
        run.to = run.to.max(time);
    }

    /// Adds the regular end of a run.
    pub(super) fn end(&mut self, run: u32, time: SystemTime) {
        self.add(run, time);
        if let Some(run) = self.runs.get_mut(&run) {
            run.has_ended = true;
        }
    }

    pub(super) fn add_irregularities(&mut self, irregularities: Vec<Irregularity>) {
        self.irregularities.extend(irregularities);
    }

    /// Returns the gaps of a period, in no order.
    pub(super) fn gaps(self, from: SystemTime, to: SystemTime) -> Vec<Gap> {
        let mut gaps = missing(self.runs.into_values().collect(), to);
        gaps.extend(irregular(self.irregularities));
        gaps.retain(|gap| {
            // The step of a clock that is set back has no length.
            let is_moment = gap.from == gap.to && (from..=to).contains(&gap.from);
            is_moment || (gap.from < to && gap.to > from)
        });
        for gap in &mut gaps {
            gap.from = gap.from.max(from);
            gap.to = gap.to.min(to);
        }
        gaps
    }
}

/// Returns the times before, between and after runs.
fn missing(mut runs: Vec<Run>, to: SystemTime) -> Vec<Gap> {
    runs.sort_unstable_by_key(|run| run.from);
    let (mut gaps, mut covered, mut cause) = (Vec::new(), SystemTime::UNIX_EPOCH, GapCause::NotRecorded);
    let mut has_ended = false;
    for run in runs {
        if run.from > covered {
            gaps.push(Gap { from: covered, to: run.from, cause: cause.clone() });
        }
        if run.to >= covered {
            (covered, has_ended) = (run.to, run.has_ended);
        }
        cause = GapCause::NotRunning;
    }
    let is_known = cause == GapCause::NotRunning;
    if is_known && has_ended && to > covered {
        gaps.push(Gap { from: covered, to, cause });
    } else if to.duration_since(covered).is_ok_and(|since| since > MAX_WRITE_DELAY) {
        gaps.push(Gap { from: covered, to, cause: GapCause::NotRecorded });
    }
    gaps
}

/// Returns the gaps of irregularities. Dropped observations of adjacent times are one gap.
#[expect(clippy::cast_precision_loss, reason = "exact for steps of up to 285,000 years")]
fn irregular(mut irregularities: Vec<Irregularity>) -> Vec<Gap> {
    irregularities.sort_unstable_by_key(|irregularity| match irregularity {
        Irregularity::Dropped(from, ..) | Irregularity::Step(from, ..) => *from,
    });
    let (mut gaps, mut dropped): (Vec<Gap>, Option<(u64, u64, u64)>) = (Vec::new(), None);
    let gap =
        |(from, to, count)| Gap { from: time_at(from), to: time_at(to), cause: GapCause::Dropped(count) };
    for irregularity in irregularities {
        match irregularity {
            Irregularity::Dropped(from, to, count) => match &mut dropped {
                Some((_, end, sum)) if from <= *end => {
                    *end = to.max(*end);
                    *sum = sum.saturating_add(count);
                }
                other => gaps.extend(other.replace((from, to, count)).map(gap)),
            },
            Irregularity::Step(from, to, step) => {
                // A clock that is set back creates no time without observations.
                let (from, to) = if step < 0 { (to, to) } else { (from, to) };
                let cause = GapCause::ClockStep(step as f64 / 1e3);
                gaps.push(Gap { from: time_at(from), to: time_at(to.max(from)), cause });
            }
        }
    }
    gaps.extend(dropped.map(gap));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn gaps(runs: Runs, from: u64, to: u64) -> Vec<(u64, u64, GapCause)> {
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut gaps = runs.gaps(at(from), at(to));
        gaps.sort_by_key(|gap| (gap.from, gap.to));
        gaps.into_iter().map(|gap| (seconds(gap.from), seconds(gap.to), gap.cause)).collect()
    }

    fn runs(runs: &[(u32, u64, u64, bool)]) -> Runs {
        let mut added = Runs::default();
        for (run, from, to, has_ended) in runs {
            added.add(*run, at(*from));
            added.add(*run, at(*to));
            if *has_ended {
                added.end(*run, at(*to));
            }
        }
        added
    }

    #[test]
    fn times_between_runs_are_gaps_also_after_sigkill_and_not_if_runs_overlap() {
        let killed = runs(&[(1, 1000, 2000, false), (2, 3000, 9000, false)]);
        assert_eq!(gaps(killed, 1500, 9000), [(2000, 3000, GapCause::NotRunning)]);
        let handed_over = runs(&[(1, 1000, 3010, true), (2, 3000, 9000, false)]);
        assert_eq!(gaps(handed_over, 1500, 9000), []);
        let before_and_after = runs(&[(1, 100, 200, true), (2, 9000, 9900, true)]);
        assert_eq!(gaps(before_and_after, 1000, 2000), [(1000, 2000, GapCause::NotRunning)]);
    }

    #[test]
    fn times_before_the_first_and_after_the_last_record_are_gaps() {
        assert_eq!(gaps(Runs::default(), 100, 200), [(100, 200, GapCause::NotRecorded)]);
        let expected = [(900, 1000, GapCause::NotRecorded), (2000, 2500, GapCause::NotRunning)];
        assert_eq!(gaps(runs(&[(1, 1000, 2000, true)]), 900, 2500), expected);
        let killed = || runs(&[(1, 1000, 2000, false)]);
        assert_eq!(gaps(killed(), 1000, 2500), [(2000, 2500, GapCause::NotRecorded)]);
        assert_eq!(gaps(killed(), 1000, 2060), [], "the last minute is not written yet");
    }

    #[test]
    fn dropped_observations_and_clock_steps_are_gaps() {
        let mut observed = runs(&[(1, 0, 9000, false)]);
        observed.add_irregularities(vec![
            Irregularity::Dropped(1_060_000, 1_120_000, 2),
            Irregularity::Dropped(1_000_000, 1_060_000, 3),
            Irregularity::Step(2_000_000, 2_600_000, 600_000),
            Irregularity::Step(3_000_000, 2_900_000, -100_000),
            Irregularity::Dropped(4_000_000, 4_060_000, 1),
        ]);
        let expected = [
            (1000, 1120, GapCause::Dropped(5)),
            (2000, 2600, GapCause::ClockStep(600.0)),
            (2900, 2900, GapCause::ClockStep(-100.0)),
            (4000, 4030, GapCause::Dropped(1)),
        ];
        assert_eq!(gaps(observed, 500, 4030), expected);
    }
}
