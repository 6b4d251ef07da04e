//! The probes of rules and manifests, as `probeshim check` shows them.

use std::sync::Arc;

use super::resolver::SpecResolver;
use super::rule::Rule;
use crate::manifest::{Manifest, Probe, ProbeType};

/// A probe with its owner.
#[derive(Clone, Debug)]
pub struct DescribedProbe {
    /// Rule, pod or workload that specifies the probe.
    pub owner: String,
    /// Name of the container; a pattern if a rule specifies the probe.
    pub container: String,
    /// Type of the probe.
    pub probe_type: ProbeType,
    /// Specification of the probe; `None` if a rule removes it.
    pub probe: Option<Arc<Probe>>,
}

impl SpecResolver {
    /// Returns all probes of rules and manifests, except those that a rule always overrides.
    #[must_use]
    pub fn describe_all(&self) -> Vec<DescribedProbe> {
        let rules = self.rules.iter().flat_map(|rule| {
            let (owner, container) = (format!("rule: {}", rule.selector.pods()), rule.selector.container());
            rule.probes.iter().map(move |(probe_type, probe)| DescribedProbe {
                owner: owner.clone(),
                container: container.clone(),
                probe_type: *probe_type,
                probe: probe.clone(),
            })
        });
        let manifests = self.manifests.iter().flat_map(|Manifest { owner, pod }| {
            pod.containers.iter().flat_map(move |container| {
                let has_rule = |probe_type| {
                    let of_type =
                        |rule: &&Rule| rule.probes.iter().any(|(rule_type, _)| *rule_type == probe_type);
                    let mut rules = self.rules.iter().filter(of_type);
                    rules.any(|rule| rule.selector.matches_all(&owner.namespace, &container.name))
                };
                container.all_probes().filter(move |(probe_type, _)| !has_rule(*probe_type)).map(
                    move |(probe_type, probe)| DescribedProbe {
                        owner: owner.to_string(),
                        container: container.name.clone(),
                        probe_type,
                        probe: Some(probe.clone()),
                    },
                )
            })
        });
        rules.chain(manifests).collect()
    }
}
