//! Resolves the probes and hooks of a pod from all sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::annotation;
use super::expand::expand;
use super::kubelet_annotations;
use super::names_only::NamesOnly;
use super::rule::Rule;
use crate::inventory::{Container, Sandbox};
use crate::manifest::Hook;
use crate::manifest::Manifests;
use crate::manifest::Source;
use crate::manifest::{ContainerKind, ContainerSpec, Env, PodSpec};
use crate::manifest::{ExecPurpose, KnownExec};
use crate::manifest::{Files, Manifest, ReadOptions, read_manifests};
use crate::manifest::{Handler, Probe, ProbeType};
use crate::manifest::{Workload, WorkloadKind};

/// Annotation in which kubectl stores the applied manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Specifications from rules, manifests and the kubelet. Annotations are read when a pod is
/// resolved. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct SpecResolver {
    pub(super) rules: Arc<[Rule]>,
    pub(super) manifests: Arc<Manifests>,
    pub(super) kubelet_manifests: Arc<Manifests>,
    pub(super) api_server_manifests: Arc<Manifests>,
    /// Specifications that only name calls.
    pub(super) names: NamesOnly,
}

impl SpecResolver {
    /// Reads files and directories of manifests in YAML or JSON. Documents that create no pods are
    /// skipped. Returns all errors together.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Vec<String>> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        let files = Files::new(&paths, ReadOptions::default());
        let problems = files.problems();
        if problems.is_empty() { Ok(Self::from_files(&files)) } else { Err(problems) }
    }

    /// Replaces the rules, which take precedence over all other sources.
    #[must_use]
    pub fn and_rules(self, rules: Vec<Rule>) -> Self {
        Self { rules: rules.into(), ..self }
    }

    /// Creates a resolver with the manifests of files.
    #[must_use]
    pub fn from_files(files: &Files) -> Self {
        Self::default().with_manifests(files.manifests())
    }

    /// Replaces the manifests by pods. Each pod has a namespace, a name, a uid and a specification.
    #[must_use]
    pub fn with_pods(self, pods: impl Iterator<Item = (String, String, String, Arc<PodSpec>)>) -> Self {
        let manifest = |(namespace, name, uid, pod)| {
            let (kind, labels) = (WorkloadKind::Pod, BTreeMap::new());
            Manifest {
                owner: Workload { kind, namespace, name, is_generated: false, uid: Some(uid), labels },
                pod,
            }
        };
        self.with_manifests(pods.map(manifest).collect())
    }

    /// Replaces the manifests.
    #[must_use]
    pub(crate) fn with_manifests(self, manifests: Manifests) -> Self {
        Self { manifests: Arc::new(manifests), ..self }
    }

    /// Replaces the pods of a source. Returns whether they have changed.
    pub(super) fn set_pods(&mut self, source: Source, pods: Manifests) -> bool {
        let manifests = match source {
            Source::Kubelet => &mut self.kubelet_manifests,
            Source::ApiServer => &mut self.api_server_manifests,
            _ => return self.names.set_pods(source, pods),
        };
        let is_new = **manifests != pods;
        if is_new {
            *manifests = Arc::new(pods);
        }
        is_new
    }

    /// Replaces the pods of a source that only names calls.
    #[cfg(test)]
    pub(crate) fn with_names_only(mut self, pods: Manifests) -> Self {
        self.names.set_pods(Source::ReadOnlyPort, pods);
        self
    }

    /// Replaces the pods of the kubelet with those of its `PodList`.
    #[cfg(test)]
    pub(crate) fn set_kubelet_pod_list(&mut self, list: &Value) {
        let pods = read_manifests(list, Source::Kubelet, false, &mut Vec::new());
        self.set_pods(Source::Kubelet, pods.into_iter().collect());
    }

    /// Returns the specification of the pod of a sandbox. `containers` are the existing containers
    /// of the pod, in the order of their creation. For each probe and hook, the first source that
    /// specifies it counts; for other properties, the first source that knows the pod. Invalid
    /// annotations are ignored here, and reported by
    /// [`annotation_problems`](super::annotation_problems).
    #[must_use]
    pub fn resolve_pod<'a>(
        &self,
        sandbox: &Sandbox,
        containers: impl IntoIterator<Item = &'a Arc<Container>>,
    ) -> PodSpec {
        self.merge(&self.specs_by_source(sandbox), sandbox, containers)
    }

    /// Returns the specification of the pod of a sandbox, as [`resolve_pod`](Self::resolve_pod)
    /// does, with the probes of all sources. It describes the probes of a client; probeshim must
    /// not run them.
    #[must_use]
    pub fn describe_pod<'a>(
        &self,
        sandbox: &Sandbox,
        containers: impl IntoIterator<Item = &'a Arc<Container>>,
    ) -> PodSpec {
        self.merge(&self.specs_for_names(sandbox), sandbox, containers)
    }

    /// Returns the first source that specifies the pod of a sandbox. Rules and annotations of
    /// probeshim specify single probes.
    #[must_use]
    pub fn source_of_pod(&self, sandbox: &Sandbox) -> Option<Source> {
        self.specs_for_names(sandbox).first().map(|(source, _)| *source)
    }

    /// Returns the specifications of a pod that name its calls, with their sources, in the order of
    /// precedence.
    fn specs_for_names(&self, sandbox: &Sandbox) -> Vec<(Source, Arc<PodSpec>)> {
        let mut specs = self.specs_by_source(sandbox);
        specs.extend(self.names.specs_by_source(sandbox));
        specs.sort_by_key(|(source, _)| *source);
        specs
    }

    /// Returns the specifications of a pod whose probes may be run, with their sources, in the
    /// order of precedence.
    fn specs_by_source(&self, sandbox: &Sandbox) -> Vec<(Source, Arc<PodSpec>)> {
        let manifests = [
            (Source::Manifest, &self.manifests),
            (Source::Kubelet, &self.kubelet_manifests),
            (Source::ApiServer, &self.api_server_manifests),
        ];
        let specs = manifests
            .into_iter()
            .filter_map(|(source, all)| Some((source, all.for_sandbox(sandbox)?.pod.clone())));
        specs.chain(last_applied(sandbox).map(|applied| (Source::LastApplied, applied.pod))).collect()
    }

    fn merge<'a>(
        &self,
        specs: &[(Source, Arc<PodSpec>)],
        sandbox: &Sandbox,
        containers: impl IntoIterator<Item = &'a Arc<Container>>,
    ) -> PodSpec {
        let (mut pod, default_kind) = match specs.first() {
            Some((_, known)) => (PodSpec::clone(known), ContainerKind::Ephemeral),
            None => (PodSpec::default(), ContainerKind::Regular),
        };
        pod.is_deleted = specs.iter().any(|(_, pod)| pod.is_deleted);
        for other in specs.iter().skip(1).flat_map(|(_, pod)| &pod.containers) {
            if pod.container(&other.name).is_none() {
                pod.containers.push(other.clone());
            }
        }
        let has_annotations = annotation::has_any(sandbox);
        if let Some(policy) = annotation::restart_policy(sandbox, None).filter(|_| has_annotations) {
            pod.restart_policy = policy;
        }
        let mut present: Vec<(&str, &Container)> = Vec::new();
        for container in containers {
            let Some(name) = container.container_ref.name.as_deref() else { continue };
            if pod.container(name).is_none() {
                let is_named = self.rules.iter().any(|rule| rule.selector.container() == name)
                    || annotation::has_for_container(sandbox, name);
                let role = if is_named { ContainerKind::Regular } else { default_kind };
                let other = ContainerSpec { role, ..ContainerSpec::named(name) };
                pod.containers.push(Arc::new(other));
            }
            present.push((name, container));
        }
        for spec in &mut pod.containers {
            let name = spec.name.clone();
            let container =
                present.iter().rev().find(|(known, _)| *known == name).map(|(_, container)| *container);
            let container_specs = specs.iter().filter_map(|(_, pod)| pod.container(&name));
            let sources = ContainerSources {
                rules: &self.rules,
                sandbox,
                has_annotations,
                container,
                specs: container_specs.collect(),
                hooks: merge_hooks(specs, container, &name).into_iter().map(|(_, hook)| hook).collect(),
            };
            if let Some(merged) = sources.merge(spec) {
                *spec = Arc::new(merged);
            }
            let policy = annotation::restart_policy(sandbox, Some(&name)).filter(|_| has_annotations);
            if let Some(policy) = policy.filter(|_| spec.role == ContainerKind::Regular) {
                Arc::make_mut(spec).restart_policy = Some(policy);
            }
        }
        pod
    }

    /// Returns the exec probes and exec hooks of a container.
    #[must_use]
    pub fn known_execs(&self, sandbox: &Sandbox, container: &Arc<Container>) -> Vec<KnownExec> {
        self.execs_by(&self.specs_for_names(sandbox), sandbox, container)
    }

    /// Returns the exec probes and exec hooks of a container, without those that only name calls.
    #[must_use]
    pub fn configured_execs(&self, sandbox: &Sandbox, container: &Arc<Container>) -> Vec<KnownExec> {
        self.execs_by(&self.specs_by_source(sandbox), sandbox, container)
    }

    /// Returns the first exec probe or hook of a container with a command and a timeout in seconds.
    #[must_use]
    pub fn known_exec(
        &self,
        sandbox: &Sandbox,
        container: &Arc<Container>,
        command: &[String],
        timeout: i64,
    ) -> Option<KnownExec> {
        let known = self.known_execs(sandbox, container);
        known.into_iter().find(|known| known.command == command && known.timeout_seconds == timeout)
    }

    fn execs_by(
        &self,
        specs: &[(Source, Arc<PodSpec>)],
        sandbox: &Sandbox,
        container: &Arc<Container>,
    ) -> Vec<KnownExec> {
        let Some(name) = container.container_ref.name.as_deref() else { return Vec::new() };
        let pod = self.merge(specs, sandbox, [container]);
        let Some(spec) = pod.container(name) else { return Vec::new() };
        let probes = spec.all_probes().filter_map(|(probe_type, probe)| match &probe.handler {
            Handler::Exec(command) => Some(KnownExec {
                purpose: probe_type.into(),
                command: command.clone(),
                timeout_seconds: probe.timeout.into(),
                period: Some(Duration::from_secs(probe.period.into())),
                failure_threshold: Some(probe.failure_threshold),
                source: probe.source,
            }),
            _ => None,
        });
        let hooks =
            merge_hooks(specs, Some(container), name).into_iter().filter_map(|(source, (purpose, hook))| {
                match hook {
                    Hook::Exec(command) => {
                        let (period, failure_threshold) = (None, None);
                        Some(KnownExec {
                            purpose,
                            command,
                            timeout_seconds: 0,
                            period,
                            failure_threshold,
                            source,
                        })
                    }
                    _ => None,
                }
            });
        probes.chain(hooks).collect()
    }
}

