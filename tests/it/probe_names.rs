//! Names of probes from the API server of a kubelet.

mod api_server;

use std::fs;
use std::path::PathBuf;

use fixtures::authority::Authority;
use serde_json::{Value, json};

use crate::admin::until_shown;
use crate::probing::{run, told};
use crate::procrun::Runtime;
use crate::program::{Place, Running};
use api_server::{ApiServer, NODE, WatchAction};

/// A probeshim in front of procrun with a pod `web`, and the API server of its kubelet.
struct ApiNode {
    place: Place,
    authority: Authority,
    api_server: ApiServer,
    runtime: Runtime,
    _shim: Running,
}

impl ApiNode {
    async fn start(user: impl FnOnce(&Authority) -> Value, node_name: &str) -> Self {
        let place = Place::new();
        let authority = Authority::create(&place.at(""), "authority");
        let api_server = ApiServer::start(&authority, list(10, &[pod(3, &["liveness"])])).await;
        let kubeconfig = api_server.kubeconfig(&place.at(""), &authority, &user(&authority));
        place.configure(&format!("kubelet: {{kubeconfig: {}{node_name}}}", kubeconfig.display()));
        let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
        run(&mut runtime, "web").await;
        let shim = place.start_watching(&["--enforce", "dry-run"]).await;
        Self { place, authority, api_server, runtime, _shim: shim }
    }

    /// Waits until the pod has probes of these types, all from the API server.
    async fn has_probes(&self, types: &[&str]) {
        until_shown(&self.place, &["status"], |status| {
            let pod = status["pods"].as_array().unwrap().iter().find(|known| known["name"] == "web")?;
            let probes = pod["containers"][0]["probes"].as_array()?;
            let sources: Vec<&Value> = probes.iter().map(|probe| &probe["source"]).collect();
            let known: Vec<&str> = probes.iter().map(|probe| probe["type"].as_str().unwrap()).collect();
            (known == types && sources.iter().all(|source| **source == "api-server")).then_some(())
        })
        .await;
    }

    /// Waits for the nth watch, and returns its path.
    async fn watch(&self, nth: usize) -> String {
        self.api_server.request(nth, |path| path.contains("watch=true")).await
    }

    async fn source(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        until_shown(&self.place, &["status"], |status| {
            let sources = status["probeNames"]["sources"].as_array().unwrap();
            sources.iter().find(|source| source["source"] == "api-server" && is_it(source)).cloned()
        })
        .await
    }
}

/// Returns the pod as the API server has it.
fn pod(version: u32, probes: &[&str]) -> Value {
    let mut main = json!({"name": "main"});
    for probe in probes {
        main[format!("{probe}Probe")] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    }
    json!({
        "metadata": {"name": "web", "namespace": "it", "uid": "uid", "resourceVersion": version.to_string()},
        "spec": {"containers": [main]},
    })
}

fn list(version: u32, pods: &[Value]) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "items": pods})
}

/// Writes a certificate of a node's kubelet, and returns the user of a kubeconfig with it.
fn node_user(authority: &Authority, node: &str) -> Value {
    let (certificate, key) =
        authority.issue_to("kubelet-client-current", &format!("system:node:{node}"), "system:nodes");
    json!({"client-certificate": certificate, "client-key": key})
}

