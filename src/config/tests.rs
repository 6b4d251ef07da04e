//! Tests of accepted and refused flags and fields.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::*;
use crate::manifest::ProbeType;
use crate::probe::KubeletSource;

/// Parses flags in the form of a command line.
fn parsed<T: Args>(arguments: &[&str]) -> Result<T, clap::Error> {
    let command = T::augment_args(clap::Command::new("probeshim").no_binary_name(true));
    T::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// Returns the environment of root or of another user. No directory of the user but `runtime_dir`
/// exists, and none can be created.
fn around(is_root: bool, runtime_dir: Option<&str>) -> Environment {
    Environment {
        user: if is_root { 0 } else { 1000 },
        has_collector: false,
        is_activated: false,
        config_home: PathBuf::from("/nonexistent"),
        runtime_dir: runtime_dir.map(PathBuf::from),
        state_home: None,
        state_dir_variable: None,
        temporary: PathBuf::from("/nonexistent"),
        runtime_endpoint: None,
        containerd: None,
        has_terminal: false,
        instance: None,
    }
}

#[test]
fn default_settings_match_the_documentation() {
    let root = Settings::new(&Flags::default(), &around(true, Some("/run/user/0"))).unwrap();
    assert_eq!(root.shim.listen.unwrap().to_string(), "unix:///run/probeshim/probeshim.sock");
    assert_eq!(root.shim.relay.upstream.to_string(), "unix:///run/containerd/containerd.sock");
    assert_eq!(root.shim.admin.to_string(), "unix:///run/probeshim/admin.sock");
    assert_eq!(root.shim.http.unwrap().to_string(), "127.0.0.1:9754");
    assert_eq!(root.shim.relay.drain_timeout, Duration::from_secs(30));
    let user = Settings::new(&Flags::default(), &around(false, Some("/run/user/1000"))).unwrap();
    assert_eq!(user.shim.listen.unwrap().to_string(), "unix:///run/user/1000/probeshim/probeshim.sock");
}

#[test]
fn an_instance_has_its_own_sockets_state_and_port() {
    let flags: Flags = parsed(&["--instance", "ci-1"]).unwrap();
    let root = Settings::new(&flags, &around(true, None)).unwrap().shim;
    assert_eq!(root.listen.unwrap().to_string(), "unix:///run/probeshim-ci-1/probeshim.sock");
    assert_eq!(root.admin.to_string(), "unix:///run/probeshim-ci-1/admin.sock");
    assert_eq!(root.state.unwrap(), Path::new("/var/lib/probeshim-ci-1"));
    assert_eq!(root.http.unwrap().to_string(), "127.0.0.1:0");
    let client = admin_socket(None, &flags.instance, &around(true, None)).unwrap();
    assert_eq!(client.to_string(), "unix:///run/probeshim-ci-1/admin.sock");
    let runtime: RuntimeFlags = parsed(&["--instance", "ci-1"]).unwrap();
    let runtime = RuntimeSettings::new(runtime, &around(true, None)).unwrap();
    assert_eq!(runtime.listen.to_string(), "unix:///run/probeshim-ci-1/procrun.sock");
    assert_eq!(runtime.procrun.root, Path::new("/var/lib/probeshim-ci-1/procrun"));
}

#[test]
fn the_source_of_a_state_directory_is_the_variable_if_both_are_equal() {
    let around = Environment { state_dir_variable: Some("/s".parse().unwrap()), ..around(true, None) };
    for (args, expected) in [
        (&["--state-dir", "/s"][..], StateDirSource::Variable),
        (&["--state-dir", "/t"], StateDirSource::Flag),
    ] {
        let settings = Settings::new(&parsed(args).unwrap(), &around).unwrap();
        assert_eq!(settings.shim.state_source, expected);
    }
    let settings = Settings::new(&Flags::default(), &self::around(true, None)).unwrap();
    assert_eq!(settings.shim.state_source, StateDirSource::Default);
}

#[test]
fn the_runtime_endpoint_of_the_environment_is_the_default_upstream() {
    let with_endpoint =
        |endpoint: &str| Environment { runtime_endpoint: Some(endpoint.to_owned()), ..around(true, None) };
    let upstream = |flags: &[&str], endpoint: &str| {
        let settings = Settings::new(&parsed(flags).unwrap(), &with_endpoint(endpoint));
        settings.map(|settings| settings.shim.relay.upstream.to_string()).map_err(|error| error.to_string())
    };
    let crio = "unix:///run/crio/crio.sock";
    assert_eq!(upstream(&[], crio).as_deref(), Ok(crio));
    assert_eq!(upstream(&["--upstream", "/run/a.sock"], crio).as_deref(), Ok("unix:///run/a.sock"));
    // crictl is to use probeshim, whose runtime is the default.
    let own = "unix:///run/probeshim/probeshim.sock";
    assert_eq!(upstream(&[], own).as_deref(), Ok("unix:///run/containerd/containerd.sock"));
    let k0s = Environment { containerd: Some("/run/k0s/containerd.sock"), ..around(true, None) };
    let settings = Settings::new(&parsed(&[]).unwrap(), &k0s).unwrap();
    assert_eq!(settings.shim.relay.upstream.to_string(), "unix:///run/k0s/containerd.sock");
    let error = upstream(&[], "tcp://127.0.0.1:1").unwrap_err();
    assert!(
        error.starts_with("CONTAINER_RUNTIME_ENDPOINT \"tcp://127.0.0.1:1\" has the scheme tcp://"),
        "{error}"
    );
}

#[test]
fn commands_query_the_admin_socket_of_the_configuration_file() {
    let home = tempfile::tempdir().unwrap();
    let around = Environment { config_home: home.path().to_owned(), ..around(true, None) };
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(home.path().join(name)).unwrap();
        std::fs::write(home.path().join(name).join("config.yaml"), text).unwrap();
    };
    let socket = |flag: Option<&str>, name: Option<&str>| {
        let instance = InstanceArg { instance: name.map(|name| name.parse().unwrap()) };
        let socket = admin_socket(flag.map(|flag| flag.parse().unwrap()), &instance, &around);
        socket.map(|socket| socket.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(socket(None, None).as_deref(), Ok("unix:///run/probeshim/admin.sock"));
    write("probeshim", "admin: /run/b.sock\nenforce: dry-run\n");
    write("probeshim-ci", "admin: unix:/c.sock\n");
    assert_eq!(socket(None, None).as_deref(), Ok("unix:///run/b.sock"));
    assert_eq!(socket(Some("/run/a.sock"), None).as_deref(), Ok("unix:///run/a.sock"), "the flag wins");
    let error = socket(None, Some("ci")).unwrap_err();
    assert!(error.contains("probeshim-ci/config.yaml: admin \"unix:/c.sock\" is not a unix URI"), "{error}");
}

#[test]
fn all_invalid_flags_are_reported_together() {
    let flags: Flags = parsed(&["--enforce", "dry-run", "--watch-runtime", "off"]).unwrap();
    let error = Settings::new(&flags, &around(false, None)).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    let missing = "is needed: its default directory /nonexistent/probeshim-1000 cannot be created: No such file or \
                   directory (os error 2); set XDG_RUNTIME_DIR";
    assert_eq!(lines[0], format!("--listen {missing}"));
    assert_eq!(lines[1], format!("--admin {missing}"));
    assert!(lines[2].starts_with("--watch-runtime \"off\" cannot be off with --enforce dry-run"), "{error}");
}

#[test]
fn a_socket_passed_by_systemd_takes_precedence_over_the_listen_path() {
    let activated = Environment { is_activated: true, ..around(false, None) };
    for arguments in [&["--admin", "/run/admin.sock"][..], &["--admin", "/run/admin.sock", "--listen", "/a"]]
    {
        let flags: Flags = parsed(arguments).unwrap();
        assert_eq!(Settings::new(&flags, &activated).unwrap().shim.listen, None);
    }
}

#[test]
fn the_admin_socket_must_differ_from_the_upstream_socket() {
    let flags: Flags = parsed(&["--admin", "/run/a.sock", "--upstream", "/run/a.sock"]).unwrap();
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    assert_eq!(error, "--admin \"unix:///run/a.sock\" is also the socket of --upstream; choose another path");
}

#[test]
fn procrun_paths_default_to_the_directories_of_probeshim() {
    let defaults: RuntimeFlags = parsed(&[]).unwrap();
    let root = RuntimeSettings::new(defaults.clone(), &around(true, None)).unwrap();
    assert_eq!(root.listen.to_string(), "unix:///run/probeshim/procrun.sock");
    assert_eq!(root.procrun.root, Path::new("/var/lib/probeshim/procrun"));
    let home =
        Environment { state_home: Some("/home/me/state".into()), ..around(false, Some("/run/user/1")) };
    let user = RuntimeSettings::new(defaults.clone(), &home).unwrap();
    assert_eq!(user.procrun.root, Path::new("/home/me/state/probeshim/procrun"));
    assert_eq!(user.procrun.exec_io_drain_timeout, None, "0s means no limit, as in containerd");
    let nowhere = RuntimeSettings::new(defaults, &around(false, None)).unwrap_err().to_string();
    let root = nowhere.lines().nth(1).unwrap();
    assert!(root.starts_with("--root is needed: its default directory /nonexistent/"), "{root}");
}

/// Returns flags that name a configuration file with this text.
fn file(text: &str) -> (tempfile::TempDir, Flags) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    let state_dir = Some(dir.path().to_str().unwrap().parse().unwrap());
    (dir, Flags { config: Some(path), state_dir, ..Flags::default() })
}

/// A configuration file with all fields.
const WHOLE: &str = r#"
listen: /run/a.sock
upstream: unix:///run/crio/crio.sock
admin: /run/b.sock
http: off
enforce: dry-run
stateDir: /tmp
recordLimit: 1GiB
otlpEndpoint: off
watchRuntime: on
slowThreshold: 2s
drainTimeout: 5s
log: warn
redactCommands: true
manifests: [/tmp]
kubelet:
  url: https://127.0.0.1:10250
  tokenFile: /a
  certificateFile: /b
  keyFile: /c
  authorityFile: /d
  insecureSkipVerify: false
  interval: 5s
probes:
- match: {namespace: shop, pod: "web-*", container: main, image: "*/nginx:*", labels: {app: w?b}}
  startupProbe: {httpGet: {path: /a, port: http, host: h, scheme: HTTPS, httpHeaders: [{name: A, value: b}]}}
  readinessProbe:
    tcpSocket: {port: 80, host: h}
    initialDelaySeconds: 1
    timeoutSeconds: 2
    periodSeconds: 3
    successThreshold: 4
    failureThreshold: 5
  livenessProbe: {grpc: {port: 5000, service: s}, terminationGracePeriodSeconds: 6}
- match: {}
  livenessProbe: off
"#;

#[test]
fn flags_take_precedence_over_the_configuration_file() {
    let (_dir, flags) = file(WHOLE);
    let flags = Flags { slow_threshold: Some("3s".parse().unwrap()), state_dir: None, ..flags };
    let Settings { shim, .. } = Settings::new(&flags, &around(true, None)).unwrap();
    assert_eq!(shim.relay.upstream.to_string(), "unix:///run/crio/crio.sock");
    assert_eq!((shim.exec.slow, shim.exec.redact_commands), (Duration::from_secs(3), true), "flags win");
    assert_eq!((shim.enforcement.mode, shim.http), (EnforcementMode::DryRun, None));
    assert!(!shim.sources.search.unwrap().uses_read_only_port, "the kubelet is queried as configured");
    let Some(KubeletSource::Pods(kubelet)) = shim.sources.kubelet else {
        panic!("the kubelet is not queried")
    };
    assert_eq!(
        (kubelet.url.as_str(), kubelet.interval),
        ("https://127.0.0.1:10250/", Duration::from_secs(5))
    );
    let described: Vec<_> =
        shim.specs.describe_all().into_iter().map(|it| (it.probe_type, it.probe.is_some())).collect();
    let [startup, readiness, liveness] = ProbeType::ALL;
    assert_eq!(described, [(startup, true), (readiness, true), (liveness, true), (liveness, false)]);
    let (_dir, flags) = file("");
    assert!(Settings::new(&flags, &around(true, None)).is_ok(), "an empty file sets nothing");
}

#[test]
fn the_kubeconfig_of_the_kubelet_comes_from_the_file_or_from_the_flag() {
    let source = |text: &str, flag: Option<&str>| {
        let (_dir, flags) = file(text);
        let flag = flag.map(|path| path.parse().unwrap());
        let flags = Flags { kubelet_kubeconfig: flag, ..flags };
        let sources = Settings::new(&flags, &around(true, None)).unwrap().shim.sources;
        sources.kubelet.map(|source| match source {
            KubeletSource::ApiServer(source) => (source.kubeconfig.display().to_string(), source.node_name),
            KubeletSource::Pods(client) => panic!("{client:?}"),
        })
    };
    let of = |path: &str, node: Option<&str>| Some((path.to_owned(), node.map(str::to_owned)));
    assert_eq!(source("", None), None);
    assert_eq!(source("kubelet: {kubeconfig: /a}", None), of("/a", None));
    assert_eq!(
        source("kubelet: {kubeconfig: /a, nodeName: node-1.example}", None),
        of("/a", Some("node-1.example"))
    );
    assert_eq!(source("kubelet: {kubeconfig: /a, nodeName: node}", Some("/b")), of("/b", Some("node")));
    assert_eq!(source("kubelet: {url: 'http://127.0.0.1:10255'}", Some("/b")), of("/b", None));
    for (text, expected) in [
        ("kubelet: {}", "kubelet.url: Required value: must be http://HOST:PORT"),
        (
            "kubelet: {kubeconfig: /a, interval: 5s}",
            "kubelet.interval: Invalid value: \"5s\": must not be set together with kubeconfig",
        ),
        ("kubelet: {kubeconfig: /a, nodeName: A_b}", "kubelet.nodeName: Invalid value: \"A_b\""),
        (
            "kubelet: {url: 'http://127.0.0.1:1', nodeName: a}",
            "kubelet.nodeName: Invalid value: \"a\": must be set together with kubeconfig",
        ),
    ] {
        let (_dir, flags) = file(text);
        let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected} is not in {error}");
    }
}