/// Returns the hooks of a container, each from the first source that specifies it.
fn merge_hooks(
    specs: &[(Source, Arc<PodSpec>)],
    container: Option<&Container>,
    name: &str,
) -> Vec<(Source, (ExecPurpose, Hook))> {
    let from_specs = specs.iter().filter_map(|(source, pod)| Some((*source, &pod.container(name)?.hooks)));
    let from_specs =
        from_specs.flat_map(|(source, hooks)| hooks.iter().map(move |hook| (source, hook.clone())));
    let from_kubelet = container
        .and_then(|container| kubelet_annotations::pre_stop(annotation_lookup(container)))
        .map(|hook| (Source::KubeletAnnotation, (ExecPurpose::PreStop, hook)));
    let mut hooks: Vec<(Source, (ExecPurpose, Hook))> = Vec::new();
    for (source, (purpose, hook)) in from_specs.chain(from_kubelet) {
        if hooks.iter().all(|(_, (known, _))| *known != purpose) {
            hooks.push((source, (purpose, hook)));
        }
    }
    hooks
}

/// All sources of the specification of one container.
struct ContainerSources<'a> {
    rules: &'a [Rule],
    sandbox: &'a Sandbox,
    has_annotations: bool,
    /// Container on the node, if it exists.
    container: Option<&'a Container>,
    /// Specifications of the container in manifests, in the order of precedence.
    specs: Vec<&'a Arc<ContainerSpec>>,
    /// Hooks of the container, including those of the kubelet's annotations.
    hooks: Vec<(ExecPurpose, Hook)>,
}

