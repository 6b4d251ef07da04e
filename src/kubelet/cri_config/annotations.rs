//! Annotations of a container (kubelet: `kuberuntime/labels.go`).

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cri::labels::{
    CONTAINER_HASH, GRACE_PERIOD, MESSAGE_PATH, MESSAGE_POLICY, PORTS, PRE_STOP_HANDLER, RESTART_COUNT,
};
use crate::cri::v1::Protocol;
use crate::manifest::pod::{Container, Pod, PortMapping};

/// Returns all annotations that the kubelet sets on a container (kubelet:
/// `newContainerAnnotations`).
pub(super) fn container_annotations(
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> HashMap<String, String> {
    let policy = if container.fallback_to_logs_on_error { "FallbackToLogsOnError" } else { "File" };
    let mut notes = vec![
        (CONTAINER_HASH, hash(container)),
        (RESTART_COUNT, attempt.to_string()),
        (MESSAGE_PATH, container.termination_message_path.clone()),
        (MESSAGE_POLICY, policy.to_owned()),
    ];
    if let Some(seconds) = pod.spec.termination_grace_period {
        notes.push((GRACE_PERIOD, seconds.to_string()));
    }
    if let Some(hook) = &container.pre_stop {
        notes.push((PRE_STOP_HANDLER, handler(hook)));
    }
    if !container.ports.is_empty() {
        notes.push((PORTS, ports(&container.ports)));
    }
    notes.into_iter().map(|(key, text)| (key.to_owned(), text)).collect()
}

/// Encodes a hook in JSON as Go does: fields in the order of their declaration, with the defaults
/// of the API server, without empty fields.
fn handler(hook: &Value) -> String {
    if let Some(get) = hook.get("httpGet") {
        let text = |field: &str| get[field].as_str().filter(|text| !text.is_empty());
        let port = match &get["port"] {
            Value::String(name) => go_json_string(name),
            number => number.to_string(),
        };
        let host = text("host").map(|host| format!(",\"host\":{}", go_json_string(host))).unwrap_or_default();
        let header = |header: &Value| {
            let [name, value] =
                ["name", "value"].map(|field| go_json_string(header[field].as_str().unwrap_or_default()));
            format!("{{\"name\":{name},\"value\":{value}}}")
        };
        let headers: Vec<String> = get["httpHeaders"].as_array().into_iter().flatten().map(header).collect();
        let headers = if headers.is_empty() {
            String::new()
        } else {
            format!(",\"httpHeaders\":[{}]", headers.join(","))
        };
        let (path, scheme) =
            (go_json_string(text("path").unwrap_or("/")), go_json_string(text("scheme").unwrap_or("HTTP")));
        return format!(
            "{{\"httpGet\":{{\"path\":{path},\"port\":{port}{host},\"scheme\":{scheme}{headers}}}}}"
        );
    }
    if let Some(command) = hook.get("exec").and_then(|exec| exec["command"].as_array()) {
        let args: Vec<String> = command.iter().filter_map(Value::as_str).map(go_json_string).collect();
        return format!("{{\"exec\":{{\"command\":[{}]}}}}", args.join(","));
    }
    hook.to_string()
}

/// Encodes a string in JSON as Go does, with `<`, `>`, `&` and line separators escaped.
fn go_json_string(text: &str) -> String {
    let escapes = [("<", "003c"), (">", "003e"), ("&", "0026"), ("\u{2028}", "2028"), ("\u{2029}", "2029")];
    escapes
        .into_iter()
        .fold(json!(text).to_string(), |text, (letter, code)| text.replace(letter, &format!("\\u{code}")))
}

/// Encodes ports in JSON as Go does: fields in the order of their declaration, without empty
/// fields.
fn ports(ports: &[PortMapping]) -> String {
    let port = |port: &PortMapping| {
        let PortMapping { name, container, host, host_ip, protocol } = port;
        let name = (!name.is_empty()).then(|| format!("\"name\":{},", go_json_string(name)));
        let host = (*host != 0).then(|| format!("\"hostPort\":{host},"));
        let host_ip = (!host_ip.is_empty()).then(|| format!(",\"hostIP\":{}", go_json_string(host_ip)));
        let protocol = match protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        let [name, host, host_ip] = [name, host, host_ip].map(Option::unwrap_or_default);
        format!("{{{name}{host}\"containerPort\":{container},\"protocol\":\"{protocol}\"{host_ip}}}")
    };
    format!("[{}]", ports.iter().map(port).collect::<Vec<_>>().join(","))
}

/// Returns the hash of a container's image and name in hexadecimal: 32-bit FNV-1a of Go's dump of
/// their JSON (kubelet: `container/helpers.go`: `HashContainer`).
pub(in crate::kubelet) fn hash(container: &Container) -> String {
    let of = json!({"image": container.image, "name": container.name}).to_string();
    let mut dump = "([]uint8)[".to_owned();
    for (place, byte) in of.bytes().enumerate() {
        let _ = write!(dump, "{}{byte}", if place == 0 { "" } else { " " });
    }
    dump.push(']');
    let hash =
        dump.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}
