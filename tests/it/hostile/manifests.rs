//! Hostile manifests and damaged call records are refused with a message, within limits, and create
//! nothing outside their directory.

use std::fs;
use std::process::Command;

use fixtures::http2::runtime::Runtime;

use super::assert_no_panic;
use crate::admin::{call, kept};
use crate::playing::played;
use crate::program::{Answer, Place};

/// Maximum address space in KiB for the check of one manifest. Without limits each of these
/// manifests would take more, or would never end.
const ADDRESS_SPACE: u32 = 2 << 20;

/// Returns ten levels of lists, each with nine aliases of the previous level.
fn billion_laughs() -> String {
    let first = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    (1..10).fold(first, |text, level| {
        let names = vec![format!("*a{}", level - 1); 9].join(", ");
        text + &format!("a{level}: &a{level} [{names}]\n")
    })
}

#[tokio::test]
async fn hostile_manifests_are_refused_with_a_message() {
    let pod = |more: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [{{name: a, image: i{more}}}]}}}}"
        )
    };
    let utf16: Vec<u8> = format!("\u{feff}{}", pod("")).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let place = Place::new();
    for (what, name, bytes) in [
        ("aliases of aliases", "a.yaml", billion_laughs().into_bytes()),
        ("an alias of itself", "a.yaml", b"a: &a [*a]".to_vec()),
        ("100,000 levels of YAML", "a.yaml", "[".repeat(100_000).into_bytes()),
        ("200,000 levels of JSON", "a.json", "{\"a\":".repeat(200_000).into_bytes()),
        (
            "3,000 levels of blocks",
            "a.yaml",
            (0..3000).map(|level| " ".repeat(level) + "a:\n").collect::<String>().into_bytes(),
        ),
        ("a scalar of 70 MiB", "a.yaml", [b"a: ".to_vec(), vec![b'x'; 70 << 20]].concat()),
        ("a key twice", "a.yaml", b"kind: Pod\nkind: Job\n".to_vec()),
        ("a NUL", "a.yaml", b"kind: Pod\0\nmetadata: {name: p}".to_vec()),
        ("UTF-16", "a.yaml", utf16),
        ("no UTF-8", "a.yaml", b"kind: \xff\xfe\xfd".to_vec()),
        (
            "a number beyond all",
            "a.yaml",
            pod(", livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1e400}").into_bytes(),
        ),
        ("a document cut off", "a.json", b"{\"kind\": \"Pod\", \"metadata\": {".to_vec()),
    ] {
        let file = place.at(name);
        fs::write(&file, bytes).unwrap();
        let mut command = Command::new("sh");
        let run = format!("ulimit -v {ADDRESS_SPACE}; exec \"$0\" check \"$1\"");
        command.args(["-c", &run, env!("CARGO_BIN_EXE_probeshim")]).arg(&file);
        let answer = Answer::to(command).await;
        assert_eq!(answer.code, Some(2), "{what}: {}", &answer.stderr.chars().take(500).collect::<String>());
        assert!(answer.stderr.contains(&format!("error: {}:", file.display())), "{what}: {}", answer.stderr);
        assert!(
            answer.stderr.len() < 4096 && !answer.stderr.contains("panicked"),
            "{what}: {}",
            answer.stderr
        );
    }
}

#[tokio::test]
async fn manifests_with_more_pods_together_than_the_maximum_are_refused() {
    let place = Place::new();
    let deployments = |count: usize, replicas: usize| -> String {
        let one = |number: usize| {
            format!(
                "{{kind: Deployment, apiVersion: apps/v1, metadata: {{name: d{number}}}, spec: {{replicas: {replicas}, \
                 selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, \
                 spec: {{containers: [{{name: a, image: i}}]}}}}}}}}\n---\n"
            )
        };
        (0..count).map(one).collect()
    };
    let jobs: String = (0..2)
        .map(|number| {
            deployments(1, 1)
                .replace("kind: Deployment, apiVersion: apps/v1", "kind: Job, apiVersion: batch/v1")
                .replace("name: d0", &format!("name: j{number}"))
                .replace("replicas: 1, selector: {matchLabels: {a: b}}", "completions: 600")
                .replace("spec: {containers", "spec: {restartPolicy: Never, containers")
        })
        .collect();
    for (manifests, arguments, expected) in [
        (jobs, &[][..], "have 1200 pods together, and the maximum is 1000"),
        (deployments(1000, 1000), &[], "have 1000000 pods together, and the maximum is 1000"),
        (deployments(2, 501), &[], "have 1002 pods together, and the maximum is 1000"),
        (deployments(2, 2), &["--max-pods", "3"], "have 4 pods together, and the maximum is 3"),
        (deployments(1, 1), &["--max-pods", "0"], "1 to 10000"),
    ] {
        let answer = played(&place, &manifests, arguments).await;
        assert_eq!(answer.code, Some(2), "{expected}: {answer:?}");
        assert!(answer.stderr.contains(expected), "{expected}: {}", answer.stderr);
        assert!(!place.at("state").exists(), "{expected}: nothing was started");
    }
}

