//! Pods of manifests that a client has deleted. They stay deleted until their manifests change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::manifest::pod::Pod;

/// Deleted pods, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct DeletedPods(Mutex<BTreeMap<String, Arc<Pod>>>);

impl DeletedPods {
    /// Adds a pod.
    pub(super) fn add(&self, pod: Arc<Pod>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.full_name(), pod);
    }

    /// Returns whether a pod is deleted.
    pub(super) fn contains(&self, pod: &Arc<Pod>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pod.full_name()) == Some(pod)
    }

    /// Returns whether there are deleted pods.
    pub(super) fn is_any(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the desired pods without the deleted ones. A pod with another manifest than the
    /// deleted one is no longer deleted.
    pub(super) fn filter(&self, pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let mut deleted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.retain(|_, known| pods.contains(known));
        pods.into_iter().filter(|pod| deleted.get(&pod.full_name()) != Some(pod)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::reader::tests::pod;

    #[test]
    fn a_deleted_pod_is_desired_again_once_its_manifest_has_changed() {
        let [old, new] = ["a", "b"]
            .map(|image| Arc::new(pod(&format!("{{containers: [{{name: main, image: {image}}}]}}"))));
        let deleted = DeletedPods::default();
        deleted.add(old.clone());
        assert_eq!(deleted.filter(vec![old.clone()]), []);
        assert!(deleted.contains(&old) && !deleted.contains(&new) && deleted.is_any());
        assert_eq!(deleted.filter(vec![new.clone()]), [new]);
        assert!(!deleted.is_any());
        assert_eq!(deleted.filter(vec![old.clone()]), [old]);
    }
}
