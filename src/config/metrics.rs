//! Flags of the address at which Prometheus reads the metrics, and the settings computed from them.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::validator::Validator;
use super::values::{OrOff, ValueError};
use crate::tls::TlsServerFiles;

/// Value that stands for the API server of the cluster in which probeshim is a pod.
const IN_CLUSTER: &str = "in-cluster";

/// Flags of the metrics. An absent flag has its default.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsFlags {
    /// Address and port at which Prometheus on another machine reads /metrics and /metrics/probes,
    /// with /healthz and /readyz, or off. Unlike --http, it may be any address of this machine.
    /// Without --metrics-client-ca and --metrics-token-review, every client that reaches it may
    /// read it [default: off]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    pub metrics_listen: Option<OrOff<MetricsAddress>>,

    /// File with the certificate chain of --metrics-listen, in PEM; it is then served with TLS. The
    /// files of these flags are read again when they change
    #[arg(long, value_name = "FILE")]
    pub metrics_tls_cert: Option<FilePath>,

    /// File with the key of --metrics-tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    pub metrics_tls_key: Option<FilePath>,

    /// File with the certificates of authorities, in PEM: clients of --metrics-listen need a
    /// certificate that one of them signed
    #[arg(long, value_name = "FILE")]
    pub metrics_client_ca: Option<FilePath>,

    /// Kubeconfig of an API server that checks the bearer token of each client of --metrics-listen,
    /// or in-cluster for that of the cluster in which probeshim is a pod. The user of the token
    /// needs the verb get for the nonResourceURL /metrics. With --metrics-client-ca too, clients
    /// need a certificate or a token
    #[arg(long, value_name = "KUBECONFIG|in-cluster")]
    pub metrics_token_review: Option<TokenReviewSource>,
}

/// An address of this machine and a port, such as `0.0.0.0:9755`, or `:9755` for every address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

/// The path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(pub PathBuf);

/// The API server that reviews tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenReviewSource {
    /// The API server of the cluster in which probeshim is a pod.
    InCluster,
    /// The API server of the current context of a kubeconfig.
    Kubeconfig(PathBuf),
}

/// Settings of the address at which Prometheus reads the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address.
    pub address: SocketAddr,
    /// Files of the certificates; `None` without TLS.
    pub tls: Option<TlsServerFiles>,
    /// The API server that reviews tokens; `None` if clients need no token.
    pub token_review: Option<TokenReviewSource>,
}

impl MetricsSettings {
    /// Returns whether every client that reaches the address may read it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.token_review.is_none() && self.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none())
    }

    /// Computes the settings from flags; `None` if the metrics are not served at such an address.
    /// Adds conflicts between the flags to `validator`.
    pub(super) fn new(flags: MetricsFlags, validator: &mut Validator) -> Option<Self> {
        let path = |file: Option<FilePath>| file.map(|FilePath(path)| path);
        let certificate = path(flags.metrics_tls_cert);
        let (key, client_ca) = (path(flags.metrics_tls_key), path(flags.metrics_client_ca));
        let review = flags.metrics_token_review;
        let shown = |path: &PathBuf| path.display().to_string();
        let (certificate_text, key_text) = (certificate.as_ref().map(shown), key.as_ref().map(shown));
        let given = [
            ("--metrics-tls-cert", certificate_text.clone()),
            ("--metrics-tls-key", key_text.clone()),
            ("--metrics-client-ca", client_ca.as_ref().map(shown)),
            ("--metrics-token-review", review.as_ref().map(ToString::to_string)),
        ];
        let given = given.iter().filter_map(|(flag, value)| Some((*flag, value.as_deref()?)));
        let address = match flags.metrics_listen {
            // The flag overrides the configuration file, whose other fields then have no effect.
            Some(OrOff(None)) => return None,
            Some(OrOff(Some(MetricsAddress(address)))) => Some(address),
            None => {
                for (flag, value) in given.clone() {
                    let reason = "must be set together with --metrics-listen, such as 0.0.0.0:9755";
                    validator.error(flag, Some(value), reason.to_owned());
                }
                None
            }
        };
        match (&certificate_text, &key_text) {
            (Some(certificate), None) => {
                let reason = "must be set together with --metrics-tls-key, the file with its key";
                validator.error("--metrics-tls-cert", Some(certificate), reason.to_owned());
            }
            (None, Some(key)) => {
                let reason = "must be set together with --metrics-tls-cert, the file with its certificate";
                validator.error("--metrics-tls-key", Some(key), reason.to_owned());
            }
            (Some(_), Some(_)) => {}
            (None, None) => {
                for (flag, value) in given {
                    let reason = match flag {
                        "--metrics-client-ca" => "clients send certificates only with TLS",
                        _ => "tokens would be sent unencrypted",
                    };
                    let reason = format!(
                        "must be set together with --metrics-tls-cert and --metrics-tls-key: {reason}"
                    );
                    validator.error(flag, Some(value), reason);
                }
            }
        }
        let client_may_be_anonymous = review.is_some();
        let tls = certificate.zip(key).map(|(certificate, key)| TlsServerFiles {
            certificate,
            key,
            client_ca,
            client_may_be_anonymous,
        });
        Some(Self { address: address?, tls, token_review: review })
    }
}

