//! Marks of calls that the policy affected.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Marks of a call that the policy affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallMarks {
    /// The faults that were injected.
    pub faults: Vec<FaultMark>,
    /// The names of the other policies that affected the call: `limit`, `coalesce` or `pause`.
    pub policies: Vec<Arc<str>>,
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
        Self { faults: self.faults.iter().map(redacted).collect(), policies: self.policies.clone() }
    }

    /// Returns whether the call was not affected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.policies.is_empty()
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
