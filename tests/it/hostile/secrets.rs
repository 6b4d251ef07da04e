//! Secrets of requests and manifests are searched in every output of probeshim, as text and as
//! base64.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use fixtures::wait::soon;
use probeshim::cri::runtime_client;
use probeshim::cri::v1::*;
use probeshim::socket::SocketPath;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tonic::Request;

use super::{assert_no_panic, http_of};
use crate::admin::{call, get, kept, until_shown};
use crate::playing::{self, POLITE};
use crate::procrun::{Runtime, shell};
use crate::program::{Place, Running};

/// Most verbose log filter.
const EVERYTHING: &str = "trace,h2=trace,tonic=trace,hyper=trace";

/// Name and text of an output of probeshim.
type Told = (String, String);

/// Returns every output of a running probeshim's commands and endpoints.
async fn answers(place: &Place, shim: &Running) -> Vec<Told> {
    let mut told = Vec::new();
    let last = kept(place, 1).await.iter().map(|call| call["id"].as_u64().unwrap()).max().unwrap();
    let numbers: Vec<String> = (1..=last).map(|id| id.to_string()).collect();
    let explained = numbers.iter().map(|id| vec!["explain", id.as_str()]);
    for arguments in [vec!["calls"], vec!["events"], vec!["status"]].into_iter().chain(explained) {
        for form in [&[][..], &["-o", "json"]] {
            let answer = place.ask(&[&arguments, form].concat()).await;
            told.push((arguments.join(" "), answer.stdout + &answer.stderr));
        }
    }
    let http = http_of(shim).await;
    for path in ["/metrics", "/metrics/probes", "/pods", "/readyz"] {
        told.push((path.to_owned(), get(&http, path).await));
    }
    for path in ["/v1/status", "/v1/calls", "/v1/events", "/v1/mode"] {
        let mut stream = UnixStream::connect(place.at("admin.sock")).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        soon(stream.read_to_end(&mut answer)).await.unwrap();
        told.push((path.to_owned(), String::from_utf8_lossy(&answer).into_owned()));
    }
    told
}

/// Returns every file below a directory.
fn files(folder: &Path) -> Vec<Told> {
    let mut told = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            told.extend(files(&entry.path()));
        } else if entry.file_type().unwrap().is_file() {
            let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
            told.push((entry.path().display().to_string(), text));
        }
    }
    told
}

/// Returns whether a text contains a secret, as it is or in base64 at any offset.
fn has(text: &str, secret: &str) -> bool {
    let encoded = |offset: usize| {
        let whole = BASE64_STANDARD_NO_PAD.encode([&vec![0; offset], secret.as_bytes()].concat());
        // Characters that also depend on the bytes before and after are omitted.
        whole[(offset * 8).div_ceil(6)..(offset + secret.len()) * 8 / 6].to_owned()
    };
    text.contains(secret) || (0..3).any(|offset| text.contains(&encoded(offset)))
}

/// Returns the names of the outputs that contain a secret.
fn places_of(secret: &str, told: &[Told]) -> BTreeSet<String> {
    told.iter().filter(|(_, text)| has(text, secret)).map(|(place, _)| place.clone()).collect()
}

