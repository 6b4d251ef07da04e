//! The reason why no call is listed.

use std::collections::BTreeSet;

use crate::admin::Client;
use crate::admin::api::{CallsQuery, Container, ListedCall, Pod, Status};
use crate::cli::CliError;
use crate::cli::query::{query_calls, query_status};
use crate::object_ref::{ContainerRef, PodRef};
use crate::suggest::did_you_mean;
use crate::terminal::{MAX_NAME_WIDTH, harmless_name, shortened};

/// Maximum number of names in the error for an unknown name.
const MAX_NAMES: usize = 10;

/// The pods and containers that exist or have calls.
#[derive(Debug, Default)]
struct KnownObjects {
    pods: Vec<PodRef>,
    containers: Vec<ContainerRef>,
}

/// Queries the reason why no call matches. Returns an error if no namespace, pod or container with
/// the name in the query exists or has calls.
pub(super) async fn reason(client: &Client, query: &CallsQuery) -> Result<String, CliError> {
    let status = query_status(client).await?;
    let recorded = query_calls(client, &CallsQuery::default()).await?;
    KnownObjects::new(&status, &recorded).check(query)?;
    let of_any_run = CallsQuery { this_run: false, in_flight: false, ..query.clone() };
    let earlier = if query.this_run { query_calls(client, &of_any_run).await?.len() } else { 0 };
    Ok(sentence(query, &status, recorded.len(), earlier))
}

/// Returns an error if no namespace, pod or container with the name in the query exists or has
/// calls.
pub(in crate::cli) async fn check_names(client: &Client, query: &CallsQuery) -> Result<(), CliError> {
    if query.namespace.is_none() && query.pod.is_none() && query.container.is_none() {
        return Ok(());
    }
    let recorded = query_calls(client, &CallsQuery::default()).await?;
    KnownObjects::new(&query_status(client).await?, &recorded).check(query)
}

/// Returns the reason. `recorded` is the number of recorded calls, and `earlier` the number of
/// calls of earlier runs that match.
fn sentence(query: &CallsQuery, status: &Status, recorded: usize, earlier: usize) -> String {
    let CallsQuery { this_run, in_flight, .. } = *query;
    let unfiltered = CallsQuery { this_run, in_flight, ..CallsQuery::default() };
    let only_in_flight = CallsQuery { last: Some(0), ..unfiltered.clone() };
    let reason = if *query == only_in_flight {
        "no calls are in flight".to_owned()
    } else if *query != unfiltered {
        match recorded {
            1 => "no calls match, of 1 recorded call".to_owned(),
            recorded => format!("no calls match, of {recorded} recorded calls"),
        }
    } else if status.calls.observed == 0 {
        format!("no calls yet: clients call the runtime through {}", status.listen)
    } else {
        "no calls are recorded".to_owned()
    };
    match earlier {
        0 => reason,
        1 => format!("{reason}; --all shows a call of an earlier run"),
        earlier => format!("{reason}; --all shows {earlier} calls of earlier runs"),
    }
}

impl KnownObjects {
    fn new(status: &Status, recorded: &[ListedCall]) -> Self {
        let mut known = Self::default();
        for pod in &status.pods {
            let id = Some(pod.id.clone());
            let (namespace, name, uid) = (pod.namespace.clone(), pod.name.clone(), pod.uid.clone());
            known.pods.push(PodRef { id, namespace, name, uid });
            known.containers.extend(pod.containers.iter().map(|container| ContainerRef {
                id: Some(container.id.clone()),
                name: container.name.clone(),
                attempt: container.attempt,
            }));
        }
        let pod_ref = |pod: &Pod| {
            let Pod { id, namespace, name, uid } = pod.clone();
            PodRef { id, namespace, name, uid }
        };
        let container_ref = |container: &Container| {
            let Container { id, name, attempt } = container.clone();
            ContainerRef { id, name, attempt }
        };
        known.pods.extend(recorded.iter().filter_map(ListedCall::pod).map(pod_ref));
        known.containers.extend(recorded.iter().filter_map(ListedCall::container).map(container_ref));
        known
    }