#[test]
fn all_errors_of_a_configuration_file_are_reported_together_with_their_paths() {
    let text = r#"
upsteam: /run/a.sock
slowThreshold: 1 fortnight
drainTimeout: 5
kubelet: {url: "http://127.0.0.1:10255", tokenFile: /a, keyFile: /b, interval: 1ms}
manifests: none
probes:
- livenessProbe: {exec: {command: [x]}, periodSecs: 3}
- match: {pods: "*", pod: ""}
- match: {pod: web}
  readinessProbe: {httpGet: {port: 0}}
  startupProbe: soon
"#;
    let (dir, flags) = file(text);
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    let text = error.replace(&dir.path().display().to_string(), "");
    for expected in [
        "/config.yaml:2: unknown field \"upsteam\", did you mean \"upstream\"?",
        "/config.yaml:4: drainTimeout: Invalid value: 5: must be a string",
        "/config.yaml:3: slowThreshold: Invalid value: \"1 fortnight\": must be a duration from 0s to 24h",
        "/config.yaml:6: manifests: Invalid value: \"none\": must be a list",
        "/config.yaml:5: kubelet.interval: Invalid value: \"1ms\": must be a duration from 1s to 24h",
        "/config.yaml:5: kubelet.certificateFile: Required value: must be set together with keyFile",
        "/config.yaml:5: kubelet.tokenFile: Invalid value: \"/a\": must not be set if the url is http",
        "/config.yaml:8: probes[0].match: Required value: must select containers",
        "/config.yaml:8: unknown field \"probes[0].livenessProbe.periodSecs\", did you mean \"periodSeconds\"?",
        "/config.yaml:9: unknown field \"probes[1].match.pods\", did you mean \"pod\"?",
        "/config.yaml:9: probes[1].match.pod: Invalid value: \"\": must not be empty",
        "/config.yaml:9: probes[1]: Invalid value: an object with match: must have at least one of startupProbe,",
        "/config.yaml:12: probes[2].startupProbe: Invalid value: \"soon\": must be a probe, or off",
        "/config.yaml:11: probes[2].readinessProbe.httpGet.port: Invalid value: 0: must be an integer",
    ] {
        assert!(text.lines().any(|line| line.starts_with(expected)), "{expected} is not in\n{text}");
    }
    assert_eq!(text.lines().count(), 14, "{text}");
    // An invalid field does not prevent the check of the others.
    let (dir, flags) = file("slowThreshold: 1 fortnight\nenforce: shoot\n");
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    let text = error.replace(&dir.path().display().to_string(), "");
    assert!(
        text.contains(
            "/config.yaml:1: slowThreshold: Invalid value: \"1 fortnight\": must be a duration from 0s to 24h"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "/config.yaml:2: enforce: Invalid value: \"shoot\": must be one of off, dry-run, kill, restart"
        ),
        "{text}"
    );
    let missing = Flags { config: Some("/nowhere.yaml".into()), ..Flags::default() };
    let error = Settings::new(&missing, &around(true, None)).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere.yaml: No such file"), "{error}");
}

