//! Number of containers whose exec calls have no name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::execsync::{CallRecord, ProbeMatch};

/// Numbers of running containers in which a kubelet, or a client at regular intervals, executes
/// commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCoverage {
    /// Containers in which every such command belongs to a known probe or hook.
    pub named: usize,
    /// Containers with a command that belongs to no known probe or hook.
    pub unnamed: usize,
}

impl NameCoverage {
    /// Counts the containers of calls. The last call with a command decides, because a source may
    /// have become known later. `is_running` returns whether the container with an id runs.
    #[must_use]
    pub fn from_records<'a>(
        records: impl Iterator<Item = &'a Arc<CallRecord>>,
        is_running: impl Fn(&str) -> bool,
    ) -> Self {
        let mut last: BTreeMap<(&str, &[String], i64), bool> = BTreeMap::new();
        for record in records {
            let (Some(exec), Some(analysis)) = (&record.call.exec, &record.analysis) else { continue };
            let id = record.call.container.as_ref().and_then(|container| container.id.as_deref());
            let Some(id) = id.filter(|id| is_running(id)) else { continue };
            let is_kubelet = record.call.peer.as_ref().is_some_and(|peer| peer.is_kubelet());
            let is_named = match analysis.identity {
                ProbeMatch::Matched { .. } => true,
                ProbeMatch::Inferred { .. } => false,
                // A person executes commands too.
                ProbeMatch::Unknown if is_kubelet => false,
                ProbeMatch::Unknown => continue,
            };
            last.insert((id, &exec.command, exec.timeout_seconds), is_named);
        }
        let ids = |is_named: bool| -> BTreeSet<&str> {
            last.iter().filter(|(_, named)| **named == is_named).map(|((id, ..), _)| *id).collect()
        };
        let (named, unnamed) = (ids(true), ids(false));
        Self { named: named.difference(&unnamed).count(), unnamed: unnamed.len() }
    }
}
