//! Tests of the remedies for missing names.

use super::*;
use crate::manifest::ExecPurpose;

fn sources(states: &[(Source, Option<&str>)]) -> NameSources {
    let state = |(source, problem): &(Source, Option<&str>)| SourceState {
        source: *source,
        place: "X".to_owned(),
        pods: 2,
        problem: problem.map(str::to_owned),
    };
    let config_file = Some(PathBuf::from("/etc/probeshim/config.yaml"));
    NameSources { sources: states.iter().map(state).collect(), config_file, ..NameSources::default() }
}

fn shown(sources: &NameSources) -> Option<String> {
    sources.remedy().map(|remedy| remedy.to_string())
}

#[test]
fn the_remedy_for_missing_names_is_the_line_with_the_kubeconfig_of_the_kubelet() {
    let file = |path: &str| KubeconfigFile { path: path.into(), problem: None };
    let kubelet = |kubeconfig: Option<&str>| FoundNode {
        kubelet: Some(LocalKubelet { pid: 7, kubeconfig: kubeconfig.map(file) }),
        ..FoundNode::default()
    };
    let node = kubelet(Some("/etc/kubernetes/kubelet.conf"));
    let found = NameSources { node: node.clone(), ..sources(&[(Source::StaticPods, None)]) };
    let line = "add `kubelet: {kubeconfig: /etc/kubernetes/kubelet.conf}` to /etc/probeshim/config.yaml, and \
                restart or reload probeshim";
    assert_eq!(shown(&found), Some(line.to_owned()));
    let port = NameSources {
        node: node.clone(),
        ..sources(&[(Source::ReadOnlyPort, None), (Source::StaticPods, None)])
    };
    assert_eq!(shown(&port), None, "the read-only port has all pods");
    let foreign = NameSources { node, ..sources(&[(Source::ReadOnlyPort, Some("is ignored"))]) };
    assert_eq!(shown(&foreign), Some(line.to_owned()));
    let standalone = NameSources { node: kubelet(None), ..sources(&[(Source::StaticPods, None)]) };
    assert_eq!(shown(&standalone), None, "it has only static pods");
    let k3s = FoundNode { installed_kubeconfig: Some(file("/k3s")), ..FoundNode::default() };
    let k3s = NameSources { node: k3s, ..sources(&[]) };
    assert!(shown(&k3s).unwrap().starts_with("add `kubelet: {kubeconfig: /k3s}` to "));
}

#[test]
fn an_ignored_kubelet_is_named_with_the_reason_instead_of_no_kubelet() {
    let end = "--manifests DIR names the probes of manifests";
    assert_eq!(shown(&sources(&[])), Some(format!("no kubelet was found on this node; {end}")));
    let ignored = "the process kubelet (pid 812) is ignored, because root has not started it";
    let node = FoundNode { ignored_kubelets: vec![ignored.to_owned()], ..FoundNode::default() };
    let with_ignored = NameSources { node, ..sources(&[]) };
    assert_eq!(shown(&with_ignored), Some(format!("{ignored}; {end}")));
    assert_eq!(
        with_ignored.explain_unknown(None, None),
        Some(format!("The probes of this pod are not known: {ignored}; {end} ({GUIDE})."))
    );
}

#[test]
fn a_kubeconfig_that_does_not_suffice_is_not_recommended() {
    let kubeconfig =
        Some(KubeconfigFile { path: "/a".into(), problem: Some("/a: exec is not supported".to_owned()) });
    let kubelet = Some(LocalKubelet { pid: 7, kubeconfig: kubeconfig.clone() });
    let of_kubelet = FoundNode { kubelet, ..FoundNode::default() };
    let installed = FoundNode { installed_kubeconfig: kubeconfig, ..FoundNode::default() };
    for node in [of_kubelet, installed] {
        let remedy = NameSources { node, ..sources(&[(Source::StaticPods, None)]) }.remedy().unwrap();
        assert_eq!(remedy.line(), None);
        assert_eq!(
            remedy.to_string(),
            "/a: exec is not supported; from kubelet 1.33 on, a token or a client certificate that may get nodes/pods \
             names the probes as well: add `kubelet: {url: https://127.0.0.1:10250, tokenFile: FILE, authorityFile: \
             FILE}` to /etc/probeshim/config.yaml; earlier kubelets know only nodes/proxy, so use the API server and a \
             kubeconfig whose user may list and watch pods: `kubelet: {kubeconfig: FILE, nodeName: NODE}`"
        );
    }
}

#[test]
fn the_line_is_yaml_whatever_the_path_is() {
    for path in ["/etc/kubernetes/kubelet.conf", "/a b", "/a: {b", "/a\"\\# ", "a", "/a}\n"] {
        let value: serde_json::Value = serde_saphyr::from_str(&config_line(Path::new(path))).unwrap();
        assert_eq!(value, serde_json::json!({"kubelet": {"kubeconfig": path}}));
    }
}

#[test]
fn a_configured_source_with_a_problem_is_named_instead_of_a_line() {
    let broken = sources(&[(Source::ApiServer, Some("status 403")), (Source::StaticPods, None)]);
    assert_eq!(shown(&broken).as_deref(), Some("the API server X: status 403"));
    assert_eq!(shown(&sources(&[(Source::ApiServer, None)])), None);
}

#[test]
fn a_call_without_a_name_is_explained_by_what_is_known_of_its_pod() {
    let all = sources(&[(Source::ApiServer, None)]);
    let known = all.explain_unknown(Some(Source::ApiServer), None).unwrap();
    assert!(known.contains("(source: api-server), and none of its probes"), "{known}");
    let later = KnownExec {
        purpose: ExecPurpose::Startup,
        command: vec!["a".to_owned()],
        timeout_seconds: 1,
        period: None,
        failure_threshold: None,
        source: Source::ApiServer,
    };
    assert_eq!(
        all.explain_unknown(Some(Source::ApiServer), Some(&later)).unwrap(),
        "A startup probe of this container has this command and timeout (source: api-server), but was not known \
         when the call was recorded."
    );
    assert_eq!(
        all.explain_unknown(None, None).unwrap(),
        "No source of probes has this pod: the API server X."
    );
    let none = sources(&[]).explain_unknown(None, None).unwrap();
    assert!(none.starts_with("The probes of this pod are not known: no kubelet was found"), "{none}");
    assert_eq!(NameSources::default().explain_unknown(None, None), None, "probeshim runs the pods");
}
