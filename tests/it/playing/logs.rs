//! Logs of played containers, which are rotated as by the kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use fixtures::logs::{are_consecutive, log_files, log_names, numbers_of};
use rustix::process::Signal;

use super::{POLITE, is_clean, played, pod, start_with};
use crate::procrun::{Runtime, until};
use crate::program::Place;

/// Script that writes numbers, one on each line.
const COUNT: &str = "trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo $n; sleep 0.01; done";

/// Flag with the shortest interval between two checks.
const OFTEN: [&str; 2] = ["--container-log-monitor-interval", "3s"];

#[tokio::test]
async fn a_played_containers_log_is_rotated_compressed_and_complete() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    fs::write(place.at("pods.yaml"), pod("a", COUNT, "", "")).unwrap();
    let manifests = place.at("pods.yaml");
    let limits = ["--container-log-max-size", "1Ki", "--container-log-max-files", "3"];
    let arguments = [&[manifests.to_str().unwrap()][..], &limits[..], &OFTEN[..]].concat();
    let mut running = start_with(&place, &arguments).await;
    let logs = until(|| async {
        let pod = fs::read_dir(place.at("logs")).ok()?.next()?.ok()?;
        Some(pod.path().join("main")).filter(|logs| logs.exists())
    })
    .await;
    // A rotated log grows until the runtime has opened the new one. It is removed with the rotation
    // after the next.
    let (mut rotated, mut names) = (BTreeMap::new(), BTreeSet::new());
    until(|| {
        names.extend(log_names(&logs));
        for (name, text) in log_files(&logs).into_iter().filter(|(name, _)| name != "current") {
            let before = rotated.insert(name.clone(), text.clone());
            assert!(before.is_none_or(|before| text.starts_with(&before)), "{name} has changed");
        }
        let is_enough = rotated.len() >= 4;
        async move { is_enough.then_some(()) }
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    rotated.extend(log_files(&logs));
    let left = log_names(&logs);
    assert!((2..=3).contains(&left.len()), "{left:?}");
    let numbers = numbers_of(rotated.values());
    assert!(are_consecutive(&numbers), "a line was lost or written twice: {numbers:?}");
    assert!(names.iter().filter(|name| name.strip_suffix(".gz").is_some()).count() >= 2, "{names:?}");
    assert!(!names.iter().any(|name| name.contains(".gz.gz")), "{names:?}");
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn the_logs_of_pods_with_a_label_are_printed_with_prefixes_until_the_containers_end() {
    let place = Place::new();
    let labelled = |name: &str, label: &str| {
        pod(name, &format!("echo one; echo {name}"), ", restartPolicy: Never", "")
            .replace("metadata: {", &format!("metadata: {{labels: {{app: {label}}}, "))
    };
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    fs::write(place.at("pods.yaml"), labelled("a", "web") + &labelled("b", "web") + &labelled("c", "db"))
        .unwrap();
    let waits = pod("d", POLITE, "", "");
    fs::write(place.at("more.yaml"), waits).unwrap();
    let (pods, more) = (place.at("pods.yaml"), place.at("more.yaml"));
    let mut running = start_with(&place, &[pods.to_str().unwrap(), more.to_str().unwrap()]).await;
    let waited = place.ask(&["wait", "-l", "app=web", "--for", "succeeded", "--timeout", "5m"]).await;
    assert_eq!(waited.code, Some(0), "{waited:?}");
    let answer = place.ask(&["logs", "-l", "app=web", "--prefix", "-f"]).await;
    let mut lines: Vec<&str> = answer.stdout.lines().collect();
    lines.sort_unstable();
    let expected =
        ["[pod/test/a/main] a", "[pod/test/a/main] one", "[pod/test/b/main] b", "[pod/test/b/main] one"];
    assert_eq!((answer.code, &lines[..]), (Some(0), &expected[..]), "{answer:?}");
    let last = place.ask(&["logs", "-l", "app=web", "--tail", "1"]).await;
    let mut lines: Vec<&str> = last.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a", "b"], "{last:?}");
    let none = place.ask(&["logs", "-l", "app=none"]).await;
    assert_eq!((none.code, none.stderr.as_str()), (Some(1), "error: no pod has the labels app=none\n"));
    let missing = place.ask(&["logs"]).await;
    assert!(missing.stderr.contains("<POD|--selector <SELECTOR>>"), "{missing:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}

#[tokio::test]
async fn log_limits_that_the_kubelet_refuses_are_refused() {
    let place = Place::new();
    let limits = [
        ("--container-log-max-size", "10MiB", "must be a Kubernetes quantity of bytes"),
        ("--container-log-max-files", "1", "must be a whole number from 2"),
        ("--container-log-monitor-interval", "2s", "must be a duration from 3s to 24h"),
    ];
    for (flag, value, reason) in limits {
        let answer = played(&place, &pod("a", "true", "", ""), &[flag, value]).await;
        assert_eq!(answer.code, Some(2), "{answer:?}");
        let named = answer.stderr.contains(&format!("'{value}' for '{flag} <"));
        assert!(named && answer.stderr.contains(reason), "{reason} is not in {}", answer.stderr);
    }
}
