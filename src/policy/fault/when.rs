//! The occasions on which a rule affects the calls that it selects.

use std::fmt;
use std::time::Duration;

use crate::duration;
use crate::gofmt::format_duration;

/// Occasions among the selected calls. The calls of each container are counted separately. The
/// criteria apply in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct When {
    /// Time from the activation of the rule from which calls count.
    pub from: Option<Duration>,
    /// Time from the activation of the rule up to which calls count.
    pub to: Option<Duration>,
    /// Number of calls that are not affected first.
    pub after: u64,
    /// Number of calls after these that are affected at most.
    pub first: Option<u64>,
    /// Every call with a number that this divides is affected; 1 for each.
    pub every: Option<u64>,
    /// Percentage of these calls that are affected, chosen at random.
    pub percentage: Option<f64>,
    /// Seed of the choice. The same seed makes the same choices for a container.
    pub seed: Option<u64>,
    /// Whether actions apply before or after the runtime has executed the call.
    pub place: Place,
}

/// The place of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Before the request is sent to the runtime.
    #[default]
    Before,
    /// After the runtime has executed the call, on its response.
    After,
}

impl When {
    /// Keys of the criteria.
    pub const KEYS: [&str; 8] = ["from", "to", "after", "first", "every", "percentage", "seed", "at"];

    /// Sets a criterion. The error is a predicate about the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let count = |least: u64| {
            let number = value.parse().ok().filter(|number| *number >= least);
            number.ok_or_else(|| format!("must be a whole number from {least}"))
        };
        let moment = || duration::parse(value).ok_or_else(|| "must be a duration, such as 30s".to_owned());
        match key {
            "from" => self.from = Some(moment()?),
            "to" => self.to = Some(moment()?),
            "after" => self.after = count(0)?,
            "first" => self.first = Some(count(1)?),
            "every" => self.every = Some(count(1)?),
            "seed" => self.seed = Some(count(0)?),
            "percentage" => {
                let number = value.trim_end_matches('%').parse::<f64>().ok();
                let number = number.filter(|number| *number > 0.0 && *number <= 100.0);
                self.percentage = Some(number.ok_or("must be a number above 0 and up to 100")?);
            }
            "at" => {
                self.place = match value {
                    "before" => Place::Before,
                    "after" => Place::After,
                    _ => return Err("must be before or after: the execution by the runtime".to_owned()),
                }
            }
            _ => return Err(format!("must be one of {}", Self::KEYS.join(", "))),
        }
        if self.from.zip(self.to).is_some_and(|(from, to)| from >= to) {
            return Err("must leave a time between from and to".to_owned());
        }
        Ok(())
    }

    /// Returns whether calls count at this time after the activation of the rule.
    pub(in crate::policy) fn is_open(&self, since: Duration) -> bool {
        self.from.is_none_or(|from| since >= from) && self.to.is_none_or(|to| since < to)
    }

    /// Returns whether a call is affected, by its number from 0. `random` is a number from 0 to 1
    /// that belongs to this call.
    pub(in crate::policy) fn affects(&self, number: u64, random: f64) -> bool {
        let Some(number) = number.checked_sub(self.after) else { return false };
        self.first.is_none_or(|first| number < first)
            && self.every.is_none_or(|every| (number + 1).is_multiple_of(every))
            && self.percentage.is_none_or(|percentage| random * 100.0 < percentage)
    }
}

impl fmt::Display for When {
    /// Writes the criteria in the one-line form, each with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, after, first, every, percentage, seed, place } = self;
        let number = |number: &Option<u64>| number.map(|number| number.to_string());
        let pairs = [
            ("from", from.map(format_duration)),
            ("to", to.map(format_duration)),
            ("after", Some(*after).filter(|after| *after > 0).map(|after| after.to_string())),
            ("first", number(first)),
            ("every", number(every)),
            ("percentage", percentage.map(|percentage| percentage.to_string())),
            ("seed", number(seed)),
            ("at", (*place == Place::After).then(|| "after".to_owned())),
        ];
        let pairs = pairs.into_iter().filter_map(|(key, text)| Some((key, text?)));
        pairs.into_iter().try_for_each(|(key, text)| write!(f, " {key}={text}"))
    }
}
