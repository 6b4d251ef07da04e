//! Names the unknown fields of documents that an API server has validated, each once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tracing::info;

use crate::terminal::shortened;

/// Maximum number of fields that are named. A server that is much newer may have many.
const MAX_NAMED: usize = 64;

/// Maximum width of a named field, in columns. A pod's author may choose its name.
const MAX_FIELD_WIDTH: usize = 256;

/// Fields that were named in the log.
static NAMED: Mutex<NamedFields> = Mutex::new(NamedFields(BTreeSet::new()));

/// Paths of fields, without the places of items.
#[derive(Debug)]
struct NamedFields(BTreeSet<String>);

/// Logs an unknown field the first time that it is ignored.
pub(super) fn log_once(path: &str) {
    if let Some(field) = NAMED.lock().unwrap_or_else(PoisonError::into_inner).first(path) {
        info!("the field {field:?} is unknown to this version, and is ignored");
    }
}

impl NamedFields {
    /// Returns the field of a path if it is new, and there are not too many.
    fn first(&mut self, path: &str) -> Option<String> {
        let outside = |part: &'_ str| part.split_once(']').map_or(part, |(_, rest)| rest).to_owned();
        let field: String = path.split('[').map(outside).collect();
        let field = shortened(&field, MAX_FIELD_WIDTH).into_owned();
        (self.0.len() < MAX_NAMED && self.0.insert(field.clone())).then_some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_field_is_named_once_for_all_containers() {
        let mut named = NamedFields(BTreeSet::new());
        let field = |place: usize| format!("spec.containers[{place}].livenessProbe.future");
        assert_eq!(named.first(&field(0)).as_deref(), Some("spec.containers.livenessProbe.future"));
        assert_eq!(named.first(&field(12)), None);
        assert_eq!(named.first("spec.future").as_deref(), Some("spec.future"));
        for number in 0..MAX_NAMED {
            named.first(&format!("spec.future{number}"));
        }
        assert_eq!(named.0.len(), MAX_NAMED);
    }
}
