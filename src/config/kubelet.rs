//! The source of the node's pods in the configuration file: a kubelet, or an API server.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::values::BoundedDuration;
use crate::ascii_url;
use crate::manifest::KubeletClient;
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::validation::{DNS_SUBDOMAIN, is_dns_subdomain};
use crate::probe::{ApiPodSource, KubeletSource};

/// Default interval between queries of the kubelet.
const INTERVAL: Duration = Duration::from_secs(10);

/// Reason for which a source without an address is refused.
const URL_MISSING: &str = "must be http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:10255, unless \
                           kubeconfig is set, such as /etc/kubernetes/kubelet.conf";

/// Fields of a kubelet that is queried.
const QUERY_FIELDS: [&str; 7] =
    ["url", "tokenFile", "certificateFile", "keyFile", "authorityFile", "insecureSkipVerify", "interval"];

/// Fields of an API server.
const API_SERVER_FIELDS: [&str; 2] = ["kubeconfig", "nodeName"];

/// Reads the field `kubelet`.
pub(super) fn source(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<KubeletSource> {
    node.object(problems)?;
    node.deny_unknown(&[&API_SERVER_FIELDS[..], &QUERY_FIELDS].concat(), problems);
    match node.field("kubeconfig") {
        Some(kubeconfig) => api_server(node, &kubeconfig, problems).map(KubeletSource::ApiServer),
        None => client(node, problems).map(KubeletSource::Pods),
    }
}

fn api_server(
    node: &Cursor<'_>,
    kubeconfig: &Cursor<'_>,
    problems: &mut Vec<Violation>,
) -> Option<ApiPodSource> {
    for field in QUERY_FIELDS.into_iter().filter_map(|name| node.field(name)) {
        let reason = "must not be set together with kubeconfig, which has the address and the credentials";
        field.error(reason, problems);
    }
    let path = kubeconfig.text(problems)?;
    if path.is_empty() {
        kubeconfig.error("must be the path of a file, such as /etc/kubernetes/kubelet.conf", problems);
    }
    let node_name = node.field("nodeName").and_then(|name| {
        let text = name.text(problems)?;
        if !is_dns_subdomain(&text) {
            name.error(DNS_SUBDOMAIN, problems);
        }
        Some(text)
    });
    Some(ApiPodSource { kubeconfig: PathBuf::from(path), node_name })
}

fn client(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<KubeletClient> {
    if let Some(name) = node.field("nodeName") {
        name.error("must be set together with kubeconfig", problems);
    }
    let url = parse_url(node, problems);
    let mut file = |name: &str| node.field(name).and_then(|path| path.text(problems)).map(PathBuf::from);
    let (token, authority) = (file("tokenFile"), file("authorityFile"));
    let (certificate, key) = (file("certificateFile"), file("keyFile"));
    let is_anyone = node.field("insecureSkipVerify").and_then(|flag| flag.flag(problems)).unwrap_or(false);
    let interval = node.field("interval").and_then(|interval| {
        let text = interval.text(problems)?;
        let parsed = text.parse::<BoundedDuration<1>>().map_err(|error| error.to_string());
        parsed.map_err(|reason| interval.error(reason, problems)).ok()
    });
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            node.missing("keyFile", "must be set together with certificateFile", problems);
            None
        }
        (None, Some(_)) => {
            node.missing("certificateFile", "must be set together with keyFile", problems);
            None
        }
    };
    let url = url?;
    let is_https = url.scheme() == "https";
    if is_https && authority.is_none() && !is_anyone {
        let reason = "must be a file with the certificate that signs the kubelet's certificate, unless insecureSkipVerify is true";
        node.missing("authorityFile", reason, problems);
    }
    for field in ["tokenFile", "certificateFile"] {
        if let Some(credential) = node.field(field).filter(|_| !is_https) {
            credential.error("must not be set if the url is http: it would be sent unencrypted", problems);
        }
    }
    Some(KubeletClient {
        url,
        token,
        identity,
        authority,
        interval: interval.map_or(INTERVAL, Duration::from),
    })
}

fn parse_url(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Url> {
    let reason = "must be http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:10255";
    let Some(url) = node.field("url") else {
        node.missing("url", URL_MISSING, problems);
        return None;
    };
    let text = url.text(problems)?;
    let read = ascii_url::parse(&text).ok().filter(|read| {
        matches!(read.scheme(), "http" | "https")
            && read.host_str().is_some_and(|host| !host.is_empty())
            && matches!(read.path(), "/" | "/pods")
            && read.query().is_none()
            && read.username().is_empty()
            && read.password().is_none()
    });
    if read.is_none() {
        url.error(reason, problems);
    }
    read
}
