//! The current ConfigMaps, Secrets and RuntimeClasses to which pods may refer.

use std::sync::{Arc, Mutex, PoisonError};

use crate::manifest::ConfigObjects;

/// The current objects. A pod worker looks objects up when it starts a container or sets up a
/// volume.
#[derive(Debug, Default)]
pub(super) struct ObjectStore(Mutex<Arc<ConfigObjects>>);

impl ObjectStore {
    /// Returns the current objects.
    pub(super) fn get(&self) -> Arc<ConfigObjects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the objects. Returns the earlier ones.
    pub(super) fn replace(&self, objects: Arc<ConfigObjects>) -> Arc<ConfigObjects> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), objects)
    }
}
