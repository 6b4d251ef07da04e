//! Redaction of a period, for a report that is handed to others.

use std::collections::HashMap;
use std::sync::Arc;

use crate::execsync::CallRecord;
use crate::history::timeline::{Period, ProbeHistory, ProbeSeries, redacted_message};

/// Returns the period as `--redact-commands` would have recorded it: with only the program of each
/// command, without output and status messages, without what follows the first colon of an event's
/// message, and without query strings of URLs. Commands of no known probe that differ only in their
/// arguments have one history.
#[must_use]
pub fn redacted(mut period: Period) -> Period {
    let mut probes: Vec<ProbeHistory> = Vec::with_capacity(period.probes.len());
    let mut index: HashMap<ProbeSeries, usize> = HashMap::new();
    for probe in period.probes {
        let series = probe.series.redacted();
        let key = ProbeSeries { probe: String::new(), period: None, ..series.clone() };
        let known = series.learned().map(|_| *index.entry(key).or_insert(probes.len()));
        match known.and_then(|place| probes.get_mut(place)) {
            Some(known) => known.merge(series, probe.minutes),
            None => probes.push(ProbeHistory { series, minutes: probe.minutes }),
        }
    }
    period.probes = probes;
    for record in &mut period.calls {
        *record = Arc::new(CallRecord::clone(record).redacted());
    }
    for event in &mut period.events {
        event.message = redacted_message(&event.message);
    }
    period
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::history::timeline::{Minute, PeriodBuilder, Prober};

    #[test]
    fn commands_that_differ_only_in_hidden_arguments_have_one_history() {
        let series = |probe: &str, script: &str| ProbeSeries {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            probe: probe.to_owned(),
            prober: Prober::Kubelet,
            handler: format!("sh -c {script}"),
            command: ["sh", "-c", script].map(str::to_owned).into(),
            timeout: None,
            period: (probe == "probe").then_some(Duration::from_secs(5)),
            failure_threshold: None,
        };
        let from = SystemTime::UNIX_EPOCH;
        let mut builder = PeriodBuilder::new(from, from + Duration::from_secs(3600), 1);
        for (probe, script) in [("unknown", "a"), ("probe", "b"), ("liveness", "c"), ("liveness", "d")] {
            builder.add_minute(series(probe, script), &Minute { successes: 1, ..Minute::default() });
        }
        let mut shown: Vec<(String, String, u32)> = redacted(builder.build())
            .probes
            .iter()
            .map(|probe| (probe.series.probe.clone(), probe.series.handler.clone(), probe.total().successes))
            .collect();
        shown.sort();
        let row = |probe: &str, attempts| (probe.to_owned(), "sh".to_owned(), attempts);
        assert_eq!(shown, [row("liveness", 1), row("liveness", 1), row("probe", 2)]);
    }
}