/// Asserts that no secret is in an output for which it is not documented.
fn assert_untold(secrets: &[&str], told: &[Told], is_documented: impl Fn(&str) -> bool) {
    let mut leaks = Vec::new();
    for secret in secrets {
        let places = places_of(secret, told);
        leaks.extend(
            places.iter().filter(|place| !is_documented(place)).map(|place| format!("{secret}: {place}")),
        );
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn the_search_for_secrets_finds_plain_text_and_base64() {
    assert!(has("a hidden-secret b", "hidden-secret"));
    for before in ["", "a", "ab", "abc"] {
        let encoded = BASE64_STANDARD.encode(format!("{before}hidden-secret and more"));
        assert!(has(&encoded, "hidden-secret"), "{encoded}");
        assert!(!has(&encoded, "other-secret"), "{encoded}");
    }
}

#[tokio::test]
async fn no_output_contains_a_secret_of_a_request() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let mut command = place.watching_command_of(program, "shim.sock");
    command.args(["--http", "127.0.0.1:0", "--http-pods", "--enforce", "restart", "--log", EVERYTHING]);
    let mut shim = place.spawn(&mut command).await;
    let mut client = runtime_client(&SocketPath::new(&place.at("shim.sock")).unwrap());

    let mut pod = runtime.pod("pod");
    pod.labels.insert("a".into(), "hidden-label-of-pod".into());
    pod.annotations.insert("a".into(), "hidden-annotation-of-pod".into());
    let request = RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
    let pod_sandbox_id = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let mut config = shell("main", POLITE);
    config.args.push("shown-argument-of-container".into());
    config.envs = vec![KeyValue { key: "A".into(), value: b"hidden-env".to_vec() }];
    config.labels.insert("a".into(), "hidden-label".into());
    config.annotations.insert("a".into(), "hidden-annotation".into());
    config.mounts = vec![Mount {
        host_path: "/hidden-host-path".into(),
        container_path: "/hidden-mount".into(),
        ..Mount::default()
    }];
    let request = CreateContainerRequest { pod_sandbox_id, config: Some(config), sandbox_config: Some(pod) };
    let container_id = client.create_container(request).await.unwrap().into_inner().container_id;
    client.start_container(StartContainerRequest { container_id: container_id.clone() }).await.unwrap();

    // The shell assembles the output, so that no argument contains it.
    let script = "printf 'hidden-%s' output; printf 'hidden-%s' errors >&2; exit 3";
    let cmd = ["sh", "-c", script, "shown-argument"].map(str::to_owned).into();
    let mut request = Request::new(ExecSyncRequest { container_id, cmd, timeout: 60 });
    request.metadata_mut().insert("authorization", "Bearer hidden-header".parse().unwrap());
    request
        .metadata_mut()
        .insert_bin("hidden-bin", tonic::metadata::MetadataValue::from_bytes(b"hidden-binary-header"));
    let answer = client.exec_sync(request).await.unwrap().into_inner();
    assert_eq!((&answer.stdout[..], &answer.stderr[..]), (&b"hidden-output"[..], &b"hidden-errors"[..]));
    let filter = ContainerFilter {
        label_selector: [("a".to_owned(), "hidden-selector".to_owned())].into(),
        ..ContainerFilter::default()
    };
    client.list_containers(ListContainersRequest { filter: Some(filter) }).await.unwrap();
    let auth = AuthConfig {
        username: "hidden-username".into(),
        password: "hidden-password".into(),
        auth: "hidden-auth".into(),
        identity_token: "hidden-identity-token".into(),
        registry_token: "hidden-registry-token".into(),
        ..AuthConfig::default()
    };
    let image = ImageSpec { image: "registry.test/i".into(), ..ImageSpec::default() };
    let pull = PullImageRequest { image: Some(image), auth: Some(auth), sandbox_config: None };
    let pull = prost::Message::encode_to_vec(&pull);
    call(
        &shim,
        &[
            ("/runtime.v1.ImageService/PullImage", pull),
            ("/a.B/C", b"hidden-body-of-unknown-method".to_vec()),
        ],
    )
    .await;

    until_shown(&place, &["calls"], |calls| {
        calls.as_array()?.iter().any(|call| call["method"] == "/a.B/C").then_some(())
    })
    .await;
    until_shown(&place, &["status"], |status| status["pods"][0]["containers"][0]["id"].as_str().map(drop))
        .await;
    let mut told = answers(&place, &shim).await;
    assert_no_panic(&shim).await;
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    told.extend(files(&place.at("state")));
    told.push(("log".to_owned(), fs::read_to_string(&shim.log).unwrap()));

    let state = place.at("state/state.redb").display().to_string();
    // Arguments that are shown intentionally are found, which proves that the search works.
    let arguments = places_of("shown-argument", &told);
    for shown in ["calls", "explain", "/v1/calls"] {
        assert!(arguments.iter().any(|place| place.starts_with(shown)), "{shown}: {arguments:?}");
    }
    assert!(arguments.iter().any(|place| place.contains("/calls/calls-")), "{arguments:?}");
    // Requests that may have to be repeated are stored, readable by root only.
    for kept in ["hidden-env", "hidden-host-path"] {
        assert_eq!(places_of(kept, &told), BTreeSet::from([state.clone()]), "{kept}");
    }
    assert_untold(&["hidden-mount"], &told, |place| place == state);
    // A PodList has labels, annotations and commands. It is served because of --http-pods.
    let in_pods = ["hidden-annotation", "shown-argument-of-container"];
    assert_untold(&in_pods, &told, |place| place == state || place == "/pods");
    // The admin socket has the labels of pods too, for selectors.
    let with_labels = [state.as_str(), "/pods", "/v1/status", "status"];
    assert_untold(&["hidden-label"], &told, |place| with_labels.contains(&place));
    let nowhere = [
        "hidden-output",
        "hidden-errors",
        "hidden-header",
        "hidden-binary-header",
        "hidden-selector",
        "hidden-username",
        "hidden-password",
        "hidden-auth",
        "hidden-identity-token",
        "hidden-registry-token",
        "hidden-body-of-unknown-method",
    ];
    assert_untold(&nowhere, &told, |_| false);
    runtime.end().await;
}

#[tokio::test]
async fn no_output_contains_a_secret_of_a_manifest() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let encoded = |text: &str| BASE64_STANDARD.encode(text);
    let registry = encoded(
        r#"{"auths": {"registry.test": {"username": "hidden-username", "password": "hidden-password"}}}"#,
    );
    let manifests = format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: s, namespace: test}}
