//! Reads probes and hooks by the rules of Kubernetes 1.36.

use serde_json::{Map, Value};

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::probe::Hook;
use crate::manifest::probe::{
    GrpcHealth, Handler, HttpGet, NotUnderstood, Port, Probe, ProbeType, TcpSocket,
};
use crate::manifest::source::Source;
use crate::manifest::validation::POSITIVE;

/// Defaults of a probe: seconds and counts (`core/v1/defaults.go`: `SetDefaults_Probe`).
const TIMEOUT: u32 = 1;
const PERIOD: u32 = 10;
const SUCCESS_THRESHOLD: u32 = 1;

/// Fields with the handler of a probe, in the order in which the API server checks them.
const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// Fields of a header of an httpGet handler.
const HEADER_FIELDS: [&str; 2] = ["name", "value"];

/// Fields with the handler of a hook.
const HOOK_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Fields of a probe.
pub(crate) const PROBE_FIELDS: [&str; 10] = [
    "exec",
    "httpGet",
    "tcpSocket",
    "grpc",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
];

/// Fields of the handler of an exec probe.
const EXEC_FIELDS: [&str; 1] = ["command"];

/// Fields of the handler of a tcp probe.
const TCP_FIELDS: [&str; 2] = ["port", "host"];

/// Fields of the handler of a grpc probe. `mode` is a field of Kubernetes 1.37 (KEP-4939).
const GRPC_FIELDS: [&str; 3] = ["port", "service", "mode"];

/// Values of the mode of a grpc probe: whether the connection has TLS.
const GRPC_MODES: [(&str, bool); 2] = [("Plaintext", false), ("TLS", true)];

/// Fields of an HTTP handler.
const HTTP_FIELDS: [&str; 5] = ["path", "port", "host", "scheme", "httpHeaders"];

/// Format of the name of an HTTP header, as the API server requires it.
const HEADER_NAME: &str = "a valid HTTP header must consist of alphanumeric characters or '-'";

/// Maximum length of the name of a port.
const MAX_PORT_NAME_LEN: usize = 15;

/// Reads a probe; `None` if it has errors.
pub(crate) fn probe(
    probe_type: ProbeType,
    node: &Cursor<'_>,
    source: Source,
    problems: &mut Vec<Violation>,
) -> Option<Probe> {
    node.object(problems)?;
    let before = problems.len();
    let handler = exactly_one_handler(node, &PROBE_HANDLERS, problems)
        .and_then(|(name, handler)| read_handler(name, &handler, problems));
    let mut number =
        |field, default| node.field(field).map_or(default, |number| number.positive_or(default, problems));
    let initial_delay = number("initialDelaySeconds", 0);
    let (timeout, period) = (number("timeoutSeconds", TIMEOUT), number("periodSeconds", PERIOD));
    let success_threshold = number("successThreshold", SUCCESS_THRESHOLD);
    let failure_threshold = number("failureThreshold", Probe::DEFAULT_FAILURE_THRESHOLD);
    if let Some(threshold) = node.field("successThreshold").filter(|_| success_threshold != 1)
        && probe_type != ProbeType::Readiness
    {
        threshold.error("must be 1", problems);
    }
    let termination_grace_period = node.field("terminationGracePeriodSeconds").and_then(|grace| {
        if probe_type == ProbeType::Readiness {
            grace.error("must not be set for readinessProbes", problems);
        }
        // Kubernetes has 64 bits; this maximum is 68 years.
        let seconds: Option<i64> = grace.number(1..=i64::MAX, POSITIVE, problems);
        seconds.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs()))
    });
    node.deny_unknown(&PROBE_FIELDS, problems);
    handler.filter(|_| problems.len() == before).map(|handler| Probe {
        handler,
        initial_delay,
        timeout,
        period,
        success_threshold,
        failure_threshold,
        termination_grace_period,
        source,
    })
}

