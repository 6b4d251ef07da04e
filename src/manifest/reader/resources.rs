//! Reads the resources of containers and pods (Kubernetes: `core/validation/validation.go`:
//! `validateResourceRequirements`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{
    Amounts, Container, Resources, huge_page_size, is_extended_resource, is_huge_page,
};
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::env::quantity;
use crate::manifest::reader::fields::{FieldSet, list, required};
use crate::manifest::validation::{QUALIFIED_NAME, is_qualified_name};
use crate::manifest::{ContainerKind, RestartPolicy};

const OF_CONTAINER: FieldSet = FieldSet {
    known: &["requests", "limits"],
    ignored: &[],
    unsupported: &[("claims", "the scheduler of a cluster allocates resource claims")],
};

const RESIZE_POLICY: FieldSet = FieldSet::only(&["resourceName", "restartPolicy"]);

const OF_POD: FieldSet = FieldSet::only(&["requests", "limits", "claims"]);

/// Object that has resources. It determines their names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Container,
    Pod,
}

/// Reads the resources of a container.
pub(super) fn of_container(container: &Cursor<'_>, problems: &mut Vec<Violation>) -> Resources {
    let Some(node) = container.field("resources") else { return Resources::default() };
    OF_CONTAINER.check(&node, problems);
    let mut resources = requirements(&node, Owner::Container, problems);
    // The request defaults to the limit.
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
    resources
}

/// Validates the resize policies of a container (`core/validation/validation.go`:
/// `validateResizePolicy`). They have no effect: a manifest does not resize a running container.
pub(super) fn check_resize_policy(
    container: &Cursor<'_>,
    of_pod: RestartPolicy,
    problems: &mut Vec<Violation>,
) {
    let resources = ["cpu", "memory"].map(|name| (name, name));
    let policies = [("NotRequired", false), ("RestartContainer", true)];
    let mut names = BTreeSet::new();
    for item in list(container, "resizePolicy", problems) {
        RESIZE_POLICY.check(&item, problems);
        if required(&item, "resourceName", "", problems).is_some()
            && let Some(at) = item.field("resourceName")
            && let Some(name) = at.one_of(&resources, problems)
            && !names.insert(name)
        {
            item.duplicate("resourceName", name, problems);
        }
        if required(&item, "restartPolicy", "", problems).is_some()
            && let Some(at) = item.field("restartPolicy")
            && at.one_of(&policies, problems) == Some(true)
            && of_pod == RestartPolicy::Never
        {
            at.error("must be 'NotRequired' when pod `restartPolicy` is 'Never'", problems);
        }
    }
}

/// Reads the resources of a pod with these containers (`validatePodResources`). Resources that are
/// not set have defaults (`core/v1/defaults.go`: `defaultHugePagePodLimits`, `defaultPodRequests`).
pub(super) fn of_pod(
    spec: &Cursor<'_>,
    containers: &[Arc<Container>],
    problems: &mut Vec<Violation>,
) -> Option<Resources> {
    let node = spec.field("resources")?;
    OF_POD.check(&node, problems);
    if let Some(claims) = node.field("claims") {
        claims.forbidden("claims may not be set for Resources at pod-level", problems);
    }
    let mut resources = requirements(&node, Owner::Pod, problems);
    let of_containers = Resources::of_containers(containers);
    if !(resources.limits.is_empty() && resources.requests.is_empty()) {
        for (name, limit) in &of_containers.limits {
            if is_huge_page(name) && !resources.requests.contains_key(name) {
                resources.limits.entry(name.clone()).or_insert(*limit);
            }
        }
    }
    if !resources.limits.is_empty() {
        for (name, request) in &of_containers.requests {
            if matches!(name.as_str(), "cpu" | "memory") {
                resources.requests.entry(name.clone()).or_insert(*request);
            }
        }
        for (name, limit) in &resources.limits {
            resources.requests.entry(name.clone()).or_insert(*limit);
        }
    }
    check_consistency(&node, &resources, (containers, &of_containers), problems);
    Some(resources)
}

