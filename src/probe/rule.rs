//! Rules of the configuration, which specify the probes of the containers that they match.

use std::fmt;
use std::sync::Arc;

use wildmatch::WildMatch;

use crate::inventory::{Container, Sandbox};
use crate::manifest::{Probe, ProbeType};

/// Probes for all containers that match a selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Selector of the containers.
    pub selector: Selector,
    /// Probes of the containers; `None` removes the probe of this type.
    pub probes: Vec<(ProbeType, Option<Arc<Probe>>)>,
}

/// Selector of containers. A field that is absent matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    /// Namespace of the pod.
    pub namespace: Option<WildMatch>,
    /// Name of the pod.
    pub pod: Option<WildMatch>,
    /// Name of the container.
    pub container: Option<WildMatch>,
    /// Image of the container, as specified by the client that created it.
    pub image: Option<WildMatch>,
    /// Labels of the pod, and their values.
    pub labels: Vec<(String, WildMatch)>,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, pod, container, image, labels: _ } = self;
        let fields = [("namespace", namespace), ("pod", pod), ("container", container), ("image", image)];
        let fields = fields.iter().filter_map(|(name, glob)| Some(format!("{name} {}", glob.as_ref()?)));
        let labels = self.labels.iter().map(|(key, glob)| format!("label {key}={glob}"));
        let all: Vec<String> = fields.chain(labels).collect();
        f.write_str(if all.is_empty() { "every pod" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

impl Selector {
    /// Returns the selector as text, without the container's name.
    pub(super) fn pods(&self) -> String {
        Self { container: None, ..self.clone() }.to_string()
    }

    /// Returns the pattern of the container's name; `*` without one.
    pub(super) fn container(&self) -> String {
        self.container.as_ref().map_or_else(|| "*".to_owned(), ToString::to_string)
    }

    /// Returns whether the selector matches all containers of this name in all pods of a namespace.
    pub(super) fn matches_all(&self, namespace: &str, container: &str) -> bool {
        let Self { namespace: of_namespace, pod, container: of_name, image, labels } = self;
        let matches = |glob: &Option<WildMatch>, text| glob.as_ref().is_none_or(|glob| glob.matches(text));
        matches(of_namespace, namespace)
            && matches(of_name, container)
            && pod.is_none()
            && image.is_none()
            && labels.is_empty()
    }

    /// Returns whether the selector matches every container.
    #[must_use]
    pub fn selects_everything(&self) -> bool {
        let Self { namespace, pod, container, image, labels } = self;
        let is_any = |glob: &WildMatch| glob.to_string().chars().all(|char| char == '*');
        [namespace, pod, container, image].into_iter().all(|glob| glob.as_ref().is_none_or(is_any))
            && labels.is_empty()
    }

    /// Returns whether the selector matches a container of a pod.
    pub(crate) fn matches(&self, sandbox: &Sandbox, container: &str, image: Option<&str>) -> bool {
        let pod = &sandbox.pod;
        let names = [pod.namespace.as_deref(), pod.name.as_deref(), Some(container), image];
        self.matches_names(names, |key| sandbox.labels.get(key))
    }

    /// Returns whether the selector matches a container of the inventory.
    pub(crate) fn matches_container(&self, sandbox: &Sandbox, container: &Container) -> bool {
        let (pod, name) = (&sandbox.pod, container.container_ref.name.as_deref());
        let image = Some(container.image.as_str()).filter(|image| !image.is_empty());
        let names = [pod.namespace.as_deref(), pod.name.as_deref(), name, image];
        self.matches_names(names, |key| sandbox.labels.get(key))
    }

    /// Returns whether the selector matches a namespace, a pod, a container, an image and the
    /// labels of a pod. A name that is unknown matches no pattern.
    pub(crate) fn matches_names<'a>(
        &self,
        names: [Option<&str>; 4],
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        let patterns = [&self.namespace, &self.pod, &self.container, &self.image];
        let is_match = |(pattern, text): (&Option<WildMatch>, Option<&str>)| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| pattern.matches(text)))
        };
        patterns.into_iter().zip(names).all(is_match)
            && self.labels.iter().all(|(key, pattern)| label(key).is_some_and(|value| pattern.matches(value)))
    }
}
