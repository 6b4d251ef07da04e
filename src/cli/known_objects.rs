//! The objects that a running probeshim knows, for the error about a name that none of them has.

use std::collections::BTreeSet;

use super::CliError;
use super::query::{query_calls, query_status};
use crate::admin::Client;
use crate::admin::api::{CallsQuery, Container, Event, EventsQuery, ListedCall, Peer, Pod, Status};
use crate::object_ref::{ContainerRef, PodRef};
use crate::suggest::did_you_mean;
use crate::terminal::{MAX_NAME_WIDTH, harmless_name, shortened};

/// Maximum number of names in the error for an unknown name.
const MAX_NAMES: usize = 10;

/// The pods, containers and clients that exist or have calls.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    pods: Vec<PodRef>,
    containers: Vec<ContainerRef>,
    clients: Vec<Peer>,
}

/// Returns an error if no namespace, pod, container or client with the name in the query exists
/// or has calls.
pub(super) async fn check_call_names(client: &Client, query: &CallsQuery) -> Result<(), CliError> {
    let CallsQuery { namespace, pod, container, peer, .. } = query;
    if [namespace, pod, container, peer].into_iter().all(Option::is_none) {
        return Ok(());
    }
    let recorded = query_calls(client, &CallsQuery::default()).await?;
    KnownObjects::new(&query_status(client).await?, &recorded).check_calls(query)
}

/// Returns an error if no pod with the namespace and name in the query exists, or has calls or
/// events. `events` are all recorded events.
pub(super) async fn check_event_names(
    client: &Client,
    query: &EventsQuery,
    events: &[Event],
) -> Result<(), CliError> {
    if query.namespace.is_none() && query.pod.is_none() {
        return Ok(());
    }
    let recorded = query_calls(client, &CallsQuery::default()).await?;
    let known = KnownObjects::new(&query_status(client).await?, &recorded).and_events(events);
    known.check_pods(query.namespace.as_deref(), query.pod.as_deref())
}

impl KnownObjects {
    pub(super) fn new(status: &Status, recorded: &[ListedCall]) -> Self {
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
        known.clients = recorded.iter().filter_map(ListedCall::peer).cloned().collect();
        known
    }

    /// Adds the pods of events.
    fn and_events(mut self, events: &[Event]) -> Self {
        self.pods.extend(events.iter().filter(|event| event.pod.is_some()).map(|event| PodRef {
            namespace: event.namespace.clone(),
            name: event.pod.clone(),
            ..PodRef::default()
        }));
        self
    }

    /// Returns an error if a query of calls has a name that no known object has.
    pub(super) fn check_calls(&self, query: &CallsQuery) -> Result<(), CliError> {
        self.check_pods(query.namespace.as_deref(), query.pod.as_deref())?;
        let is_container = |name: &&str| self.containers.iter().any(|container| container.is_named(name));
        if let Some(name) = query.container.as_deref().filter(|name| !is_container(name)) {
            let names = self.containers.iter().filter_map(|container| container.name.as_deref()).collect();
            return Err(unknown("--container", name, "containers", &names, &names));
        }
        let is_client = |name: &&str| self.clients.iter().any(|client| is_named(client, name));
        if let Some(name) = query.peer.as_deref().filter(|name| !is_client(name)) {
            let names = self.clients.iter().filter_map(|client| client.program.as_deref()).collect();
            return Err(unknown("--peer", name, "clients", &names, &names));
        }
        Ok(())
    }

    /// Returns an error if no known pod has this name, or is in this namespace.
    fn check_pods(&self, namespace: Option<&str>, pod: Option<&str>) -> Result<(), CliError> {
        if let Some(namespace) = namespace {
            let names: BTreeSet<&str> = self.pods.iter().filter_map(|pod| pod.namespace.as_deref()).collect();
            if !names.contains(namespace) {
                return Err(unknown("--namespace", namespace, "namespaces", &names, &names));
            }
        }
        if let Some(name) = pod.filter(|name| !self.pods.iter().any(|pod| pod.is_named(name))) {
            let whole: BTreeSet<String> = self.pods.iter().filter_map(whole_name).collect();
            let whole = whole.iter().map(String::as_str).collect();
            let names = self.pods.iter().filter_map(|pod| pod.name.as_deref()).collect();
            return Err(unknown("--pod", name, "pods", &whole, &names));
        }
        Ok(())
    }
}

/// Returns whether a text names a client: the name of its program, or its pid.
fn is_named(client: &Peer, text: &str) -> bool {
    client.program.as_deref() == Some(text) || client.pid.is_some_and(|pid| pid.to_string() == text)
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
        let client = Peer { uid: 0, program: text("kubelet"), pid: Some(4711) };
        KnownObjects {
            pods: vec![pod("web-0"), pod("api")],
            containers: vec![container],
            clients: vec![client],
        }
    }

    #[test]
    fn an_unknown_pod_container_namespace_or_client_is_an_error_that_names_those_that_exist() {
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
            (
                CallsQuery { peer: text("kubelt"), ..CallsQuery::default() },
                "--peer \"kubelt\" not found, did you mean \"kubelet\"?; the clients are kubelet",
            ),
        ] {
            let error = known().check_calls(&query).unwrap_err();
            assert!(matches!(error, CliError::Usage(_)));
            assert_eq!(error.to_string(), message);
        }
        let found = CallsQuery {
            pod: text("shop/api"),
            container: text("c0ff"),
            namespace: text("shop"),
            ..CallsQuery::default()
        };
        known().check_calls(&found).unwrap();
        for peer in ["kubelet", "4711"] {
            known().check_calls(&CallsQuery { peer: text(peer), ..CallsQuery::default() }).unwrap();
        }
        let event = |namespace: &str, pod: &str| -> Event {
            serde_json::from_value(serde_json::json!({
                "time": "", "type": "Normal", "reason": "", "namespace": namespace, "pod": pod, "message": "", "count": 1,
            }))
            .unwrap()
        };
        let of_events = known().and_events(&[event("e2e", "gone")]);
        of_events.check_pods(Some("e2e"), Some("gone")).unwrap();
        let error = of_events.check_pods(None, Some("nope")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--pod \"nope\" not found; the pods are e2e/gone, shop/api, shop/web-0"
        );
    }
}