#[tokio::test]
async fn the_pods_of_a_node_are_listed_and_watched_at_its_api_server() {
    let node = ApiNode::start(|authority| node_user(authority, NODE), "").await;
    let server = &node.api_server;
    node.has_probes(&["liveness"]).await;
    let source = node.source(|source| source["pods"] == 1).await;
    assert!(
        source["description"].as_str().unwrap().starts_with("the API server https://127.0.0.1:"),
        "{source}"
    );
    let watch = node.watch(0).await;
    assert!(watch.contains("resourceVersion=10&") && watch.contains("allowWatchBookmarks=true"), "{watch}");

    server.act(WatchAction::Event("MODIFIED", pod(11, &["readiness", "liveness"])));
    node.has_probes(&["readiness", "liveness"]).await;
    // The next watch begins where this one has ended.
    server.act(WatchAction::Event("BOOKMARK", json!({"kind": "Pod", "metadata": {"resourceVersion": "20"}})));
    server.act(WatchAction::End);
    let watch = node.watch(1).await;
    assert!(watch.contains("resourceVersion=20&"), "{watch}");

    // The certificate is replaced, and the connection breaks.
    let before = fs::read_to_string(certificate(&node)).unwrap();
    node_user(&node.authority, NODE);
    assert_ne!(fs::read_to_string(certificate(&node)).unwrap(), before);
    server.act(WatchAction::Break);
    let watch = node.watch(2).await;
    assert!(watch.contains("resourceVersion=20&"), "it is resumed: {watch}");
    assert_eq!(server.requests().iter().filter(|path| !path.contains("watch=true")).count(), 1);
    server.act(WatchAction::Event("MODIFIED", pod(25, &["startup"])));
    node.has_probes(&["startup"]).await;

    // The version is too old for a watch.
    server.set_list(list(40, &[pod(35, &["liveness"])]));
    let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
    server.act(WatchAction::Event("ERROR", gone));
    node.has_probes(&["liveness"]).await;
    let lists: Vec<String> =
        server.requests().into_iter().filter(|path| !path.contains("watch=true")).collect();
    assert!(
        lists.last().is_some_and(|list| !list.contains("resourceVersion")),
        "not from the cache: {lists:?}"
    );
    node.watch(3).await;
    server.act(WatchAction::Event("DELETED", pod(41, &[])));
    node.source(|source| source["pods"] == 0).await;
    node.runtime.end().await;
}

fn certificate(node: &ApiNode) -> PathBuf {
    node.place.at("kubelet-client-current.pem")
}

#[tokio::test]
async fn a_node_that_the_api_server_does_not_permit_is_reported_with_its_message() {
    let node = ApiNode::start(|authority| node_user(authority, "node-2"), "").await;
    let message = "status 403 Forbidden: pods is forbidden: User";
    told(&node.place, "", "SpecSourceUnavailable", message, 1).await;
    let source = node.source(|source| source["problem"].is_string()).await;
    assert!(source["problem"].as_str().unwrap().contains("spec.nodeName field selector"), "{source}");
    let remedy = node.place.ask(&["status", "-o", "json"]).await.json()["probeNames"]["remedy"].clone();
    assert!(remedy.as_str().unwrap().contains(message), "{remedy}");
    node.runtime.end().await;
}

#[tokio::test]
async fn a_token_needs_the_name_of_the_node() {
    let token = |_: &Authority| json!({"token": "of-a-service-account"});
    let node = ApiNode::start(token, "").await;
    told(&node.place, "", "SpecSourceUnavailable", "nodeName must be set: the user of ", 1).await;
    assert!(node.api_server.requests().is_empty());
    node.runtime.end().await;
    let node = ApiNode::start(token, ", nodeName: node-1").await;
    node.has_probes(&["liveness"]).await;
    node.runtime.end().await;
}

#[tokio::test]
async fn a_kubeconfig_that_appears_later_is_used() {
    let place = Place::new();
    let path = place.at("kubelet.conf");
    place.configure(&format!("kubelet: {{kubeconfig: {}}}", path.display()));
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    let _shim = place.start_watching(&["--enforce", "dry-run"]).await;
    told(&place, "", "SpecSourceUnavailable", "kubelet.conf: No such file", 1).await;
    let authority = Authority::create(&place.at(""), "authority");
    let api_server = ApiServer::start(&authority, list(10, &[pod(3, &["liveness"])])).await;
    api_server.kubeconfig(&place.at(""), &authority, &node_user(&authority, NODE));
    told(&place, "", "SpecResolved", "kubelet.conf: No such file", 1).await;
    runtime.end().await;
}
