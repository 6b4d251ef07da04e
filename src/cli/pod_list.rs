//! The pods that a command shows: arguments that select them, and their query.

use std::collections::BTreeSet;

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::CliError;
use super::label_selector::LabelSelector;
use super::pod_arg::{NamespaceArg, find_pod, is_in};
use super::pod_summary::by_pod;
use crate::admin::Client;
use crate::admin::api::StatusPod;

/// Arguments that select pods.
#[derive(Debug, Args)]
pub(super) struct PodListArgs {
    /// Show only these pods: NAME, NAMESPACE/NAME or uid
    #[arg(value_name = "POD")]
    pub(super) pods: Vec<String>,

    #[command(flatten)]
    namespace: NamespaceArg,

    /// Show the namespace of each pod. Pods of all namespaces are shown also without this flag
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Show only pods with these labels, such as app=web, app!=web, 'app in (web,db)', app or !app;
    /// separated by commas
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true)]
    selector: Option<LabelSelector>,
}

/// The part of a status with the pods.
#[derive(Deserialize)]
struct PodsOfStatus {
    mode: String,
    pods: Vec<Box<RawValue>>,
}

/// The sandboxes of the pods on the node.
pub(super) struct PodList {
    /// Enforcement mode.
    pub(super) mode: String,
    pub(super) sandboxes: Vec<StatusPod>,
    /// JSON of `sandboxes`, with fields that this version does not know.
    json: Vec<Box<RawValue>>,
}

impl PodList {
    /// Queries the pods.
    pub(super) async fn query(client: &Client) -> Result<Self, CliError> {
        let answer = client.status().await?;
        let not_one = "the response is not a status";
        let PodsOfStatus { mode, pods: json } = serde_json::from_slice(&answer).context(not_one)?;
        let sandboxes: Result<Vec<StatusPod>, _> =
            json.iter().map(|pod| serde_json::from_str(pod.get())).collect();
        Ok(Self { mode, sandboxes: sandboxes.context(not_one)?, json })
    }

    /// Returns the JSON of a sandbox in `sandboxes`.
    pub(super) fn json(&self, sandbox: &StatusPod) -> Option<&RawValue> {
        let index = self.sandboxes.iter().position(|known| std::ptr::eq(known, sandbox))?;
        self.json.get(index).map(AsRef::as_ref)
    }
}

impl PodListArgs {
    /// Returns an error if a named pod does not exist.
    pub(super) fn validate(&self, list: &PodList) -> Result<(), CliError> {
        for name in &self.pods {
            find_pod(&list.sandboxes, name, self.namespace.namespace.as_deref())?;
        }
        Ok(())
    }

    /// Returns the selected pods, each with its sandboxes.
    pub(super) fn select<'a>(&self, list: &'a PodList) -> Vec<Vec<&'a StatusPod>> {
        let namespace = self.namespace.namespace.as_deref();
        let named: Vec<&StatusPod> =
            self.pods.iter().filter_map(|name| find_pod(&list.sandboxes, name, namespace).ok()).collect();
        let is_named = |pod: &&StatusPod| {
            self.pods.is_empty()
                || named.iter().any(|named| (&named.namespace, &named.name) == (&pod.namespace, &pod.name))
        };
        let is_selected = |pod: &&StatusPod| {
            is_in(pod, namespace)
                && self.selector.as_ref().is_none_or(|selector| selector.matches(&pod.labels))
                && is_named(pod)
        };
        let mut selected: Vec<&StatusPod> = list.sandboxes.iter().filter(is_selected).collect();
        // Stable, so that the sandboxes of a pod keep their order.
        selected.sort_by_key(|pod| (&pod.namespace, &pod.name));
        by_pod(&selected)
    }

    /// Returns whether only some pods are selected.
    pub(super) fn is_selective(&self) -> bool {
        !self.pods.is_empty() || self.namespace.namespace.is_some() || self.selector.is_some()
    }

    /// Returns whether the namespaces of these pods are shown.
    pub(super) fn shows_namespaces(&self, pods: &[Vec<&StatusPod>]) -> bool {
        let namespaces: BTreeSet<_> = pods.iter().flatten().map(|pod| &pod.namespace).collect();
        self.all_namespaces || namespaces.len() > 1
    }

    /// Returns whether a watch shows the namespaces of pods: later pods may be in others.
    pub(super) fn watch_shows_namespaces(&self) -> bool {
        self.namespace.namespace.is_none() && self.pods.is_empty()
    }

    /// Returns the remark about an empty list.
    pub(super) fn nothing(&self, objects: &str) -> String {
        let matching = if self.selector.is_some() { " with these labels" } else { "" };
        let namespace = self.namespace.namespace.as_deref();
        let place = namespace.map(|namespace| format!(" in namespace {namespace:?}")).unwrap_or_default();
        format!("no {objects}{matching}{place}\n")
    }
}
