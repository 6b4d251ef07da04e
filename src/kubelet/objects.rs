//! The ConfigMaps, Secrets and RuntimeClasses that pods may refer to, as they are now.

use std::sync::{Arc, Mutex, PoisonError};

use crate::manifest::ConfigObjects;

/// The current objects. Pods look them up when a container starts or a volume is set up.
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
