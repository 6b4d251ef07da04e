//! Secrets of pods, which other users of the machine must not be able to read.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::admin::{get, until_shown};
use crate::playing::{POLITE, begin, pod};
use crate::procrun::Runtime;
use crate::program::Place;

/// Returns a pod with a secret in each field that can have one.
fn secretive() -> String {
    let probe = ", readinessProbe: {periodSeconds: 1, httpGet: {port: 1, path: \"/ready?token='s3cret-query'\", \
                 httpHeaders: [{name: X, value: s3cret-header}]}}, \
                 livenessProbe: {exec: {command: ['true', s3cret-argument]}}, \
                 lifecycle: {preStop: {httpGet: {port: 1, path: \"/stop?token='s3cret-hook'\"}}}, \
                 env: [{name: KEY, value: s3cret-env}]";
    pod("a", POLITE, "", probe)
        .replace("namespace: test}", "namespace: test, annotations: {note: s3cret-annotation}}")
}

/// Plays the pod until its probe has failed. Returns the pods on the public address, the pod on the
/// admin socket, and the log.
async fn told(arguments: &[&str]) -> [String; 3] {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    fs::write(place.at("pods.yaml"), secretive()).unwrap();
    let manifest = place.at("pods.yaml");
    let mut running = begin(&place, &[&[manifest.to_str().unwrap()], arguments].concat());
    running.logged("playing").await;
    until_shown(&place, &["events"], |events| {
        events.as_array()?.iter().any(|event| event["reason"] == "Unhealthy").then_some(())
    })
    .await;
    let status = place.ask(&["status", "-o", "json"]).await.json();
    let http = status["http"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let public = get(&http, "/pods").await;
    let private = place.ask(&["pods", "a", "-o", "json"]).await.stdout;
    let metrics = get(&http, "/metrics/probes").await;
    assert!(!metrics.contains("s3cret"), "{metrics}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    let events = fs::read_to_string(&running.log).unwrap();
    runtime.end().await;
    [public, private, events]
}

/// Returns the names of the secrets in a text.
fn secrets(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = text
        .split("s3cret-")
        .skip(1)
        .map(|rest| &rest[..rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len())])
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[tokio::test]
async fn pods_are_on_the_public_address_only_with_the_flag_http_pods() {
    let [public, private, _] = told(&[]).await;
    assert!(public.starts_with("HTTP/1.1 404") && public.contains("--http-pods"), "{public}");
    assert_eq!(secrets(&public), Vec::<&str>::new());
    assert_eq!(secrets(&private), ["annotation", "argument", "hook", "query"]);
    let [public, ..] = told(&["--http-pods"]).await;
    assert!(public.starts_with("HTTP/1.1 200"), "{public}");
    assert_eq!(
        secrets(&public),
        ["annotation", "argument", "hook", "query"],
        "/pods must have a kubelet's fields"
    );
    let list: Value = serde_json::from_str(public.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn redaction_also_removes_query_strings() {
    let [public, private, log] = told(&["--http-pods", "--redact-commands"]).await;
    for text in [&public, &private] {
        assert_eq!(secrets(text), ["annotation"], "{text}");
        assert!(text.contains("/ready?redacted") && text.contains("/stop?redacted"), "{text}");
    }
    assert_eq!(secrets(&log), Vec::<&str>::new(), "{log}");
}

#[tokio::test]
async fn events_have_no_query_strings_if_commands_are_redacted() {
    for (arguments, shown) in
        [(&[][..], "/ready?token='s3cret-query'"), (&["--redact-commands"], "/ready?redacted")]
    {
        let place = Place::new();
        let runtime = Runtime::start_at(&place.at("runtime.sock"));
        fs::write(place.at("pods.yaml"), secretive()).unwrap();
        let manifest = place.at("pods.yaml");
        let mut running = begin(&place, &[&[manifest.to_str().unwrap()], arguments].concat());
        running.logged("playing").await;
        let message = until_shown(&place, &["events"], |events| {
            let unhealthy = events.as_array()?.iter().find(|event| event["reason"] == "Unhealthy")?;
            unhealthy["message"].as_str().map(str::to_owned)
        });
        let message = message.await;
        assert!(message.contains(shown), "{message}");
        running.signal(Signal::TERM);
        assert_eq!(running.ended().await, Some(143));
        runtime.end().await;
    }
}

#[tokio::test]
async fn errors_about_manifests_do_not_show_the_data_of_config_maps() {
    let place = Place::new();
    for data in ["data: {a/b: s3cret}", "binaryData: {a: s3cret}", "data: {a: 7531902}", "dat: s3cret"] {
        let manifest = format!("{{kind: ConfigMap, apiVersion: v1, metadata: {{name: a}}, {data}}}");
        let answer = crate::playing::played(&place, &manifest, &[]).await;
        assert_eq!(answer.code, Some(2), "{answer:?}");
        let is_reported =
            ["Invalid value: ", "unknown field \"dat\""].iter().any(|it| answer.stderr.contains(it));
        assert!(is_reported, "{answer:?}");
        assert!(!answer.stderr.contains("s3cret") && !answer.stderr.contains("7531902"), "{answer:?}");
    }
}
