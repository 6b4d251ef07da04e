//! Resources of containers and pods (Kubernetes: `component-helpers/resource/helpers.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::manifest::ContainerKind;
use crate::manifest::pod::{Container, Pod};
use crate::manifest::quantity::Quantity;

/// Prefix of the names of resources that are huge pages, before the size of a page.
pub(crate) const HUGE_PAGES_PREFIX: &str = "hugepages-";

/// Amounts of resources, by their names in Kubernetes.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Requests and limits of a container or a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) requests: Amounts,
    pub(crate) limits: Amounts,
}

/// Quality of service (QoS) class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Resources {
    /// Returns the resources of a pod with these containers: the sum of the containers that run
    /// together, regular containers and sidecars, or what an init container needs together with the
    /// sidecars before it, where that is higher (`AggregateContainerRequests`,
    /// `AggregateContainerLimits`).
    pub(crate) fn of_containers(containers: &[Arc<Container>]) -> Self {
        let lasting = containers.iter().filter(|container| container.spec.role != ContainerKind::Init);
        let lasting = lasting.map(|container| &container.resources).fold(Self::default(), Self::plus);
        let initialization = Self::of_initialization(containers).into_iter();
        initialization.fold(lasting, |total, needed| Self {
            requests: max(total.requests, needed.requests),
            limits: max(total.limits, needed.limits),
        })
    }

    /// Returns the resources that are needed when each init container or sidecar has been started:
    /// those of the sidecars so far, together with those of the init container.
    pub(crate) fn of_initialization(containers: &[Arc<Container>]) -> Vec<Self> {
        let mut sidecars = Self::default();
        let init = containers.iter().filter(|container| container.spec.role != ContainerKind::Regular);
        let needed = init.map(|container| {
            let needed = sidecars.clone().plus(&container.resources);
            if container.spec.role == ContainerKind::Sidecar {
                sidecars = needed.clone();
            }
            needed
        });
        needed.collect()
    }

    fn plus(self, more: &Self) -> Self {
        Self { requests: add(self.requests, &more.requests), limits: add(self.limits, &more.limits) }
    }

    /// Returns the amounts of CPU and memory that determine the QoS class: those above zero.
    fn for_qos(&self) -> [Amounts; 2] {
        [&self.requests, &self.limits].map(|amounts| {
            let counts = |(name, amount): &(&String, &Quantity)| {
                matches!(name.as_str(), "cpu" | "memory") && !amount.is_zero()
            };
            amounts.iter().filter(counts).map(|(name, amount)| (name.clone(), *amount)).collect()
        })
    }
}

impl Pod {
    /// Returns the requests and limits of the pod without its overhead: its own ones, and those of
    /// its containers for resources of which it has none (`PodRequests`, `PodLimits`).
    pub(crate) fn total_resources(&self) -> Resources {
        let mut total = Resources::of_containers(&self.containers);
        if let Some(own) = &self.resources {
            total.requests.extend(own.requests.clone());
            total.limits.extend(own.limits.clone());
        }
        total
    }

    /// Returns the requests of the pod, with its overhead (`PodRequests`).
    pub(crate) fn requests(&self) -> Amounts {
        let requests = self.total_resources().requests;
        match &self.overhead {
            Some(overhead) => add(requests, overhead),
            None => requests,
        }
    }

    /// Returns the limit of the pod's own resources; `None` if it has none or the limit is zero.
    pub(crate) fn own_limit(&self, name: &str) -> Option<Quantity> {
        let limit = self.resources.as_ref().and_then(|own| own.limits.get(name)).copied();
        limit.filter(|limit| !limit.is_zero())
    }

    /// Returns the quality of service class. It follows from the resources of the pod, or else from
    /// those of its containers (Kubernetes: `pkg/apis/core/v1/helper/qos/qos.go`: `ComputePodQOS`).
    pub(crate) fn qos(&self) -> Qos {
        let of_containers = self.containers.iter().map(|container| container.resources.for_qos());
        let all: Vec<[Amounts; 2]> = match &self.resources {
            Some(own) => vec![own.for_qos()],
            None => of_containers.collect(),
        };
        if all.iter().flatten().all(Amounts::is_empty) {
            Qos::BestEffort
        } else if all.iter().all(|[requests, limits]| limits.len() == 2 && requests == limits) {
            Qos::Guaranteed
        } else {
            Qos::Burstable
        }
    }
}

impl Qos {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// Returns whether a resource belongs to a device plugin (`core/helper/helpers.go`:
/// `IsNativeResource`).
pub(crate) fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// Returns whether a resource is huge pages.
pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES_PREFIX)
}

/// Returns the size of a page of a resource; `None` if the resource is not huge pages of a valid
/// size.
pub(crate) fn huge_page_size(name: &str) -> Option<Quantity> {
    Quantity::parse(name.strip_prefix(HUGE_PAGES_PREFIX)?)
}

/// Returns the sums of amounts.
fn add(mut sum: Amounts, more: &Amounts) -> Amounts {
    for (name, amount) in more {
        let known = sum.entry(name.clone()).or_default();
        *known = *known + *amount;
    }
    sum
}

fn max(mut left: Amounts, right: Amounts) -> Amounts {
    for (name, amount) in right {
        let known = left.entry(name).or_default();
        *known = (*known).max(amount);
    }
    left
}
