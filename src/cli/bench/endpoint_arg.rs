//! The endpoints of a storm, and the containers that each of them executes commands in.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::socket::{AddressError, SocketPath};
use crate::terminal::{MAX_NAME_WIDTH, shortened};

/// Maximum length of an endpoint's name.
const MAX_NAME_LENGTH: usize = 30;

/// A socket, with or without a name, such as `direct=unix:///run/probeshim/probeshim.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointArg {
    pub(super) name: Option<String>,
    pub(super) socket: SocketPath,
}

/// A container for all endpoints, such as `main`, or for the endpoint of a name, such as
/// `direct=main`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerArg {
    pub(super) endpoint: Option<String>,
    pub(super) container: String,
}

/// Reason why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EndpointArgError {
    /// The name is empty, is too long or has invalid characters.
    #[error(
        "must be URI or NAME=URI, with a name of up to {MAX_NAME_LENGTH} letters, digits, '-', '_' and '.', such as direct=unix:///path"
    )]
    Name,
    /// The socket is invalid.
    #[error("{0}")]
    Address(#[from] AddressError),
}

impl FromStr for EndpointArg {
    type Err = EndpointArgError;

    fn from_str(text: &str) -> Result<Self, EndpointArgError> {
        let named = text.split_once('=').filter(|(name, _)| !name.contains('/'));
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        let (name, uri) = match named {
            Some((name, uri))
                if (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.chars().all(is_allowed) =>
            {
                (Some(name.to_owned()), uri)
            }
            Some(_) => return Err(EndpointArgError::Name),
            None => (None, text),
        };
        Ok(Self { name, socket: SocketPath::parse(uri)? })
    }
}

impl fmt::Display for EndpointArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.socket),
            None => write!(f, "{}", self.socket),
        }
    }
}

/// Error of an argument without a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be CONTAINER or ENDPOINT=CONTAINER, with the name or id of a container")]
pub(super) struct NoContainer;

impl FromStr for ContainerArg {
    type Err = NoContainer;

    /// Parses an argument. Names and ids of containers have no equals sign.
    fn from_str(text: &str) -> Result<Self, NoContainer> {
        let (endpoint, container) = match text.split_once('=') {
            Some((endpoint, container)) => (Some(endpoint.to_owned()), container),
            None => (None, text),
        };
        if container.is_empty() {
            return Err(NoContainer);
        }
        Ok(Self { endpoint, container: container.to_owned() })
    }
}

impl fmt::Display for ContainerArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Some(endpoint) => write!(f, "{endpoint}={}", self.container),
            None => f.write_str(&self.container),
        }
    }
}

impl ContainerArg {
    /// Returns whether the endpoint of this name executes commands in the container.
    fn applies_to(&self, name: Option<&str>) -> bool {
        self.endpoint.is_none() || self.endpoint.as_deref() == name
    }
}

/// Returns the names or ids of the containers of an endpoint.
pub(super) fn containers_of(endpoint: Option<&str>, containers: &[ContainerArg]) -> Vec<String> {
    let containers = containers.iter().filter(|container| container.applies_to(endpoint));
    containers.map(|container| container.container.clone()).collect()
}

