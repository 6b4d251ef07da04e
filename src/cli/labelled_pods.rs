//! The pods with certain labels, to select calls and events about them.

use std::collections::BTreeSet;

use super::CliError;
use super::label_selector::LabelSelector;
use super::query::query_status;
use crate::admin::Client;
use crate::admin::api::StatusPod;

/// Namespaces and names of the pods on the node whose labels match a selector.
#[derive(Debug, Default)]
pub(super) struct LabelledPods(BTreeSet<(String, String)>);

impl LabelledPods {
    /// Queries the pods.
    pub(super) async fn query(client: &Client, selector: &LabelSelector) -> Result<Self, CliError> {
        Ok(Self::new(&query_status(client).await?.pods, selector))
    }

    fn new(pods: &[StatusPod], selector: &LabelSelector) -> Self {
        let selected = pods.iter().filter(|pod| selector.matches(&pod.labels));
        Self(selected.filter_map(|pod| Some((pod.namespace.clone()?, pod.name.clone()?))).collect())
    }

    /// Returns whether the pod with this namespace and name is one of them.
    pub(super) fn has(&self, namespace: Option<&str>, name: Option<&str>) -> bool {
        let (Some(namespace), Some(name)) = (namespace, name) else { return false };
        self.0.contains(&(namespace.to_owned(), name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_selected_by_their_labels() {
        let pod = |name: &str, app: &str| {
            serde_json::json!({
                "namespace": "shop", "name": name, "uid": name, "id": name, "sandbox": "ready", "ip": null, "source": "list",
                "labels": {"app": app}, "containers": [],
            })
        };
        let pods: Vec<StatusPod> =
            serde_json::from_value(serde_json::json!([pod("web-0", "web"), pod("db-0", "db")])).unwrap();
        let selected = LabelledPods::new(&pods, &"app=web".parse().unwrap());
        let has = |namespace, name| selected.has(namespace, name);
        assert!(has(Some("shop"), Some("web-0")));
        assert!(!has(Some("shop"), Some("db-0")) && !has(Some("e2e"), Some("web-0")) && !has(None, None));
    }
}