    /// Returns an error if the query has a name that no known object has.
    fn check(&self, query: &CallsQuery) -> Result<(), CliError> {
        if let Some(namespace) = &query.namespace {
            let names: BTreeSet<&str> = self.pods.iter().filter_map(|pod| pod.namespace.as_deref()).collect();
            if !names.contains(namespace.as_str()) {
                return Err(unknown("--namespace", namespace, "namespaces", &names, &names));
            }
        }
        if let Some(name) =
            query.pod.as_deref().filter(|name| !self.pods.iter().any(|pod| pod.is_named(name)))
        {
            let whole: BTreeSet<String> = self.pods.iter().filter_map(whole_name).collect();
            let whole = whole.iter().map(String::as_str).collect();
            let names = self.pods.iter().filter_map(|pod| pod.name.as_deref()).collect();
            return Err(unknown("--pod", name, "pods", &whole, &names));
        }
        let is_container = |name: &&str| self.containers.iter().any(|container| container.is_named(name));
        if let Some(name) = query.container.as_deref().filter(|name| !is_container(name)) {
            let names = self.containers.iter().filter_map(|container| container.name.as_deref()).collect();
            return Err(unknown("--container", name, "containers", &names, &names));
        }
        Ok(())
    }
}

fn whole_name(pod: &PodRef) -> Option<String> {
    Some(format!("{}/{}", pod.namespace.as_ref()?, pod.name.as_ref()?))
}

/// Returns the error for an unknown name. It lists `known`, and suggests one of `similar`.
fn unknown(flag: &str, name: &str, kind: &str, known: &BTreeSet<&str>, similar: &BTreeSet<&str>) -> CliError {
    let shown = shortened(name, MAX_NAME_WIDTH);
    if known.is_empty() {
        return CliError::Usage(format!("{flag} {shown:?} not found: no {kind} exist or have calls"));
    }
    let hint = did_you_mean(name, similar.iter().chain(known).copied());
    let mut listed: Vec<String> = known.iter().take(MAX_NAMES).map(|name| harmless_name(name)).collect();
    if let Some(more) = known.len().checked_sub(MAX_NAMES).filter(|more| *more > 0) {
        listed.push(format!("{more} more"));
    }
    CliError::Usage(format!("{flag} {shown:?} not found{hint}; the {kind} are {}", listed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> KnownObjects {
        let text = |text: &str| Some(text.to_owned());
        let pod = |name| PodRef { id: None, namespace: text("shop"), name: text(name), uid: None };
        let container = ContainerRef { id: text("c0ffee00"), name: text("main"), attempt: None };
        KnownObjects { pods: vec![pod("web-0"), pod("api")], containers: vec![container] }
    }

    #[test]
    fn an_unknown_pod_container_or_namespace_of_calls_is_an_error_that_names_those_that_exist() {
        let text = |text: &str| Some(text.to_owned());
        for (query, message) in [
            (
                CallsQuery { pod: text("web-1"), ..CallsQuery::default() },
                "--pod \"web-1\" not found, did you mean \"web-0\"?; the pods are shop/api, shop/web-0",
            ),
            (
                CallsQuery { container: text("mian"), ..CallsQuery::default() },
                "--container \"mian\" not found, did you mean \"main\"?; the containers are main",
            ),
            (
                CallsQuery { namespace: text("e2e"), ..CallsQuery::default() },
                "--namespace \"e2e\" not found; the namespaces are shop",
            ),
        ] {
            let error = known().check(&query).unwrap_err();
            assert!(matches!(error, CliError::Usage(_)));
            assert_eq!(error.to_string(), message);
        }
        let found = CallsQuery {
            pod: text("shop/api"),
            container: text("c0ff"),
            namespace: text("shop"),
            ..CallsQuery::default()
        };
        known().check(&found).unwrap();
    }
}
