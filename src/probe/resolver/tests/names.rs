//! Sources that were found give names, and no probes that probeshim runs.

use super::*;

fn manifests(source: Source, command: &str) -> Manifests {
    let pod = json!({
        "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{
            "name": "main",
            "livenessProbe": {"exec": {"command": [command]}},
            "lifecycle": {"preStop": {"exec": {"command": [command]}}},
        }]},
    });
    read_manifests(&pod, source, false, &mut Vec::new()).into_iter().collect()
}

#[test]
fn a_source_that_was_found_names_calls_and_its_probes_are_never_run() {
    for source in [Source::ReadOnlyPort, Source::StaticPods] {
        let mut specs = SpecResolver::default();
        assert!(specs.set_pods(source, manifests(source, "x")));
        assert!(!specs.set_pods(source, manifests(source, "x")), "unchanged");
        let (sandbox, container) = seen("web", &[], &[], &[]);
        let names =
            [("liveness", "x".to_owned(), 1, source.name()), ("preStop", "x".to_owned(), 0, source.name())];
        assert_eq!(summaries(&specs.known_execs(&sandbox, &container)), names);
        assert_eq!(specs.configured_execs(&sandbox, &container), [], "policies do not act on it");
        assert_eq!(specs.source_of_pod(&sandbox), Some(source));
        let described = specs.describe_pod(&sandbox, [&container]);
        assert!(described.container("main").unwrap().probe(ProbeType::Liveness).is_some());
        // The prober, hooks before kills and restarts take this.
        let run = specs.resolve_pod(&sandbox, [&container]);
        let main = run.container("main").unwrap();
        assert_eq!((main.all_probes().count(), main.hooks.len()), (0, 0), "{source:?}");
    }
}

#[test]
fn a_probe_that_the_pod_itself_specifies_is_not_hidden_by_a_source_that_was_found() {
    let mut specs = SpecResolver::default();
    specs.set_pods(Source::ReadOnlyPort, manifests(Source::ReadOnlyPort, "x"));
    let applied = json!({
        "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "main", "livenessProbe": {"exec": {"command": ["x"]}}}]},
    });
    let (sandbox, container) = seen("web", &[], &[(LAST_APPLIED, &applied.to_string())], &[]);
    let configured = specs.configured_execs(&sandbox, &container);
    assert_eq!(summaries(&configured), [("liveness", "x".to_owned(), 1, Source::LastApplied.name())]);
}

#[test]
fn a_configured_source_has_precedence_over_those_that_were_found() {
    let mut specs = SpecResolver::default();
    for (source, command) in
        [(Source::StaticPods, "static"), (Source::ReadOnlyPort, "port"), (Source::ApiServer, "api")]
    {
        assert!(specs.set_pods(source, manifests(source, command)));
        let (sandbox, container) = seen("web", &[], &[], &[]);
        let execs = specs.known_execs(&sandbox, &container);
        let first = summaries(&execs).remove(0);
        assert_eq!((first.1.as_str(), first.3), (command, source.name()));
    }
    let (sandbox, container) = seen("web", &[], &[], &[]);
    let run = specs.resolve_pod(&sandbox, [&container]);
    let probe = run.container("main").unwrap().probe(ProbeType::Liveness).unwrap();
    assert_eq!(probe.handler, Handler::Exec(vec!["api".to_owned()]), "a user has configured the API server");
}
