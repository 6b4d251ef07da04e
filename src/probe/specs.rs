//! What is known to be executed in a container, from all sources.

use std::path::Path;

use serde_json::Value;

use super::annotation;
use super::files::{self, FileError};
use super::manifest::{self, Manifest, hook};
use super::node::Node;
use super::spec::{ExecUse, Source, Use, Written};
use crate::world::{Container, Sandbox};

/// Where kubectl leaves what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where the kubelet leaves the hook for others who stop the container.
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";

/// The specs that files tell of. What annotations tell is read when a container is asked for.
#[derive(Clone, Debug, Default)]
pub struct Specs {
    manifests: Vec<Manifest>,
}

impl Specs {
    /// Reads files and folders of manifests: YAML or JSON, any number of documents, of which those that make pods are taken. Says
    /// everything that is wrong with them.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Vec<FileError>> {
        let mut errors = Vec::new();
        let manifests = paths.iter().flat_map(|path| files::read(path.as_ref(), &mut errors)).collect();
        if errors.is_empty() { Ok(Self { manifests }) } else { Err(errors) }
    }

    /// What is executed in a container, as far as it is known. For each use the first source that tells of it counts. What an annotation
    /// says that cannot be read is as if it said nothing; [`annotation_problems`](super::annotation_problems) tells of it.
    #[must_use]
    pub fn of(&self, sandbox: &Sandbox, container: &Container) -> Vec<ExecUse> {
        let Some(name) = container.name.name.as_deref() else { return Vec::new() };
        let from_files = self.manifests.iter().find(|manifest| manifest.owner.has(sandbox));
        let from_files = from_files.and_then(|manifest| manifest.containers.get(name)).cloned();
        let all = [
            annotation::read(sandbox, name),
            from_files.unwrap_or_default(),
            from_last_applied(sandbox, name),
            from_kubelet(container).into_iter().collect(),
        ];
        let mut written: Vec<Written> = Vec::new();
        for found in all.into_iter().flatten() {
            if !written.iter().any(|(known, _)| *known == found.0) {
                written.push(found);
            }
        }
        written.into_iter().filter_map(|(_, exec)| exec).collect()
    }
}

fn from_last_applied(sandbox: &Sandbox, container: &str) -> Vec<Written> {
    let read = || {
        let value: Value = serde_json::from_str(sandbox.annotations.get(LAST_APPLIED)?).ok()?;
        let mut manifests = manifest::read(&value, Source::LastApplied, &mut Vec::new());
        manifests.first_mut()?.containers.remove(container)
    };
    read().unwrap_or_default()
}

fn from_kubelet(container: &Container) -> Option<Written> {
    let value: Value = serde_json::from_str(container.annotations.get(PRE_STOP)?).ok()?;
    let hook = hook(Use::PreStop, &Node::root("", &value), Source::Kubelet, &mut Vec::new());
    Some((Use::PreStop, hook))
}

#[cfg(test)]
mod tests;
