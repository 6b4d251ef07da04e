//! Pods as a kubelet and an API server send them.

use serde_json::Value;

use super::text::assert_harmless;
use crate::manifest::api_pods::{ApiPods, WatchEffect};
use crate::manifest::{Manifests, Source, read_manifests};
use crate::probe::SpecResolver;
use crate::terminal::harmless_text;

/// Reads the whole input as a list of pods, of each source, and each line as an event of a watch.
/// Redaction changes no pod. An event that is repeated changes nothing.
pub(super) fn run(input: &[u8]) {
    if let Ok(list) = serde_json::from_slice::<Value>(input) {
        for source in [Source::Kubelet, Source::ReadOnlyPort, Source::ApiServer] {
            read_list(&list, source);
        }
    }
    let mut pods = ApiPods::new(false);
    // An error leaves the pods as they were.
    let _ = pods.set_list(input);
    describe(pods.manifests());
    for event in input.split(|byte| *byte == b'\n') {
        let Ok(effect) = pods.apply(event) else { continue };
        if effect == WatchEffect::Changed {
            assert_eq!(pods.apply(event).ok(), Some(WatchEffect::Unchanged));
        }
        if let WatchEffect::Failed(_, message) = effect {
            assert_harmless(&message);
        }
    }
    pods.problems().iter().for_each(|problem| assert_harmless(&harmless_text(problem)));
    let path = pods.watch_path("node", 300);
    assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "{path:?}");
    describe(pods.manifests());
}

fn read_list(list: &Value, source: Source) {
    let (mut problems, mut redacted_problems) = (Vec::new(), Vec::new());
    let manifests = read_manifests(list, source, false, &mut problems);
    let redacted = read_manifests(list, source, true, &mut redacted_problems);
    assert_eq!(manifests, redacted);
    assert_eq!(problems.len(), redacted_problems.len());
    describe(manifests.into_iter().collect());
}

/// Describes the probes of pods.
fn describe(manifests: Manifests) {
    for described in SpecResolver::default().with_manifests(manifests).describe_all() {
        drop(described.probe.map(|probe| probe.handler.to_string()));
    }
}