/// Reads a hook; `None` if it has errors. A hook of a lenient source is invalid if its handler has
/// an unknown field.
pub(crate) fn hook(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Hook> {
    node.object(problems)?;
    let (name, handler) = exactly_one_handler(node, &HOOK_HANDLERS, problems)?;
    let object = handler.object(problems)?;
    node.deny_unknown(&HOOK_HANDLERS, problems);
    let fields: &[&str] = match name {
        "exec" => &EXEC_FIELDS,
        "httpGet" => &HTTP_FIELDS,
        "sleep" => &["seconds"],
        _ => &TCP_FIELDS,
    };
    if node.is_lenient()
        && let Some(field) =
            unknown_field(name, object, fields).or_else(|| unknown_field_of_headers(&handler))
    {
        let reason = format!("the field {name}.{field} is not understood, so the hook is not run");
        return Some(Hook::Invalid(reason));
    }
    handler.deny_unknown(fields, problems);
    match name {
        "exec" => command(&handler, problems).map(Hook::Exec),
        "httpGet" => http(&handler, problems).map(Hook::Http),
        "sleep" => {
            let seconds = handler.field("seconds");
            seconds.map_or(Some(0), |seconds| seconds.non_negative(problems)).map(Hook::Sleep)
        }
        _ => Some(Hook::Tcp),
    }
}

/// Returns the first handler. Reports other handlers as the API server does, and does not read
/// them.
fn exactly_one_handler<'a>(
    node: &Cursor<'a>,
    handlers: &[&'static str],
    problems: &mut Vec<Violation>,
) -> Option<(&'static str, Cursor<'a>)> {
    let mut there = handlers.iter().filter_map(|name| Some((*name, node.field(name)?)));
    let Some((first, handler)) = there.next() else {
        let (last, others) = handlers.split_last()?;
        node.empty(&format!("must specify a handler type: {} or {last}", others.join(", ")), problems);
        return None;
    };
    for (_, other) in there {
        other.forbidden("may not specify more than 1 handler type", problems);
    }
    Some((first, handler))
}

fn read_handler(name: &'static str, node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Handler> {
    let object = node.object(problems)?;
    let fields: &[&str] = match name {
        "exec" => &EXEC_FIELDS,
        "httpGet" => &HTTP_FIELDS,
        "tcpSocket" => &TCP_FIELDS,
        _ => &GRPC_FIELDS,
    };
    if node.is_lenient()
        && let Some(field) = unknown_field(name, object, fields).or_else(|| unknown_field_of_headers(node))
    {
        return Some(Handler::NotUnderstood(NotUnderstood { handler: name, field }));
    }
    let before = problems.len();
    node.deny_unknown(fields, problems);
    for unknown in &mut problems[before..] {
        // Another level is the remedy for a misplaced field.
        if !unknown.message.contains("; it is") {
            unknown.message.push_str("; the handler is not understood");
        }
    }
    match name {
        "exec" => command(node, problems).map(Handler::Exec),
        "httpGet" => http(node, problems).map(Handler::Http),
        "tcpSocket" => {
            let (port, host) = (port(node, problems), text(node, "host", problems));
            Some(Handler::Tcp(TcpSocket { port: port?, host }))
        }
        _ => {
            let reason = "must be an integer between 1 and 65535, inclusive; the port cannot be a name";
            let port = required(node, "port", reason, problems)?.number(1..=65_535, reason, problems);
            let service = text(node, "service", problems).unwrap_or_default();
            let mode = node.field("mode").filter(|mode| mode.value() != "");
            let is_tls = mode.and_then(|mode| mode.one_of(&GRPC_MODES, problems)).unwrap_or(false);
            Some(Handler::Grpc(GrpcHealth { port: port?, service, is_tls }))
        }
    }
}

/// Returns the first field of a handler that this version does not know, or the mode if its value
/// is unknown. A field without a value has no effect.
fn unknown_field(handler: &str, object: &Map<String, Value>, known: &[&str]) -> Option<String> {
    let is_understood = |field: &str, value: &Value| match (handler, field) {
        ("grpc", "mode") if value.is_string() => {
            value == "" || GRPC_MODES.iter().any(|(mode, _)| value == mode)
        }
        _ => known.contains(&field) || value.is_null(),
    };
    object.iter().find(|(field, value)| !is_understood(field, value)).map(|(field, _)| field.clone())
}

/// Returns the first field with a value in the headers of an httpGet handler that this version does
/// not know.
fn unknown_field_of_headers(node: &Cursor<'_>) -> Option<String> {
    node.items(&["httpHeaders"]).iter().enumerate().find_map(|(place, header)| {
        let mut fields = header.value().as_object()?.iter();
        let unknown =
            fields.find(|(field, value)| !HEADER_FIELDS.contains(&field.as_str()) && !value.is_null());
        unknown.map(|(field, _)| format!("httpHeaders[{place}].{field}"))
    })
}

fn command(exec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Vec<String>> {
    exec.object(problems)?;
    let command = required(exec, "command", "", problems)?;
    let before = problems.len();
    let texts = command.string_list(problems);
    if texts.is_empty() && problems.len() == before {
        command.empty("", problems);
    }
    (problems.len() == before).then_some(texts)
}

fn http(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<HttpGet> {
    let port = port(node, problems);
    let path = text(node, "path", problems).unwrap_or_else(|| "/".to_owned());
    let host = text(node, "host", problems);
    let schemes = [("HTTP", false), ("HTTPS", true)];
    let scheme = node.field("scheme").filter(|scheme| scheme.value() != "");
    let is_https = scheme.and_then(|scheme| scheme.one_of(&schemes, problems)).unwrap_or(false);
    let list = node.field("httpHeaders").map(|headers| headers.list(problems)).unwrap_or_default();
    let headers = list.iter().filter_map(|node| header(node, problems)).collect();
    Some(HttpGet { path, port: port?, host, is_https, headers })
}

fn header(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<(String, String)> {
    node.object(problems)?;
    node.deny_unknown(&HEADER_FIELDS, problems);
    let name = required(node, "name", HEADER_NAME, problems)?;
    let value = node.field("value").and_then(|value| value.secret().text(problems)).unwrap_or_default();
    let text = name.text(problems)?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        name.error(HEADER_NAME, problems);
        return None;
    }
    Some((text, value))
}

fn port(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Port> {
    let reason = "must be an integer between 1 and 65535, inclusive, or the name of a port of the container";
    let port = required(node, "port", reason, problems)?;
    let Some(name) = port.value().as_str() else {
        return port.number(1..=65_535, reason, problems).map(Port::Number);
    };
    let before = problems.len();
    for (_, reason) in wrong_name(name).into_iter().filter(|(is_wrong, _)| *is_wrong) {
        port.error(reason, problems);
    }
    (problems.len() == before).then(|| Port::Name(name.to_owned()))
}

/// Returns the checks of the API server for the name of a port. A name can violate several.
fn wrong_name(name: &str) -> [(bool, &'static str); 4] {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    [
        (name.len() > MAX_PORT_NAME_LEN, "must be no more than 15 characters"),
        (
            !name.is_empty() && !name.bytes().all(is_known),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !name.bytes().any(|byte| byte.is_ascii_lowercase()),
            "must contain at least one letter (a-z); a port number must not be quoted",
        ),
        (
            name.starts_with('-') || name.ends_with('-') || name.contains("--"),
            "must not begin or end with a hyphen or contain consecutive hyphens",
        ),
    ]
}

/// Reads an optional string. An empty string counts as absent.
fn text(node: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> Option<String> {
    node.field(field).and_then(|text| text.text(problems)).filter(|text| !text.is_empty())
}

/// Returns a required field.
fn required<'a>(
    node: &Cursor<'a>,
    field: &str,
    reason: &'static str,
    problems: &mut Vec<Violation>,
) -> Option<Cursor<'a>> {
    let found = node.field(field);
    if found.is_none() {
        node.missing(field, reason, problems);
    }
    found
}
