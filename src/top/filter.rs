//! The filter of the table: `web`, `namespace=shop probe=liveness`, `failed`.

use crate::overview::ProbeRow;

/// Keys of conditions: the names of the flags of `probeshim calls`.
pub(super) const FILTER_KEYS: [&str; 5] = ["namespace", "pod", "container", "probe", "peer"];

/// Conditions, all of which a row must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowFilter {
    conditions: Vec<Condition>,
    /// A key that is none of [`FILTER_KEYS`].
    pub(super) unknown: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// The last result, or an attempt in the period, failed.
    Failed,
    /// The text of a key has this part.
    Has(&'static str, String),
    /// Any text of the row has this part.
    Text(String),
}

impl RowFilter {
    /// Reads a filter while it is written: an incomplete condition selects every row.
    pub(super) fn new(text: &str) -> Self {
        let mut filter = Self::default();
        for part in text.split_whitespace() {
            let part = part.to_lowercase();
            let condition = match part.split_once('=') {
                None if part == "failed" => Condition::Failed,
                None => Condition::Text(part),
                Some((key, value)) => {
                    let Some(key) = FILTER_KEYS.into_iter().find(|known| *known == key) else {
                        filter.unknown = Some(key.to_owned());
                        continue;
                    };
                    Condition::Has(key, value.to_owned())
                }
            };
            filter.conditions.push(condition);
        }
        filter
    }

    /// Returns whether a row meets all conditions.
    pub(super) fn matches(&self, row: &ProbeRow) -> bool {
        let key = &row.key;
        let has = |text: &str, part: &str| text.to_lowercase().contains(part);
        self.conditions.iter().all(|condition| match condition {
            Condition::Failed => row.result.is_bad || row.failed > 0,
            Condition::Has("namespace", part) => has(&key.namespace, part),
            Condition::Has("pod", part) => has(&key.pod_name(), part),
            Condition::Has("container", part) => has(&key.container, part),
            Condition::Has("probe", part) => {
                has(&key.probe, part) || key.types().into_iter().any(|probe| has(probe, part))
            }
            Condition::Has(_, part) => has(&key.prober, part),
            Condition::Text(part) => {
                let texts = [&key.pod_name(), &key.container, &key.probe, &key.prober, &row.handler];
                texts.into_iter().any(|text| has(text, part)) || has(&row.result.text, part)
            }
        })
    }
}
