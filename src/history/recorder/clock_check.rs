//! Finds steps of the wall clock by comparison with the monotonic clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::history::timeline::{Irregularity, unix_ms};

/// Shortest forward step that is reported. A host that was suspended counts as a forward step.
const MIN_FORWARD: Duration = Duration::from_secs(2);

/// Shortest backward step that is reported. A clock that is slowed down by NTP loses at most a
/// tenth of the time between two checks, which does not count.
const MIN_BACKWARD: Duration = Duration::from_millis(100);

/// Both clocks at the last check.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockCheck {
    wall: SystemTime,
    monotonic: Instant,
}

impl ClockCheck {
    pub(super) fn new(wall: SystemTime, monotonic: Instant) -> Self {
        Self { wall, monotonic }
    }

    /// Returns the step of the wall clock since the last check, if there was one.
    pub(super) fn check(&mut self, wall: SystemTime, monotonic: Instant) -> Option<Irregularity> {
        let elapsed = monotonic.saturating_duration_since(self.monotonic);
        let expected = self.wall + elapsed;
        *self = Self { wall, monotonic };
        let milliseconds = |step: Duration| i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
        let step = match wall.duration_since(expected) {
            Ok(forward) if forward >= MIN_FORWARD => milliseconds(forward),
            Err(error) if error.duration() >= MIN_BACKWARD + elapsed / 10 => -milliseconds(error.duration()),
            _ => return None,
        };
        Some(Irregularity::Step(unix_ms(expected), unix_ms(wall), step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_wall_clock_are_found_and_slow_corrections_are_not() {
        let (wall, monotonic) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1000), Instant::now());
        let ms = Duration::from_millis;
        for (wall_after, expected) in [
            (wall + ms(1000), None),
            (wall + ms(1900), None),
            (wall + ms(910), None),
            (wall + ms(3000), Some(Irregularity::Step(1_001_000, 1_003_000, 2000))),
            (wall - ms(1000), Some(Irregularity::Step(1_001_000, 999_000, -2000))),
        ] {
            let mut check = ClockCheck::new(wall, monotonic);
            assert_eq!(check.check(wall_after, monotonic + ms(1000)), expected);
            let next = check.check(wall_after + ms(60_000), monotonic + ms(61_000));
            assert_eq!(next, None, "a step is found once");
        }
    }
}