/// Reads amounts that are requests and limits at the same time, such as the overhead of a pod.
pub(super) fn amounts(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Amounts {
    let amounts = read_amounts(node, Owner::Container, problems);
    check_huge_pages(node, amounts.keys(), problems);
    amounts
}

/// Reads requests and limits, without defaults.
fn requirements(node: &Cursor<'_>, owner: Owner, problems: &mut Vec<Violation>) -> Resources {
    let mut read =
        |field: &str| node.field(field).map(|at| read_amounts(&at, owner, problems)).unwrap_or_default();
    let resources = Resources { limits: read("limits"), requests: read("requests") };
    for (name, request) in &resources.requests {
        let Some(at) = node.at(&["requests", name]) else { continue };
        match resources.limits.get(name) {
            None if is_overcommitted(name) => {}
            // The error of an invalid limit has been reported.
            None if node.at(&["limits", name]).is_some() => {}
            None => {
                let reason = "Limit must be set for non overcommitable resources";
                node.missing(&format!("limits.{name}"), reason, problems);
            }
            Some(limit) if !is_overcommitted(name) && request != limit => {
                at.error(format!("must be equal to {name} limit"), problems);
            }
            Some(limit) if request > limit => {
                at.error(format!("must be less than or equal to {name} limit"), problems);
            }
            Some(_) => {}
        }
    }
    check_huge_pages(node, resources.limits.keys().chain(resources.requests.keys()), problems);
    resources
}

/// Reports huge pages without CPU or memory.
fn check_huge_pages<'a>(
    node: &Cursor<'_>,
    mut names: impl Iterator<Item = &'a String> + Clone,
    problems: &mut Vec<Violation>,
) {
    let has_huge_pages = names.clone().any(|name| is_huge_page(name));
    if has_huge_pages && !names.any(|name| matches!(name.as_str(), "cpu" | "memory")) {
        node.forbidden("HugePages require cpu or memory", problems);
    }
}

/// Reads the amounts of an object.
fn read_amounts(node: &Cursor<'_>, owner: Owner, problems: &mut Vec<Violation>) -> Amounts {
    let mut amounts = Amounts::new();
    let Some(object) = node.object(problems) else { return amounts };
    for (name, at) in object.keys().filter_map(|name| Some((name, node.field(name)?))) {
        if let Err(reason) = check_name(name, owner) {
            node.invalid_key(name, reason, problems);
            continue;
        }
        let Some(amount) = quantity(&at, problems) else { continue };
        if is_extended_resource(name) && amount.thousandths() % 1_000 != 0 {
            at.error("must be an integer", problems);
        } else if is_huge_page(name) && !is_divisible(name, amount) {
            at.error(format!("is not positive integer multiple of {name}"), problems);
        } else {
            amounts.insert(name.clone(), amount);
        }
    }
    amounts
}

/// Returns the rule that the name of a resource breaks (`validateContainerResourceName`,
/// `validatePodResourceName`).
fn check_name(name: &str, owner: Owner) -> Result<(), &'static str> {
    let is_standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name);
    if !is_qualified_name(name) {
        Err(QUALIFIED_NAME)
    } else if owner == Owner::Pod && (name == "ephemeral-storage" || !is_standard) {
        Err("a pod can have the resources \"cpu\", \"memory\" and \"hugepages-SIZE\"")
    } else if !name.contains('/') && !is_standard {
        Err(
            "must be a standard resource for containers: \"cpu\", \"memory\", \"ephemeral-storage\" or \"hugepages-SIZE\"",
        )
    } else if is_extended_resource(name) && !is_extended_name(name) {
        Err("doesn't follow extended resource name standard")
    } else {
        Ok(())
    }
}

/// Reports amounts of a pod that its containers, or one of them, exceed
/// (`validatePodResourceConsistency`). `total` are the resources of the containers.
fn check_consistency(
    node: &Cursor<'_>,
    resources: &Resources,
    (containers, total): (&[Arc<Container>], &Resources),
    problems: &mut Vec<Violation>,
) {
    let requests = total.requests.iter().map(|(name, amount)| ("requests", name, amount));
    let limits = total.limits.iter().filter(|(name, _)| is_huge_page(name));
    for (field, name, amount) in requests.chain(limits.map(|(name, amount)| ("limits", name, amount))) {
        let Some(at) = node.at(&[field, name]) else { continue };
        let own = if field == "limits" { &resources.limits } else { &resources.requests };
        if own.get(name).is_some_and(|own| amount > own) {
            at.error(format!("must be greater than or equal to aggregate container {field}"), problems);
        }
    }
    for container in containers.iter().filter(|container| container.spec.role == ContainerKind::Regular) {
        for (name, limit) in &container.resources.limits {
            if let Some(at) = node.at(&["limits", name])
                && resources.limits.get(name).is_some_and(|own| limit > own)
            {
                let reason = format!("must not be less than the limit of container {:?}", container.name);
                at.error(reason, problems);
            }
        }
    }
}

fn is_extended_name(name: &str) -> bool {
    !name.starts_with("requests.") && is_qualified_name(&format!("requests.{name}"))
}

/// Returns whether limits may exceed requests (`core/helper/helpers.go`: `IsOvercommitAllowed`).
fn is_overcommitted(name: &str) -> bool {
    !is_extended_resource(name) && !is_huge_page(name)
}

/// Returns whether an amount of huge pages is a multiple of the size of a page.
fn is_divisible(name: &str, amount: Quantity) -> bool {
    let size = huge_page_size(name).map_or(0, Quantity::units);
    size > 0 && amount.units() % size == 0
}
