//! Marks of calls that the policy affected.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Marks of a call that the policy affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallMarks {
    /// The faults that were injected.
    pub faults: Vec<FaultMark>,
    /// The names of the other policies that affected the call: `limit`, `coalesce` or `pause`.
    pub policies: Vec<Arc<str>>,
    /// Result of the attempt to execute the command without the runtime, if there was one.
    pub direct: Option<DirectMark>,
}

/// Name of the policy that executes commands without the runtime.
pub const DIRECT: &str = "direct";

/// Result of an attempt to execute a command without the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectMark {
    /// The command was executed. Its times are unknown while it runs, after its client gave up, and
    /// if the exec helper ended.
    Executed(Option<DirectTimes>),
    /// Nothing was executed, and the call was forwarded, for a reason.
    Forwarded(Arc<str>),
}

/// Times of a process that executed a command without the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectTimes {
    /// Request for the command.
    pub requested: SystemTime,
    /// Creation of the process.
    pub created: SystemTime,
    /// Exec of the command.
    pub executed: SystemTime,
    /// Exit of the process.
    pub exited: SystemTime,
}

/// Marks of a call that the policy decides on. They can be read while the policy adds more.
#[derive(Debug, Default)]
pub struct MarkSet(Mutex<CallMarks>);

/// A fault that was injected into a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FaultMark {
    /// Name of the rule.
    pub name: Arc<str>,
    /// The action of the rule.
    pub action: Arc<str>,
}

impl CallMarks {
    /// Returns the marks with only the kinds of actions: their arguments may be output that a rule
    /// gives a command.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let redacted = |mark: &FaultMark| FaultMark {
            name: mark.name.clone(),
            action: mark.action.split('(').next().unwrap_or_default().into(),
        };
        Self { faults: self.faults.iter().map(redacted).collect(), ..self.clone() }
    }

    /// Returns the names of the policies, other than faults, that affected the call.
    pub fn policy_names(&self) -> impl Iterator<Item = &str> {
        let direct = matches!(self.direct, Some(DirectMark::Executed(_))).then_some(DIRECT);
        self.policies.iter().map(|policy| &**policy).chain(direct)
    }

    /// Returns the reason for which the runtime executed the command, if it was to be executed
    /// without the runtime.
    #[must_use]
    pub fn forwarded_because(&self) -> Option<&str> {
        match &self.direct {
            Some(DirectMark::Forwarded(reason)) => Some(reason),
            Some(DirectMark::Executed(_)) | None => None,
        }
    }

    /// Returns whether a policy affected the call. A call that was forwarded because it could not
    /// be executed without the runtime is not affected.
    #[must_use]
    pub fn is_affected(&self) -> bool {
        !self.faults.is_empty() || self.policy_names().next().is_some()
    }

    /// Returns whether there are no marks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { faults, policies, direct } = self;
        faults.is_empty() && policies.is_empty() && direct.is_none()
    }
}

impl MarkSet {
    /// Adds a fault.
    pub fn add_fault(&self, mark: FaultMark) {
        self.lock().faults.push(mark);
    }

    /// Adds another policy, unless it is there.
    pub fn add_policy(&self, name: &str) {
        let mut marks = self.lock();
        if marks.policies.iter().all(|policy| **policy != *name) {
            marks.policies.push(name.into());
        }
    }

    /// Sets the result of the attempt to execute the command without the runtime.
    pub fn set_direct(&self, mark: DirectMark) {
        self.lock().direct = Some(mark);
    }

    /// Returns the marks up to now.
    #[must_use]
    pub fn get(&self) -> CallMarks {
        self.lock().clone()
    }

    /// Takes the marks out.
    #[must_use]
    pub fn take(&self) -> CallMarks {
        mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, CallMarks> {
        // Marks stay valid whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
