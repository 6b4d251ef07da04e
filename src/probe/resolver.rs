//! What is known of the probes and hooks of a pod, from all sources.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::definition::{Handler, Probe, ProbeType};
use super::exec_purpose::{ExecPurpose, KnownExec};
use super::expand::expand;
use super::kubelet_annotations;
use super::lifecycle::Hook;
use super::manifest_index::Manifests;
use super::pod_spec::{ContainerKind, ContainerSpec, Env, PodSpec};
use super::read::files::{self, FileError, Files};
use super::read::manifest::Manifest;
use super::read::{annotation, manifest};
use super::rule::Rule;
use super::source::Source;
use super::workload::{Workload, WorkloadKind};
use crate::world::{Container, Sandbox};

/// Where kubectl leaves what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The specs that rules, files and the kubelet tell of. What annotations tell is read when a pod is asked for. Copies share what is in them.
#[derive(Clone, Debug, Default)]
pub struct SpecResolver {
    pub(super) rules: Arc<[Rule]>,
    pub(super) manifests: Arc<Manifests>,
    pub(super) kubelet_manifests: Arc<Manifests>,
}

/// A probe, and whose it is.
#[derive(Clone, Debug)]
pub struct DescribedProbe {
    /// A rule, a pod, or what makes pods.
    pub owner: String,
    /// The container; a pattern for a rule's.
    pub container: String,
    /// What it is for.
    pub probe_type: ProbeType,
    /// The probe; `None` where there is to be none.
    pub probe: Option<Arc<Probe>>,
}

