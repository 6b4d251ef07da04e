//! The state of the node, with which the rules find the objects of calls.

use std::sync::Arc;

use tokio::sync::watch;

use super::known_execs::KnownExecs;
use super::target::{RequestNames, Target};
use crate::events::EventRecorder;
use crate::inventory::Inventory;
use crate::manifest::{ExecPurpose, KnownExec, ProbeType};
use crate::probe::SpecResolver;
use crate::tap::InternalCalls;

/// The state of the node, as the rules see it.
#[derive(Debug)]
pub struct NodeView {
    /// Sandboxes and containers.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// Probes and hooks.
    pub specs: watch::Receiver<SpecResolver>,
    /// Handle by which the processing of earlier calls is awaited.
    pub calls: InternalCalls,
    /// Receives the activation and the end of rules.
    pub events: Arc<EventRecorder>,
    /// Probes and hooks by container.
    pub known_execs: KnownExecs,
}

impl NodeView {
    /// Finds the objects that a request names. Objects that clients have just created are known
    /// once the calls that created them are processed, which is awaited.
    pub(super) async fn find(&self, names: RequestNames) -> Target {
        let mut target = Target::new(names);
        let is_known = target.find(&self.inventory.borrow());
        if !is_known && self.calls.flush().await {
            target.find(&self.inventory.borrow());
        }
        target
    }

    /// Finds the objects that a request names, as far as they are known now.
    pub(super) fn find_known(&self, names: RequestNames) -> Target {
        let mut target = Target::new(names);
        target.find(&self.inventory.borrow());
        target
    }

    /// Returns the types of the probes whose command and timeout an `ExecSync` has; `None` if it
    /// belongs to no known probe. All names count, because an operator requested the pause.
    pub(super) fn probes(&self, target: &Target) -> Option<Vec<ProbeType>> {
        let purposes = self.purposes(target);
        let types = ProbeType::ALL.into_iter().filter(|probe| purposes.contains(&(*probe).into()));
        let types: Vec<ProbeType> = types.collect();
        (!types.is_empty()).then_some(types)
    }

    /// Returns whether an `ExecSync` has the command and timeout of a probe of its container, from
    /// a source that does more than name calls: a policy for all probes changes how they are
    /// executed, which a source that was found must not decide.
    pub(super) fn is_configured_probe(&self, target: &Target) -> bool {
        let Some((sandbox, container)) = target.objects() else { return false };
        let known = self.known_execs.configured(&self.specs, sandbox, container);
        matching(&known, target).any(|known| known.purpose.is_probe())
    }

    /// Returns whether an `ExecSync` has the command and timeout of a probe of its container.
    pub(super) fn is_probe(&self, target: &Target, purpose: ExecPurpose) -> bool {
        self.purposes(target).contains(&purpose)
    }

    /// Returns the purposes of the known probes and hooks whose command and timeout an `ExecSync`
    /// has.
    fn purposes(&self, target: &Target) -> Vec<ExecPurpose> {
        let Some((sandbox, container)) = target.objects() else { return Vec::new() };
        let known = self.known_execs.get(&self.specs, sandbox, container);
        matching(&known, target).map(|known| known.purpose).collect()
    }
}

/// Returns the probes and hooks whose command and timeout an `ExecSync` has.
fn matching<'a>(known: &'a [KnownExec], target: &Target) -> impl Iterator<Item = &'a KnownExec> {
    let exec = target.exec();
    known.iter().filter(move |known| {
        exec.is_some_and(|(command, timeout)| known.command == command && known.timeout_seconds == timeout)
    })
}
