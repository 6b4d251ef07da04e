//! Checks the schedule of a `CronJob` as the parser of Kubernetes does
//! (`github.com/robfig/cron/v3`: `ParseStandard`). No job is started by its schedule.

/// Schedules with a name.
const NAMED: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Begin of a schedule with a fixed interval.
const EVERY: &str = "@every ";

/// Units of Go's durations in nanoseconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Values of a field.
struct Bounds {
    min: u32,
    max: u32,
    /// Names of the values, from the smallest one.
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: &MONTHS },
    Bounds { min: 0, max: 6, names: &DAYS },
];

/// Returns the reason for which a schedule is invalid; `None` if it is valid.
pub(super) fn fault(schedule: &str) -> Option<String> {
    if schedule.contains("TZ") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if schedule.starts_with('@') {
        let is_known = NAMED.contains(&schedule) || schedule.strip_prefix(EVERY).is_some_and(is_go_duration);
        return (!is_known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let mut ranges = fields.iter().zip(&FIELDS).flat_map(|(field, bounds)| {
        field.split(',').filter(|range| !range.is_empty()).map(move |range| check_range(range, bounds))
    });
    ranges.find_map(Result::err)
}

/// Returns whether Go's `time.ParseDuration` takes a text, such as `-1h30m`.
fn is_go_duration(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return true;
    }
    let (mut rest, mut nanoseconds) = (unsigned, 0.0);
    while !rest.is_empty() {
        let digits =
            rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        // A longer unit comes before one with which it begins.
        let Some((unit, factor)) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)) else {
            return false;
        };
        let Ok(number) = number.parse::<f64>() else { return false };
        nanoseconds += number * factor;
        rest = &after[unit.len()..];
    }
    !unsigned.is_empty() && nanoseconds < 9.2e18
}

/// Checks a range of a field, such as `1-5`, `*/10` or `mon`.
fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let (values, step) = match range.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {range}")),
        Some((values, step)) => (values, Some(step)),
        None => (range, None),
    };
    let ends: Vec<&str> = values.split('-').collect();
    let (first, last) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [one] => {
            let first = number(one, bounds.names, bounds.min)?;
            (first, if step.is_some() { bounds.max } else { first })
        }
        [first, last] => (number(first, bounds.names, bounds.min)?, number(last, bounds.names, bounds.min)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let step = step.map_or(Ok(1), |step| number(step, &[], 0))?;
    let Bounds { min, max, .. } = *bounds;
    if first < min {
        return Err(format!("beginning of range ({first}) below minimum ({min}): {range}"));
    }
    if last > max {
        return Err(format!("end of range ({last}) above maximum ({max}): {range}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {range}"));
    }
    if step == 0 { Err(format!("step of range should be a positive number: {range}")) } else { Ok(()) }
}

/// Returns the value of a number or name. `min` is the value of the first name.
fn number(text: &str, names: &[&str], min: u32) -> Result<u32, String> {
    let name = text.to_ascii_lowercase();
    if let Some(place) = names.iter().position(|known| *known == name) {
        return Ok(min + u32::try_from(place).unwrap_or_default());
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_judged_as_by_kubernetes() {
        for schedule in [
            "* * * * *",
            "*/5 0-23/2 1,15 JAN-mar sun",
            "0 0 ? * 1-5",
            "5/15 * * * *",
            "@daily",
            "@every 1h30m",
            "@every -1.5h",
            "@every 0",
        ] {
            assert_eq!(fault(schedule), None, "{schedule}");
        }
        for (schedule, expected) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("a * * * *", "failed to parse int from a"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("@every 1", "unrecognized descriptor: @every 1"),
            ("@every 1h 1m", "unrecognized descriptor: @every 1h 1m"),
            ("@every 9999999999h", "unrecognized descriptor: @every 9999999999h"),
            ("@never", "unrecognized descriptor: @never"),
            ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ] {
            assert_eq!(fault(schedule).as_deref(), Some(expected), "{schedule}");
        }
    }
}