data: {{token: {}}}
stringData: {{other: hidden-string-data}}
---
apiVersion: v1
kind: Secret
metadata: {{name: pull, namespace: test}}
type: kubernetes.io/dockerconfigjson
data: {{.dockerconfigjson: {registry}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: a, namespace: test}}
spec:
  terminationGracePeriodSeconds: 2
  imagePullSecrets: [{{name: pull}}]
  volumes: [{{name: v, secret: {{secretName: s}}}}]
  containers:
  - name: main
    image: registry.test/i
    command: [sh, -c, \"{POLITE}\", shown-argument, $(LITERAL)]
    env:
    - {{name: LITERAL, value: hidden-env}}
    - {{name: BY_REFERENCE, valueFrom: {{secretKeyRef: {{name: s, key: token}}}}}}
    envFrom: [{{secretRef: {{name: s}}}}]
    volumeMounts: [{{name: v, mountPath: /v}}]
    livenessProbe: {{periodSeconds: 1, failureThreshold: 1000, httpGet: {{port: 1, host: 127.0.0.1, httpHeaders: [{{name: Authorization, value: hidden-header}}]}}}}
",
        encoded("hidden-data")
    );
    fs::write(place.at("pods.yaml"), manifests).unwrap();
    let mut shim = playing::begin(
        &place,
        &[place.at("pods.yaml").to_str().unwrap(), "--http-pods", "--log", EVERYTHING],
    );
    shim.logged("playing").await;
    playing::told(&place, "Unhealthy", "Liveness probe failed").await;
    call(&shim, &[("/a.B/C", Vec::new())]).await;
    let mut told = answers(&place, &shim).await;
    told.push(("describe test/a".to_owned(), place.ask(&["describe", "test/a"]).await.stdout));
    told.push(("pods test/a -o json".to_owned(), place.ask(&["pods", "test/a", "-o", "json"]).await.stdout));
    // The volumes exist while the pod exists.
    told.extend(files(&place.at("state")));
    assert_no_panic(&shim).await;
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(143));
    told.push(("log".to_owned(), fs::read_to_string(&shim.log).unwrap()));

    assert!(places_of("shown-argument", &told).contains("/pods"), "{:?}", places_of("shown-argument", &told));
    let state = place.at("state/state.redb").display().to_string();
    let volumes = place.at("state/pods").display().to_string();
    assert!(places_of("hidden-data", &told).iter().any(|place| place.starts_with(&volumes)));
    let of_pod = ["hidden-data", "hidden-string-data", "hidden-env", "hidden-header"];
    assert_untold(&of_pod, &told, |place| place == state || place.starts_with(&volumes));
    assert_untold(&["hidden-username", "hidden-password"], &told, |_| false);
    playing::is_clean(&place, runtime).await;
}
