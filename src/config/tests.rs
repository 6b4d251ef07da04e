//! Tests of accepted and refused flags and fields.

use crate::manifest::ProbeType;
use std::path::Path;

use super::*;

/// Parses flags in the form of a command line.
fn parsed<T: Args>(arguments: &[&str]) -> Result<T, clap::Error> {
    let command = T::augment_args(clap::Command::new("probeshim").no_binary_name(true));
    T::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

fn around(is_root: bool, runtime_dir: Option<&str>) -> Environment {
    Environment {
        is_root,
        has_collector: false,
        is_activated: false,
        config: None,
        runtime_dir: runtime_dir.map(PathBuf::from),
        state_home: None,
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
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
fn all_problems_of_flags_are_reported_at_once() {
    let flags: Flags = parsed(&["--enforce", "dry-run", "--watch-runtime", "off"]).unwrap();
    let error = Settings::new(&flags, &around(false, None)).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    assert_eq!(lines[0], "--listen is needed: not root, and XDG_RUNTIME_DIR is not set");
    assert_eq!(lines[1], "--admin is needed: not root, and XDG_RUNTIME_DIR is not set");
    assert!(
        lines[2].starts_with("--watch-runtime \"off\" cannot be off with --enforce dry-run"),
        "{error}"
    );
}

#[test]
fn a_socket_that_systemd_passes_needs_no_path_and_wins_over_one() {
    let activated = Environment { is_activated: true, ..around(false, None) };
    for arguments in [&["--admin", "/run/admin.sock"][..], &["--admin", "/run/admin.sock", "--listen", "/a"]]
    {
        let flags: Flags = parsed(arguments).unwrap();
        assert_eq!(Settings::new(&flags, &activated).unwrap().shim.listen, None);
    }
}

#[test]
fn the_admin_socket_is_no_other() {
    let flags: Flags = parsed(&["--admin", "/run/a.sock", "--upstream", "/run/a.sock"]).unwrap();
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    assert_eq!(
        error,
        "--admin \"unix:///run/a.sock\" is also the socket of --upstream; choose another path"
    );
}

#[test]
fn procrun_has_its_place_among_our_own() {
    let defaults: RuntimeFlags = parsed(&[]).unwrap();
    let root = RuntimeSettings::new(defaults.clone(), &around(true, None)).unwrap();
    assert_eq!(root.listen.to_string(), "unix:///run/probeshim/procrun.sock");
    assert_eq!(root.procrun.root, Path::new("/var/lib/probeshim/procrun"));
    let home =
        Environment { state_home: Some("/home/me/state".into()), ..around(false, Some("/run/user/1")) };
    let user = RuntimeSettings::new(defaults.clone(), &home).unwrap();
    assert_eq!(user.procrun.root, Path::new("/home/me/state/probeshim/procrun"));
    assert_eq!(user.procrun.exec_io_drain_timeout, None, "0s is for as long as it takes, as with containerd");
    let nowhere = RuntimeSettings::new(defaults, &around(false, None)).unwrap_err().to_string();
    assert_eq!(
        nowhere.lines().nth(1),
        Some("--root is needed: not root, and neither XDG_STATE_HOME nor HOME is set")
    );
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
fn a_file_says_what_flags_do_not() {
    let (_dir, flags) = file(WHOLE);
    let flags = Flags { slow_threshold: Some("3s".parse().unwrap()), state_dir: None, ..flags };
    let Settings { shim, .. } = Settings::new(&flags, &around(true, None)).unwrap();
    assert_eq!(shim.relay.upstream.to_string(), "unix:///run/crio/crio.sock");
    assert_eq!((shim.exec.slow, shim.exec.redact_commands), (Duration::from_secs(3), true), "flags win");
    assert_eq!((shim.enforcement.mode, shim.http), (EnforcementMode::DryRun, None));
    let kubelet = shim.sources.kubelet.unwrap();
    assert_eq!(
        (kubelet.url.as_str(), kubelet.interval),
        ("https://127.0.0.1:10250/", Duration::from_secs(5))
    );
    let described: Vec<_> =
        shim.specs.describe_all().into_iter().map(|it| (it.probe_type, it.probe.is_some())).collect();
    let [startup, readiness, liveness] = ProbeType::ALL;
    assert_eq!(described, [(startup, true), (readiness, true), (liveness, true), (liveness, false)]);
    let (_dir, flags) = file("");
    assert!(Settings::new(&flags, &around(true, None)).is_ok(), "an empty file says nothing");
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_with_their_paths() {
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
        "/config.yaml: upsteam is \"/run/a.sock\"; it must not be there: known fields are listen, upstream,",
        "/config.yaml: drainTimeout is 5; it must be a string",
        "/config.yaml: slowThreshold is \"1 fortnight\"; it must be a duration from 0s to 24h",
        "/config.yaml: manifests is \"none\"; it must be a list",
        "/config.yaml: kubelet.interval is \"1ms\"; it must be a duration from 1s to 24h",
        "/config.yaml: kubelet.certificateFile is missing; it must be set together with keyFile",
        "/config.yaml: kubelet.tokenFile is \"/a\"; it must not be set if the url is http",
        "/config.yaml: probes[0].match is missing; it must select containers",
        "/config.yaml: probes[0].livenessProbe.periodSecs is 3; it must not be there: known fields are exec,",
        "/config.yaml: probes[1].match.pods is \"*\"; it must not be there: known fields are namespace,",
        "/config.yaml: probes[1].match.pod is \"\"; it must not be empty",
        "/config.yaml: probes[1] is an object with match; it must have at least one of startupProbe,",
        "/config.yaml: probes[2].startupProbe is \"soon\"; it must be a probe, or off",
        "/config.yaml: probes[2].readinessProbe.httpGet.port is 0; it must be a port's number",
    ] {
        assert!(text.lines().any(|line| line.starts_with(expected)), "{expected} is not in\n{text}");
    }
    assert_eq!(text.lines().count(), 14, "{text}");
    // An invalid field does not prevent the check of the others.
    let (dir, flags) = file("slowThreshold: 1 fortnight\nenforce: shoot\n");
    let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    let text = error.replace(&dir.path().display().to_string(), "");
    assert!(
        text.contains("/config.yaml: slowThreshold is \"1 fortnight\"; it must be a duration from 0s to 24h"),
        "{text}"
    );
    assert!(
        text.contains("/config.yaml: enforce is \"shoot\"; it must be one of off, dry-run, kill, restart"),
        "{text}"
    );
    let missing = Flags { config: Some("/nowhere.yaml".into()), ..Flags::default() };
    let error = Settings::new(&missing, &around(true, None)).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere.yaml: No such file"), "{error}");
}

#[test]
fn a_message_names_where_a_value_is_written() {
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
fn a_wrong_field_of_a_file_is_reported_once() {
    let (_dir, flags) = file("listen: tcp://a\nadmin: /run/b.sock\n");
    let error = Settings::new(&flags, &around(false, None)).unwrap_err().to_string();
    assert!(error.contains("listen is \"tcp://a\"; it has the scheme tcp://"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// Returns the sorted names of the fields of an object in the schema.
fn fields(schema: &serde_json::Value, pointer: &str) -> Vec<String> {
    let mut fields: Vec<String> =
        schema.pointer(pointer).unwrap()["properties"].as_object().unwrap().keys().cloned().collect();
    fields.sort();
    fields
}

/// The parser accepts exactly the fields of the schema: it refuses an unknown field with the names
/// of the known fields.
#[test]
fn the_schema_describes_what_is_read() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let (_dir, flags) = file(WHOLE);
    assert!(Settings::new(&flags, &around(true, None)).is_ok());
    for (pointer, text) in [
        ("", "unknown: 1"),
        ("/$defs/kubelet", "kubelet: {url: 'http://a', unknown: 1}"),
        ("/$defs/rule", "probes: [{match: {}, livenessProbe: off, unknown: 1}]"),
        ("/$defs/match", "probes: [{match: {unknown: 1}, livenessProbe: off}]"),
        ("/$defs/probe", "probes: [{match: {}, livenessProbe: {exec: {command: [x]}, unknown: 1}}]"),
        (
            "/$defs/probe/properties/exec",
            "probes: [{match: {}, livenessProbe: {exec: {command: [x], unknown: 1}}}]",
        ),
        (
            "/$defs/probe/properties/httpGet",
            "probes: [{match: {}, livenessProbe: {httpGet: {port: 1, unknown: 1}}}]",
        ),
        (
            "/$defs/probe/properties/tcpSocket",
            "probes: [{match: {}, livenessProbe: {tcpSocket: {port: 1, unknown: 1}}}]",
        ),
        (
            "/$defs/probe/properties/grpc",
            "probes: [{match: {}, livenessProbe: {grpc: {port: 1, unknown: 1}}}]",
        ),
    ] {
        let (_dir, flags) = file(text);
        let error = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
        let known = error.split("known fields are ").nth(1).unwrap_or_else(|| panic!("{text}: {error}"));
        let mut known: Vec<String> = known.split(", ").map(str::to_owned).collect();
        known.sort();
        assert_eq!(known, fields(&schema, pointer), "{text}");
    }
}