impl SpecResolver {
    /// Reads files and folders of manifests: YAML or JSON, any number of documents, of which those that make pods are taken. Says
    /// everything that is wrong with them.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Vec<FileError>> {
        Self::read_and_count_skipped(paths, &mut BTreeMap::new())
    }

    /// Reads manifests as [`read`](Self::read) does, and counts the documents of each kind that makes no pods.
    pub fn read_and_count_skipped<P: AsRef<Path>>(
        paths: &[P],
        passed_over: &mut BTreeMap<String, usize>,
    ) -> Result<Self, Vec<FileError>> {
        let mut errors = Vec::new();
        let mut read = |path: &P| files::read(path.as_ref(), &mut errors, passed_over);
        let manifests: Manifests = paths.iter().flat_map(&mut read).collect();
        if errors.is_empty() {
            Ok(Self { manifests: Arc::new(manifests), ..Self::default() })
        } else {
            Err(errors)
        }
    }

    /// The same, with rules that count before all else.
    #[must_use]
    pub fn and_rules(self, rules: Vec<Rule>) -> Self {
        Self { rules: rules.into(), ..self }
    }

    /// Those of these files.
    #[must_use]
    pub fn from_files(files: &Files) -> Self {
        Self::default().with_manifests(files.manifests())
    }

    /// The same, with these pods instead of those of files: their namespaces, names and uids, and what they are.
    #[must_use]
    pub fn with_pods(self, pods: impl Iterator<Item = (String, String, String, Arc<PodSpec>)>) -> Self {
        let manifest = |(namespace, name, uid, pod)| {
            let (kind, labels) = (WorkloadKind::Pod, BTreeMap::new());
            Manifest { owner: Workload { kind, namespace, name, uid: Some(uid), labels }, pod }
        };
        self.with_manifests(pods.map(manifest).collect())
    }

    pub(super) fn with_manifests(self, manifests: Manifests) -> Self {
        Self { manifests: Arc::new(manifests), ..self }
    }

    /// Takes what the kubelet tells. Tells whether that is anything new.
    pub(super) fn set_kubelet_pods(&mut self, pods: Manifests) -> bool {
        let is_new = *self.kubelet_manifests != pods;
        if is_new {
            self.kubelet_manifests = Arc::new(pods);
        }
        is_new
    }

    /// Takes a list of pods as a kubelet tells it.
    #[cfg(test)]
    pub(crate) fn set_kubelet_pod_list(&mut self, list: &Value) {
        self.set_kubelet_pods(
            manifest::read(list, Source::Kubelet, false, &mut Vec::new()).into_iter().collect(),
        );
    }

    /// The pod of a sandbox with those of its containers that are there, in the order in which they were created. For each probe and hook
    /// the first source that tells of it counts; of the rest, the first that knows the pod. What an annotation says that cannot be read is
    /// as if it said nothing; [`annotation_problems`](super::annotation_problems) tells of it.
    #[must_use]
    pub fn resolve_pod<'a>(
        &self,
        sandbox: &Sandbox,
        containers: impl IntoIterator<Item = &'a Arc<Container>>,
    ) -> PodSpec {
        self.merge(&self.specs_by_source(sandbox), sandbox, containers)
    }

    /// What manifests tell of a pod, in the order in which they count.
    fn specs_by_source(&self, sandbox: &Sandbox) -> Vec<(Source, Arc<PodSpec>)> {
        let known = [(Source::Manifest, &self.manifests), (Source::Kubelet, &self.kubelet_manifests)];
        let known = known
            .into_iter()
            .filter_map(|(source, all)| Some((source, all.for_sandbox(sandbox)?.pod.clone())));
        known.chain(last_applied(sandbox).map(|applied| (Source::LastApplied, applied.pod))).collect()
    }

    fn merge<'a>(
        &self,
        written: &[(Source, Arc<PodSpec>)],
        sandbox: &Sandbox,
        containers: impl IntoIterator<Item = &'a Arc<Container>>,
    ) -> PodSpec {
        let (mut pod, of_others) = match written.first() {
            Some((_, known)) => (PodSpec::clone(known), ContainerKind::Ephemeral),
            None => (PodSpec::default(), ContainerKind::Regular),
        };
        pod.is_deleted = written.iter().any(|(_, pod)| pod.is_deleted);
        for other in written.iter().skip(1).flat_map(|(_, pod)| &pod.containers) {
            if pod.container(&other.name).is_none() {
                pod.containers.push(other.clone());
            }
        }
        let has_annotations = annotation::has_any(sandbox);
        if let Some(policy) = annotation::restart_policy(sandbox, None).filter(|_| has_annotations) {
            pod.restart_policy = policy;
        }
        let mut there: Vec<(&str, &Container)> = Vec::new();
        for container in containers {
            let Some(name) = container.container_ref.name.as_deref() else { continue };
            if pod.container(name).is_none() {
                let is_named = self.rules.iter().any(|rule| rule.selector.container() == name)
                    || annotation::has_for_container(sandbox, name);
                let role = if is_named { ContainerKind::Regular } else { of_others };
                let other = ContainerSpec { role, ..ContainerSpec::named(name) };
                pod.containers.push(Arc::new(other));
            }
            there.push((name, container));
        }
        for spec in &mut pod.containers {
            let name = spec.name.clone();
            let container =
                there.iter().rev().find(|(known, _)| *known == name).map(|(_, container)| *container);
            let others = written.iter().filter_map(|(_, pod)| pod.container(&name));
            let all = ContainerSources {
                rules: &self.rules,
                sandbox,
                has_annotations,
                container,
                specs: others.collect(),
                hooks: merge_hooks(written, container, &name).into_iter().map(|(_, hook)| hook).collect(),
            };
            if let Some(merged) = all.merge(spec) {
                *spec = Arc::new(merged);
            }
            let policy = annotation::restart_policy(sandbox, Some(&name)).filter(|_| has_annotations);
            if let Some(policy) = policy.filter(|_| spec.role == ContainerKind::Regular) {
                Arc::make_mut(spec).restart_policy = Some(policy);
            }
        }
        pod
    }

    /// Every probe that rules and manifests tell of, in their order, but those of which it is certain that another comes first.
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
                let is_ruled = |probe_type| {
                    let of_type = |rule: &&Rule| rule.probes.iter().any(|(ruled, _)| *ruled == probe_type);
                    let mut rules = self.rules.iter().filter(of_type);
                    rules.any(|rule| rule.selector.matches_all(&owner.namespace, &container.name))
                };
                container.all_probes().filter(move |(it, _)| !is_ruled(*it)).map(
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

    /// What is executed in a container, as far as it is known.
    #[must_use]
    pub fn known_execs(&self, sandbox: &Sandbox, container: &Arc<Container>) -> Vec<KnownExec> {
        let Some(name) = container.container_ref.name.as_deref() else { return Vec::new() };
        let written = self.specs_by_source(sandbox);
        let pod = self.merge(&written, sandbox, [container]);
        let Some(spec) = pod.container(name) else { return Vec::new() };
        let probes = spec.all_probes().filter_map(|(probe_type, probe)| match &probe.handler {
            Handler::Exec(command) => Some(KnownExec {
                purpose: probe_type.into(),
                command: command.clone(),
                timeout_seconds: probe.timeout.into(),
                period: Some(Duration::from_secs(probe.period.into())),
                source: probe.source,
            }),
            _ => None,
        });
        let hooks = merge_hooks(&written, Some(container), name).into_iter().filter_map(
            |(source, (purpose, hook))| match hook {
                Hook::Exec(command) => {
                    Some(KnownExec { purpose, command, timeout_seconds: 0, period: None, source })
                }
                _ => None,
            },
        );
        probes.chain(hooks).collect()
    }
}