#[test]
fn a_settings_error_names_the_field_or_flag_that_sets_the_value() {
    let (dir, flags) = file("watchRuntime: off\nenforce: kill\n");
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    let message = error.replace(&dir.path().display().to_string(), "");
    assert!(
        message.starts_with("/config.yaml: watchRuntime \"off\" cannot be off with --enforce kill"),
        "{message}"
    );
    let flags = Flags { watch_runtime: Some(RuntimeWatch::Off), ..flags };
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    assert!(error.starts_with("--watch-runtime \"off\" cannot be off with --enforce kill"), "{error}");
    let flags = Flags { enforce: Some(EnforcementMode::Off), ..flags };
    assert!(Settings::new(&flags, &around(true, None)).is_ok(), "flags win");
}

#[test]
fn an_invalid_field_of_the_configuration_file_is_reported_once() {
    let (_dir, flags) = file("listen: tcp://a\nadmin: /run/b.sock\n");
    let error = Settings::new(&flags, &around(false, None)).unwrap_err().to_string();
    assert!(error.contains("listen: Invalid value: \"tcp://a\": has the scheme tcp://"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// Returns the sorted names of the fields of an object in the schema.
fn fields(schema: &serde_json::Value, pointer: &str) -> Vec<String> {
    let mut fields: Vec<String> =
        schema.pointer(pointer).unwrap()["properties"].as_object().unwrap().keys().cloned().collect();
    fields.sort();
    fields
}

/// Returns the last component of the path of an unknown field.
fn unknown_field(error: &str) -> Option<&str> {
    let (_, path) = error.split_once("unknown field \"")?;
    path.split('"').next()?.rsplit('.').next()
}

/// Returns the name of a flag in camel case.
fn camel_case(flag: &str) -> String {
    let mut parts = flag.split('-').map(str::to_owned);
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |name, word| format!("{name}{}{}", word[..1].to_uppercase(), &word[1..]))
}

/// The parser accepts exactly the fields of the schema: in each object it refuses the fields of all
/// other objects, and all flags that are not fields.
#[test]
fn the_configuration_schema_has_exactly_the_accepted_fields() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let (_dir, flags) = file(WHOLE);
    assert!(Settings::new(&flags, &around(true, None)).is_ok());
    let rule = |probe: serde_json::Value| json!({"probes": [{"match": {}, "livenessProbe": probe}]});
    let exec = rule(json!({"exec": {"command": ["x"]}}));
    let objects = [
        ("", "", json!({})),
        ("/$defs/kubelet", "/kubelet", json!({"kubelet": {"url": "http://a"}})),
        ("/$defs/rule", "/probes/0", exec.clone()),
        ("/$defs/match", "/probes/0/match", exec.clone()),
        ("/$defs/probe", "/probes/0/livenessProbe", exec.clone()),
        ("/$defs/probe/properties/exec", "/probes/0/livenessProbe/exec", exec),
        (
            "/$defs/probe/properties/httpGet",
            "/probes/0/livenessProbe/httpGet",
            rule(json!({"httpGet": {"port": 1}})),
        ),
        (
            "/$defs/probe/properties/tcpSocket",
            "/probes/0/livenessProbe/tcpSocket",
            rule(json!({"tcpSocket": {"port": 1}})),
        ),
        ("/$defs/probe/properties/grpc", "/probes/0/livenessProbe/grpc", rule(json!({"grpc": {"port": 1}}))),
    ];
    let mut candidates: BTreeSet<String> =
        objects.iter().flat_map(|(pointer, ..)| fields(&schema, pointer)).collect();
    let command = Flags::augment_args(clap::Command::new("probeshim"));
    candidates.extend(command.get_arguments().filter_map(|flag| flag.get_long()).map(camel_case));
    for (pointer, place, mut document) in objects {
        let object = document.pointer_mut(place).unwrap().as_object_mut().unwrap();
        for name in &candidates {
            object.entry(name).or_insert(json!(1));
        }
        let (_dir, flags) = file(&document.to_string());
        let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
        let unknown: BTreeSet<&str> = error.lines().filter_map(unknown_field).collect();
        let known: Vec<&String> = candidates.iter().filter(|name| !unknown.contains(name.as_str())).collect();
        assert_eq!(known, fields(&schema, pointer).iter().collect::<Vec<_>>(), "{place}: {error}");
    }
}
