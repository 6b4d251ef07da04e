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
    /// `is_known` returns whether a command with a timeout in seconds now belongs to a known probe
    /// or hook of a container: a startup probe may have had its last call before its source was
    /// read.
    #[must_use]
    pub fn from_records<'a>(
        records: impl Iterator<Item = &'a Arc<CallRecord>>,
        is_running: impl Fn(&str) -> bool,
        is_known: impl Fn(&str, &[String], i64) -> bool,
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
        for ((id, command, timeout), is_named) in &mut last {
            *is_named = *is_named || is_known(id, command, *timeout);
        }
        let ids = |is_named: bool| -> BTreeSet<&str> {
            last.iter().filter(|(_, named)| **named == is_named).map(|((id, ..), _)| *id).collect()
        };
        let (named, unnamed) = (ids(true), ids(false));
        Self { named: named.difference(&unnamed).count(), unnamed: unnamed.len() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::execsync::ExecAnalysis;
    use crate::object_ref::ContainerRef;
    use crate::relay::Peer;
    use crate::tap::{Call, ExecCall};

    #[test]
    fn a_command_that_ended_before_its_source_was_read_counts_as_named() {
        let path = "/runtime.v1.RuntimeService/ExecSync";
        let mut call = Call::sample(1, path, SystemTime::UNIX_EPOCH, Duration::from_millis(1));
        call.peer = Some(Arc::new(Peer { uid: 0, pid: Some(7), program: Some("kubelet".to_owned()) }));
        let container = ContainerRef { id: Some("c".to_owned()), ..ContainerRef::default() };
        call.container = Some(Arc::new(container));
        let exec = ExecCall { command: vec!["up".to_owned()], timeout_seconds: 2, ..ExecCall::default() };
        call.exec = Some(Box::new(exec));
        let mut record = CallRecord::unanalyzed(call, None, None);
        record.analysis = Some(Arc::new(ExecAnalysis::unknown()));
        let record = Arc::new(record);
        let counted = |known: (&str, &str, i64)| {
            let is_known = |id: &str, command: &[String], timeout| (id, &*command[0], timeout) == known;
            NameCoverage::from_records([&record].into_iter(), |id| id == "c", is_known)
        };
        assert_eq!(counted(("c", "up", 2)), NameCoverage { named: 1, unnamed: 0 });
        assert_eq!(counted(("c", "up", 3)), NameCoverage { named: 0, unnamed: 1 });
    }
}