impl FromStr for MetricsAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // As in Go, a port alone stands for every address of the machine, of IPv4 and IPv6.
        let port = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
        let any = port.map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        any.map_or_else(|| text.parse(), Ok).map(Self).map_err(|_| {
            ValueError::expected(
                "a port, such as :9755, or an IP address and a port, such as 0.0.0.0:9755 or [::]:9755",
            )
        })
    }
}

impl FromStr for FilePath {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        std::path::absolute(text).map(Self).map_err(|_| ValueError::expected("the path of a file"))
    }
}

impl FromStr for TokenReviewSource {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == IN_CLUSTER {
            return Ok(Self::InCluster);
        }
        let path = std::path::absolute(text);
        path.map(Self::Kubeconfig)
            .map_err(|_| ValueError::expected("the path of a kubeconfig, or in-cluster"))
    }
}

impl std::fmt::Display for TokenReviewSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InCluster => f.write_str(IN_CLUSTER),
            Self::Kubeconfig(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &[&str]) -> Result<Option<MetricsSettings>, String> {
        let command = MetricsFlags::augment_args(clap::Command::new("probeshim").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        let flags = clap::FromArgMatches::from_arg_matches(&matches).unwrap();
        let mut validator = Validator::default();
        let settings = MetricsSettings::new(flags, &mut validator);
        let problems: Vec<String> = validator.problems.iter().map(ToString::to_string).collect();
        if problems.is_empty() { Ok(settings) } else { Err(problems.join("\n")) }
    }

    const TLS: [&str; 6] =
        ["--metrics-listen", "[::]:1", "--metrics-tls-cert", "/c", "--metrics-tls-key", "/k"];

    #[test]
    fn metrics_may_be_read_openly_or_with_a_certificate_or_a_token() {
        assert_eq!(settings(&[]), Ok(None));
        assert_eq!(settings(&["--metrics-listen", "off", "--metrics-tls-cert", "/c"]), Ok(None));
        let plain = settings(&["--metrics-listen", "0.0.0.0:0"]).unwrap().unwrap();
        assert!(plain.is_open() && plain.tls.is_none());
        assert!(settings(&TLS).unwrap().unwrap().is_open());
        let both =
            [&TLS[..], &["--metrics-client-ca", "/a", "--metrics-token-review", "in-cluster"]].concat();
        let both = settings(&both).unwrap().unwrap();
        assert!(!both.is_open() && both.tls.unwrap().client_may_be_anonymous);
        assert_eq!(both.token_review, Some(TokenReviewSource::InCluster));
        let certificate = settings(&[&TLS[..], &["--metrics-client-ca", "/a"]].concat()).unwrap().unwrap();
        assert!(!certificate.is_open() && !certificate.tls.unwrap().client_may_be_anonymous);
    }

    #[test]
    fn a_port_alone_is_every_address_of_the_machine() {
        let settings = settings(&["--metrics-listen", ":9755"]).unwrap().unwrap();
        assert_eq!(settings.address.to_string(), "[::]:9755");
        for wrong in [":", ":x", "9755", ":99999"] {
            let error = wrong.parse::<MetricsAddress>().unwrap_err().to_string();
            assert!(error.contains("such as :9755"), "{wrong}: {error}");
        }
    }

    #[test]
    fn conflicting_flags_of_the_metrics_are_all_reported() {
        let listen = &TLS[..2];
        for (more, expected) in [
            (&TLS[2..4], "--metrics-tls-cert \"/c\" must be set together with --metrics-tls-key"),
            (&TLS[4..], "--metrics-tls-key \"/k\" must be set together with --metrics-tls-cert"),
            (
                &["--metrics-client-ca", "/a"],
                "--metrics-client-ca \"/a\" must be set together with --metrics-tls-cert and --metrics-tls-key: \
                 clients send certificates only with TLS",
            ),
            (
                &["--metrics-token-review", "/kubeconfig"],
                "--metrics-token-review \"/kubeconfig\" must be set together with --metrics-tls-cert and \
                 --metrics-tls-key: tokens would be sent unencrypted",
            ),
        ] {
            let error = settings(&[listen, more].concat()).unwrap_err();
            assert!(error.starts_with(expected) && error.lines().count() == 1, "{error}");
        }
        let error = settings(&TLS[2..]).unwrap_err();
        assert!(error.starts_with("--metrics-tls-cert \"/c\" must be set together with --metrics-listen"));
        assert_eq!(error.lines().count(), 2, "{error}");
        for address in ["9755", "host:1", "0.0.0.0", ""] {
            let error = settings(&["--metrics-listen", address]).unwrap_err();
            let expected = "must be a port, such as :9755, or an IP address and a port";
            assert!(error.contains(expected), "{error}");
        }
    }
}