/// Returns all errors in the names of endpoints, and of containers for single endpoints.
pub(super) fn name_errors(endpoints: &[EndpointArg], containers: &[ContainerArg]) -> Vec<String> {
    let mut errors = Vec::new();
    for (index, endpoint) in endpoints.iter().enumerate() {
        let invalid =
            |reason: &str| format!("invalid value '{endpoint}' for '--endpoint <[NAME=]URI>': {reason}");
        let is_repeated = endpoints[..index].iter().any(|earlier| earlier.name == endpoint.name);
        match &endpoint.name {
            None if endpoints.len() > 1 => {
                errors.push(invalid(&format!(
                    "must be NAME=URI if there are several, such as direct={endpoint}"
                )));
            }
            Some(name) if is_repeated => {
                errors.push(invalid(&format!(
                    "must have another name than {name}, which is that of an earlier one"
                )));
            }
            _ => {}
        }
    }
    let names: BTreeSet<&str> = endpoints.iter().filter_map(|endpoint| endpoint.name.as_deref()).collect();
    let allowed = if names.is_empty() {
        "give one a name by '--endpoint NAME=URI'".to_owned()
    } else {
        format!("the endpoints are {}", names.iter().copied().collect::<Vec<_>>().join(", "))
    };
    for container in containers {
        let Some(endpoint) = container.endpoint.as_deref() else { continue };
        if names.contains(endpoint) {
            continue;
        }
        let shown = container.to_string();
        let (shown, name) = (shortened(&shown, MAX_NAME_WIDTH), shortened(endpoint, MAX_NAME_WIDTH));
        errors.push(format!(
            "invalid value '{shown}' for '--container <CONTAINER>': no endpoint is named {name:?}; {allowed}"
        ));
    }
    for name in names.iter().filter(|name| containers_of(Some(name), containers).is_empty()) {
        errors.push(format!(
            "endpoint {name} has no container: add '--container {name}=CONTAINER', or '--container CONTAINER' for all endpoints"
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Result<String, String> {
        match text.parse::<EndpointArg>() {
            Ok(EndpointArg { name, socket }) => Ok(format!("{} {socket}", name.as_deref().unwrap_or("-"))),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn an_endpoint_is_a_socket_with_or_without_a_name() {
        for (text, expected) in [
            ("unix:///run/a.sock", "- unix:///run/a.sock"),
            ("/run/a.sock", "- unix:///run/a.sock"),
            ("direct=unix:///run/a.sock", "direct unix:///run/a.sock"),
            ("runc_1.1-b=/run/a.sock", "runc_1.1-b unix:///run/a.sock"),
            ("/run/a=b.sock", "- unix:///run/a=b.sock"),
            ("unix:///run/a=b.sock", "- unix:///run/a=b.sock"),
            ("direct=/run/a=b.sock", "direct unix:///run/a=b.sock"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["=/run/a.sock", "a b=/run/a.sock", "ä=/a", &format!("{}=/a", "n".repeat(31)), "unix:=/a"]
        {
            let error = endpoint(text).unwrap_err();
            assert!(
                error.starts_with("must be URI or NAME=URI, with a name of up to 30 letters"),
                "{text}: {error}"
            );
        }
        assert!(endpoint(&format!("{}=/a", "n".repeat(30))).is_ok());
        for (text, expected) in [
            ("direct=", "is empty; write"),
            ("direct=tcp://a", "has the scheme tcp://"),
            ("tcp://a=b", "has the scheme tcp://"),
            ("direct=unix:a", "is not a unix URI"),
        ] {
            let error = endpoint(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    fn errors(endpoints: &[&str], containers: &[&str]) -> Vec<String> {
        let endpoints: Vec<EndpointArg> = endpoints.iter().map(|text| text.parse().unwrap()).collect();
        let containers: Vec<ContainerArg> = containers.iter().map(|text| text.parse().unwrap()).collect();
        name_errors(&endpoints, &containers)
    }

    #[test]
    fn a_container_is_for_all_endpoints_or_for_the_one_that_it_names() {
        let containers: Vec<ContainerArg> =
            ["main", "crun=side", "runc=store"].map(|text| text.parse().unwrap()).into();
        assert_eq!(containers_of(None, &containers), ["main"]);
        assert_eq!(containers_of(Some("crun"), &containers), ["main", "side"]);
        assert_eq!(containers_of(Some("direct"), &containers), ["main"]);
        for (endpoints, containers) in [
            (&[][..], &["main"][..]),
            (&["/a"], &["main"]),
            (&["runc=/a"], &["runc=main"]),
            (&["runc=/a", "crun=/a"], &["main"]),
            (&["runc=/a", "crun=/a"], &["runc=main", "crun=side", "crun=store"]),
        ] {
            assert_eq!(errors(endpoints, containers), [""; 0], "{endpoints:?} {containers:?}");
        }
    }

    #[test]
    fn an_argument_without_a_container_is_refused() {
        for text in ["", "runc="] {
            assert_eq!(text.parse::<ContainerArg>().unwrap_err(), NoContainer, "{text:?}");
        }
    }

    #[test]
    fn all_errors_in_names_of_endpoints_are_reported_with_the_allowed_values() {
        for (endpoints, containers, expected) in [
            (
                &["a=/a", "/b", "a=/c"][..],
                &["main"][..],
                &[
                    "invalid value 'unix:///b' for '--endpoint <[NAME=]URI>': must be NAME=URI if there are several, such as direct=unix:///b",
                    "invalid value 'a=unix:///c' for '--endpoint <[NAME=]URI>': must have another name than a, which is that of an earlier one",
                ][..],
            ),
            (
                &[],
                &["a=main"],
                &[
                    "invalid value 'a=main' for '--container <CONTAINER>': no endpoint is named \"a\"; give one a name by '--endpoint NAME=URI'",
                ],
            ),
            (
                &["a=/a", "b=/b"],
                &["a=main", "c=main"],
                &[
                    "invalid value 'c=main' for '--container <CONTAINER>': no endpoint is named \"c\"; the endpoints are a, b",
                    "endpoint b has no container: add '--container b=CONTAINER', or '--container CONTAINER' for all endpoints",
                ],
            ),
            (
                &["b=/b", "a=/a", "a=/c"],
                &["main", "c=side"],
                &[
                    "invalid value 'a=unix:///c' for '--endpoint <[NAME=]URI>': must have another name than a, which is that of an earlier one",
                    "invalid value 'c=side' for '--container <CONTAINER>': no endpoint is named \"c\"; the endpoints are a, b",
                ],
            ),
            (
                &["a=/a"],
                &["main", "=main"],
                &[
                    "invalid value '=main' for '--container <CONTAINER>': no endpoint is named \"\"; the endpoints are a",
                ],
            ),
        ] {
            assert_eq!(errors(endpoints, containers), expected, "{endpoints:?} {containers:?}");
        }
    }
}