#[tokio::test]
async fn names_in_manifests_create_no_files_outside_their_directory() {
    let place = Place::new();
    let pod = |metadata: &str, container: &str, spec: &str, of_container: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{{metadata}}}, spec: {{restartPolicy: Never{spec}, containers: [{{name: {container}, image: i, \
             command: ['true']{of_container}}}]}}}}\n---\n"
        )
    };
    let volume = |number: u32, volume: &str, mount: &str| {
        pod(
            &format!("name: p{number}"),
            "a",
            &format!(", volumes: [{volume}]"),
            &format!(", volumeMounts: [{{name: v, mountPath: /v{mount}}}]"),
        )
    };
    let items =
        |path: &str| format!("{{name: v, configMap: {{name: c, items: [{{key: k, path: {path}}}]}}}}");
    let empty = "{name: v, emptyDir: {}}";
    let manifests = [
        pod("name: ../escape-name", "a", "", ""),
        pod("name: p1, namespace: ../escape-namespace", "a", "", ""),
        pod("name: p2, uid: ../../escape-uid", "a", "", ""),
        pod("name: p3, uid: /escape-absolute-uid", "a", "", ""),
        pod("name: p4", "../escape-container", "", ""),
        volume(5, "{name: ../escape-volume, emptyDir: {}}", ""),
        volume(6, &items("../escape-item"), ""),
        volume(7, &items("/escape-absolute-item"), ""),
        volume(8, &items("a/../../escape-inner-item"), ""),
        volume(9, empty, ", subPath: ../escape-sub-path"),
        volume(10, empty, ", subPath: /escape-absolute-sub-path"),
        volume(11, empty, ", subPath: a/../../escape-inner-sub-path"),
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v, ../escape-key: v}}\n---\n"
            .to_owned(),
        "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {../escape-secret-key: v}}\n"
            .to_owned(),
    ]
    .concat();
    let answer = played(&place, &manifests, &["--until", "succeeded"]).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    for escape in manifests.match_indices("escape-").map(|(at, _)| {
        let rest = &manifests[at..];
        &rest[..rest.find(|c: char| c != '-' && !c.is_ascii_alphabetic()).unwrap()]
    }) {
        let is_told = |line: &str| line.contains(escape);
        assert!(answer.stderr.lines().any(is_told), "{escape} is not refused: {}", answer.stderr);
    }
    // Only the files of the test itself are left.
    let left: Vec<_> = fs::read_dir(place.at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("escape")), "{left:?}");
}

#[tokio::test]
async fn damaged_call_records_are_skipped_and_recording_continues() {
    for (what, damage) in [
        (
            "random bytes",
            (0..4096_u32).map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect(),
        ),
        ("NULs", vec![0; 4096]),
        ("a line of 4 MiB", vec![b'x'; 4 << 20]),
        ("100,000 levels", "[".repeat(100_000).into_bytes()),
        ("an id beyond 64 bits", b"{\"id\": 99999999999999999999999}\n".to_vec()),
        ("a record cut off", b"{\"id\": 1, \"method\": \"Versi".to_vec()),
    ] {
        let place = Place::new();
        let calls = place.at("state/calls");
        fs::create_dir_all(&calls).unwrap();
        fs::write(calls.join("calls-v1-00000001.jsonl"), &damage).unwrap();
        fs::create_dir(calls.join("calls-v1-00000002.jsonl")).unwrap();
        std::os::unix::fs::symlink("nothing", calls.join("calls-v1-00000003.jsonl")).unwrap();
        let runtime = Runtime::listen(&place.at("runtime.sock"));
        let shim = place.start(&[]).await;
        drop(runtime.accept_raw().await);
        tokio::spawn(super::answer_every_call(runtime));
        call(&shim, &[("/a.B/C", Vec::new())]).await;
        let known = kept(&place, 1).await;
        assert_eq!((known.len(), &known[0]["method"]), (1, &"/a.B/C".into()), "{what}: {known:?}");
        assert_no_panic(&shim).await;
    }
}
