//! Marks of calls that the policy affected.

use std::sync::Arc;

/// Marks of a call that the policy affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallMarks {
    /// The faults that were injected.
    pub faults: Vec<FaultMark>,
    /// The names of the other policies that affected the call: `limit`, `coalesce` or `pause`.
    pub policies: Vec<Arc<str>>,
}

/// A fault that was injected into a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FaultMark {
    /// Name of the rule.
    pub name: Arc<str>,
    /// The action of the rule.
    pub action: Arc<str>,
}

impl CallMarks {
    /// Returns whether the call was not affected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.policies.is_empty()
    }
}