/// The hooks of a container, each from the first source that tells of it.
fn merge_hooks(
    written: &[(Source, Arc<PodSpec>)],
    container: Option<&Container>,
    name: &str,
) -> Vec<(Source, (ExecPurpose, Hook))> {
    let specified = written.iter().filter_map(|(source, pod)| Some((*source, &pod.container(name)?.hooks)));
    let specified =
        specified.flat_map(|(source, hooks)| hooks.iter().map(move |hook| (source, hook.clone())));
    let noted = container
        .and_then(|it| kubelet_annotations::pre_stop(annotation_lookup(it)))
        .map(|hook| (Source::KubeletAnnotation, (ExecPurpose::PreStop, hook)));
    let mut hooks: Vec<(Source, (ExecPurpose, Hook))> = Vec::new();
    for (source, (used, hook)) in specified.chain(noted) {
        if hooks.iter().all(|(_, (known, _))| *known != used) {
            hooks.push((source, (used, hook)));
        }
    }
    hooks
}

/// Everything that is written of a container.
struct ContainerSources<'a> {
    rules: &'a [Rule],
    sandbox: &'a Sandbox,
    has_annotations: bool,
    /// The container itself, if it is there.
    container: Option<&'a Container>,
    /// What manifests say of it, the first one first.
    specs: Vec<&'a Arc<ContainerSpec>>,
    /// Its hooks, with what the kubelet has noted.
    hooks: Vec<(ExecPurpose, Hook)>,
}

impl ContainerSources<'_> {
    /// The container with the probes that count; `None` where those are what it has already.
    fn merge(&self, base: &ContainerSpec) -> Option<ContainerSpec> {
        if !base.role.is_probed() {
            return None;
        }
        let image = self.container.map(|container| container.image.as_str()).or(base.image.as_deref());
        let rules: Vec<&Rule> =
            self.rules.iter().filter(|rule| rule.selector.matches(self.sandbox, &base.name, image)).collect();
        let ports = (base.ports.is_empty())
            .then(|| self.container.and_then(|it| kubelet_annotations::ports(annotation_lookup(it))))
            .flatten();
        let probe = |probe_type| {
            let of_type = |probes: &[(ProbeType, Option<Arc<Probe>>)]| {
                probes.iter().find(|(known, _)| *known == probe_type).map(|(_, probe)| probe.clone())
            };
            let annotated = || {
                let read = || annotation::read(self.sandbox, &base.name, probe_type);
                self.has_annotations.then(read).flatten().map(|probe| Some(Arc::new(probe)))
            };
            let written = || self.specs.iter().find_map(|other| of_type(&other.probes));
            let rule = rules.iter().find_map(|rule| of_type(&rule.probes));
            Some((probe_type, with_expanded_command(rule.or_else(annotated).or_else(written)??, &base.env)))
        };
        let probes: Vec<_> = ProbeType::ALL.into_iter().filter_map(probe).collect();
        let annotated_grace_period =
            self.container.and_then(|it| kubelet_annotations::grace_period(annotation_lookup(it)));
        let is_same = ports.is_none()
            && (&self.hooks, &annotated_grace_period) == (&base.hooks, &base.annotated_grace_period)
            && probes.len() == base.probes.len()
            && probes.iter().all(|(probe_type, probe)| {
                base.probe(*probe_type).is_some_and(|known| Arc::ptr_eq(known, probe))
            });
        let probes = probes.into_iter().map(|(probe_type, probe)| (probe_type, Some(probe))).collect();
        (!is_same).then(|| ContainerSpec {
            probes,
            ports: ports.unwrap_or_else(|| base.ports.clone()),
            hooks: self.hooks.clone(),
            annotated_grace_period,
            ..base.clone()
        })
    }
}

/// The probe, with the variables of its command expanded.
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
    manifest::read(&value, Source::LastApplied, true, &mut Vec::new()).into_iter().next()
}

/// What is noted at a container, by its key.
fn annotation_lookup<'a>(container: &'a Container) -> impl Fn(&str) -> Option<&'a str> {
    |key| container.annotations.get(key)
}

#[cfg(test)]
mod tests;
