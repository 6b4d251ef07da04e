//! Approximate memory of call records.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cri::MethodName;
use crate::execsync::{CallRecord, Evidence, ExecAnalysis, Phases};
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallMarks, Peer};
use crate::tap::{Call, ExecCall, KillRecord, ProbeFailure};

/// Approximate overhead of an allocation, in bytes.
const ALLOCATION: usize = 16;

/// Memory of a set of records. Values that records share count once.
#[derive(Debug, Default)]
pub(super) struct MemoryAccounting {
    bytes: usize,
    /// Number of records that share the value at an address.
    shared: HashMap<usize, u32>,
}

impl MemoryAccounting {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the memory of a record.
    pub(super) fn add(&mut self, record: &CallRecord) {
        self.bytes += record_size(record);
        for (address, weight) in shared(record) {
            let holders = self.shared.entry(address).or_default();
            *holders += 1;
            if *holders == 1 {
                self.bytes += weight;
            }
        }
    }

    /// Subtracts the memory of a record.
    pub(super) fn remove(&mut self, record: &CallRecord) {
        self.bytes -= record_size(record);
        for (address, weight) in shared(record) {
            let Some(holders) = self.shared.get_mut(&address) else { continue };
            *holders -= 1;
            if *holders == 0 {
                self.shared.remove(&address);
                self.bytes -= weight;
            }
        }
    }
}

/// Returns the memory of a record, without shared values.
fn record_size(record: &CallRecord) -> usize {
    let path = match &record.call.method {
        MethodName::Known(_) => 0,
        MethodName::Unknown(path) => block(path),
    };
    let exec = record.call.exec.as_ref().map_or(0, |exec| {
        let text: usize = exec.command.iter().map(|word| size_of::<String>() + block(word)).sum();
        size_of::<ExecCall>() + 2 * ALLOCATION + text + exec.output.as_deref().map_or(0, block)
    });
    let kill = record.call.kill.as_ref().map_or(0, |kill| {
        let failures: usize =
            kill.failures.iter().map(|failure| size_of::<ProbeFailure>() + block(&failure.message)).sum();
        size_of::<KillRecord>() + ALLOCATION + block(&kill.probe) + block(&kill.message) + failures
    });
    let insight = record.analysis.as_ref().map_or(0, |insight| {
        let evidence = insight.evidence.as_ref().map_or(0, |_| size_of::<Evidence>() + ALLOCATION);
        let candidates = match &insight.phases {
            Phases::Ambiguous { candidates, .. } => {
                candidates.iter().map(|exec| size_of::<Box<str>>() + block(exec)).sum()
            }
            _ => 0,
        };
        size_of::<ExecAnalysis>() + ALLOCATION + evidence + candidates
    });
    let message = record.call.message.as_deref().map_or(0, block);
    let image = record.call.image.as_deref().map_or(0, block);
    let marks = record.call.marks.as_ref().map_or(0, |marks| {
        let faults: usize = marks.faults.iter().map(|fault| block(&fault.name) + block(&fault.action)).sum();
        let policies: usize = marks.policies.iter().map(|policy| block(policy)).sum();
        let reason = marks.forwarded_because().map_or(0, |reason| reason.len() + ALLOCATION);
        size_of::<CallMarks>() + 3 * ALLOCATION + faults + policies + reason
    });
    let fixed = size_of::<CallRecord>() + size_of::<Call>() + 3 * ALLOCATION;
    fixed + path + message + image + exec + kill + insight + marks
}

/// Returns the addresses and sizes of the values that a record may share with other records.
fn shared(record: &CallRecord) -> impl Iterator<Item = (usize, usize)> {
    let call = &record.call;
    let text = |text: &Option<String>| text.as_deref().map_or(0, block);
    let pod = call.pod.as_ref().map(|pod| {
        let texts = [&pod.id, &pod.namespace, &pod.name, &pod.uid].map(text);
        (Arc::as_ptr(pod).addr(), size_of::<PodRef>() + ALLOCATION + texts.iter().sum::<usize>())
    });
    let container = call.container.as_ref().map(|container| {
        let texts = text(&container.id) + text(&container.name);
        (Arc::as_ptr(container).addr(), size_of::<ContainerRef>() + ALLOCATION + texts)
    });
    let peer = call
        .peer
        .as_ref()
        .map(|peer| (Arc::as_ptr(peer).addr(), size_of::<Peer>() + ALLOCATION + text(&peer.program)));
    [pod, container, peer].into_iter().flatten()
}

/// Returns the memory of a text on the heap.
fn block(text: &str) -> usize {
    text.len() + ALLOCATION
}