impl ContainerSources<'_> {
    /// Returns the container with all sources merged; `None` if it is not probed or equals `base`.
    fn merge(&self, base: &ContainerSpec) -> Option<ContainerSpec> {
        if !base.role.is_probed() {
            return None;
        }
        let image = self.container.map(|container| container.image.as_str()).or(base.image.as_deref());
        let rules: Vec<&Rule> =
            self.rules.iter().filter(|rule| rule.selector.matches(self.sandbox, &base.name, image)).collect();
        let ports = (base.ports.is_empty())
            .then(|| {
                self.container.and_then(|container| kubelet_annotations::ports(annotation_lookup(container)))
            })
            .flatten();
        let resolve_probe = |probe_type| {
            let find_probe = |probes: &[(ProbeType, Option<Arc<Probe>>)]| {
                probes.iter().find(|(known, _)| *known == probe_type).map(|(_, probe)| probe.clone())
            };
            let annotated = || {
                let read = || annotation::read(self.sandbox, &base.name, probe_type);
                self.has_annotations.then(read).flatten().map(|probe| Some(Arc::new(probe)))
            };
            let specified = || self.specs.iter().find_map(|spec| find_probe(&spec.probes));
            let configured = rules.iter().find_map(|rule| find_probe(&rule.probes));
            Some((
                probe_type,
                with_expanded_command(configured.or_else(annotated).or_else(specified)??, &base.env),
            ))
        };
        let probes: Vec<_> = ProbeType::ALL.into_iter().filter_map(resolve_probe).collect();
        let annotated_grace_period = self
            .container
            .and_then(|container| kubelet_annotations::grace_period(annotation_lookup(container)));
        let is_unchanged = ports.is_none()
            && (&self.hooks, &annotated_grace_period) == (&base.hooks, &base.annotated_grace_period)
            && probes.len() == base.probes.len()
            && probes.iter().all(|(probe_type, probe)| {
                base.probe(*probe_type).is_some_and(|known| Arc::ptr_eq(known, probe))
            });
        let probes = probes.into_iter().map(|(probe_type, probe)| (probe_type, Some(probe))).collect();
        (!is_unchanged).then(|| ContainerSpec {
            probes,
            ports: ports.unwrap_or_else(|| base.ports.clone()),
            hooks: self.hooks.clone(),
            annotated_grace_period,
            ..base.clone()
        })
    }
}

/// Returns the probe with the variables of its command expanded.
fn with_expanded_command(probe: Arc<Probe>, env: &Env) -> Arc<Probe> {
    match &probe.handler {
        Handler::Exec(command) if command.iter().any(|word| word.contains('$')) => {
            Arc::new(Probe { handler: Handler::Exec(expand(command, env)), ..(*probe).clone() })
        }
        _ => probe,
    }
}

fn last_applied(sandbox: &Sandbox) -> Option<Manifest> {
    let value: Value = serde_json::from_str(sandbox.annotations.get(LAST_APPLIED)?).ok()?;
    read_manifests(&value, Source::LastApplied, true, &mut Vec::new()).into_iter().next()
}

/// Returns a lookup of the annotations of a container.
fn annotation_lookup<'a>(container: &'a Container) -> impl Fn(&str) -> Option<&'a str> {
    |key| container.annotations.get(key)
}

#[cfg(test)]
mod tests;
