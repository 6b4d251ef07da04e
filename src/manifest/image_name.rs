//! Names of images: registry, repository, tag and digest.

use crate::gofmt::quote;

/// Registry of names without one, and the namespace of its official images.
const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DEFAULT_DOMAIN: &str = "index.docker.io";
const OFFICIAL_PREFIX: &str = "library/";

/// Tag of names that have neither tag nor digest.
const DEFAULT_TAG: &str = "latest";

const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// Length of an id of an image, in hexadecimal digits.
const ID_DIGITS: usize = 64;

/// The parts of an image's name (kubelet: `pkg/util/parsers/parsers.go`: `ParseImageName`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageName<'a> {
    /// Registry and repository, both with their defaults: `docker.io/library/busybox` for
    /// `busybox`.
    pub(crate) repository: String,
    /// The tag; `latest` for a name that has neither tag nor digest.
    pub(crate) tag: Option<&'a str>,
    pub(crate) digest: Option<&'a str>,
}

/// A text that is not the name of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {}: {problem}", quote(name))]
pub(crate) struct ImageNameError {
    name: String,
    problem: String,
}

impl<'a> ImageName<'a> {
    /// Parses a name (distribution/reference: `normalize.go`: `ParseNormalizedNamed`).
    pub(crate) fn parse(name: &'a str) -> Result<Self, ImageNameError> {
        let fail = |problem: String| ImageNameError { name: name.to_owned(), problem };
        if name.len() == ID_DIGITS && name.bytes().all(is_lower_hex) {
            return Err(fail(format!(
                "invalid repository name ({name}), cannot specify 64-byte hexadecimal strings"
            )));
        }
        let (domain, prefix, rest) = split_domain(name);
        let before_tag = rest.split(':').next().unwrap_or_default();
        if before_tag.to_lowercase() != before_tag {
            return Err(fail(format!(
                "invalid reference format: repository name ({prefix}{before_tag}) must be lowercase"
            )));
        }
        let (tagged, digest) = split_at(rest, '@');
        let (path, tag) = split_at(tagged, ':');
        let path = format!("{prefix}{path}");
        if !is_reference(domain, &path, tag, digest) {
            let is_lowercase_one = is_reference(&domain.to_lowercase(), &path, tag, digest);
            let problem = if is_lowercase_one {
                "repository name must be lowercase"
            } else {
                "invalid reference format"
            };
            return Err(fail(problem.to_owned()));
        }
        if path.len() > MAX_REPOSITORY_BYTES {
            return Err(fail(format!(
                "repository name must not be more than {MAX_REPOSITORY_BYTES} characters"
            )));
        }
        if let Some(problem) = digest.and_then(digest_problem) {
            return Err(fail(problem.to_owned()));
        }
        let default_tag = digest.is_none().then_some(DEFAULT_TAG);
        Ok(Self { repository: format!("{domain}/{path}"), tag: tag.or(default_tag), digest })
    }
}

/// Returns a name with the tag `latest` appended if it has neither tag nor digest (kubelet:
/// `images/image_manager.go`: `applyDefaultImageTag`).
pub(crate) fn with_default_tag(name: &str) -> Result<String, ImageNameError> {
    let ImageName { tag, digest, .. } = ImageName::parse(name)?;
    Ok(match tag {
        Some(tag) if digest.is_none() && !name.ends_with(&format!(":{tag}")) => format!("{name}:{tag}"),
        _ => name.to_owned(),
    })
}

/// Returns a name without its tag and its digest (kubelet:
/// `images/pullmanager/image_pull_policies.go`: `trimImageTagDigest`).
pub(crate) fn without_tag_and_digest(name: &str) -> &str {
    let (tagged, _) = split_at(name, '@');
    match tagged.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => tagged,
    }
}

/// Returns the registry of a name, the prefix of the repository that the name leaves out, and the
/// rest of the name (distribution/reference: `normalize.go`: `splitDockerDomain`).
fn split_domain(name: &str) -> (&str, &'static str, &str) {
    let (domain, rest) = match name.split_once('/') {
        None => return (DEFAULT_DOMAIN, OFFICIAL_PREFIX, name),
        Some((LEGACY_DEFAULT_DOMAIN, rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest)) if is_domain_like(first) => (first, rest),
        Some(_) => (DEFAULT_DOMAIN, name),
    };
    let is_official = domain == DEFAULT_DOMAIN && !rest.contains('/');
    (domain, if is_official { OFFICIAL_PREFIX } else { "" }, rest)
}

/// Returns whether the first part of a name is a registry and not a part of the repository.
fn is_domain_like(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first
}

/// Splits a text at the first separator.
fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Returns whether the parts have the format of a reference (distribution/reference: `regexp.go`:
/// `ReferenceRegexp`).
fn is_reference(domain: &str, path: &str, tag: Option<&str>, digest: Option<&str>) -> bool {
    (is_domain(domain) || is_path_component(domain))
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, port)) => {
            let is_address =
                !address.is_empty() && address.bytes().all(|it| it.is_ascii_hexdigit() || it == b':');
            return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_number));
        }
        None => split_at(text, ':'),
    };
    host.split('.').all(is_domain_component) && port.is_none_or(is_number)
}

fn is_domain_component(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

fn is_path_component(text: &str) -> bool {
    let is_alphanumeric = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_separator = |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|it| it == b'-');
    text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.split(is_alphanumeric).all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= MAX_TAG_BYTES
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

/// Returns whether a text is an algorithm and at least 32 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part.bytes().all(|it| it.is_ascii_alphanumeric())
    };
    text.split_once(':').is_some_and(|(algorithm, encoded)| {
        algorithm.split(['-', '_', '+', '.']).all(is_part)
            && encoded.len() >= 32
            && encoded.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Returns the problem of a digest that has the format of one (opencontainers/go-digest:
/// `digest.go`: `Validate`).
fn digest_problem(digest: &str) -> Option<&'static str> {
    let (algorithm, encoded) = digest.split_once(':')?;
    let digits = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Some("unsupported digest algorithm"),
    };
    if encoded.len() != digits {
        return Some("invalid checksum digest length");
    }
    (!encoded.bytes().all(is_lower_hex)).then_some("invalid checksum digest format")
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e6693c20186f837fc393390135d8a598a96a833917917789d63766cab6c59582";

    /// Kubernetes' `TestParseImageName`, and names of other forms.
    #[test]
    fn image_names_are_parsed_with_the_defaults_of_docker_hub() {
        for (name, repository, tag, digest) in [
            ("root", "docker.io/library/root", Some("latest"), None),
            ("root:tag", "docker.io/library/root", Some("tag"), None),
            (&format!("root@{DIGEST}"), "docker.io/library/root", None, Some(DIGEST)),
            ("user/repo", "docker.io/user/repo", Some("latest"), None),
            (&format!("user/repo:tag@{DIGEST}"), "docker.io/user/repo", Some("tag"), Some(DIGEST)),
            ("url:5000/repo", "url:5000/repo", Some("latest"), None),
            ("url:5000/repo:Tag", "url:5000/repo", Some("Tag"), None),
            ("localhost/a", "localhost/a", Some("latest"), None),
            ("index.docker.io/a", "docker.io/library/a", Some("latest"), None),
            ("docker.io/a/b", "docker.io/a/b", Some("latest"), None),
            ("[::1]:5000/a", "[::1]:5000/a", Some("latest"), None),
            ("Registry/a__b/c--d.e", "Registry/a__b/c--d.e", Some("latest"), None),
            ("under_score.example/a", "under_score.example/a", Some("latest"), None),
        ] {
            let expected = ImageName { repository: repository.to_owned(), tag, digest };
            assert_eq!(ImageName::parse(name), Ok(expected), "{name}");
        }
    }

    #[test]
    fn texts_that_are_no_image_names_have_the_problem_that_the_kubelet_reports() {
        let id = "0123456789abcdef".repeat(4);
        for (name, problem) in [
            ("Nginx", "invalid reference format: repository name (library/Nginx) must be lowercase"),
            ("a/Nginx:1", "invalid reference format: repository name (a/Nginx) must be lowercase"),
            ("UPPER_case/a", "repository name must be lowercase"),
            ("a:b c", "invalid reference format"),
            ("a//b", "invalid reference format"),
            ("a:", "invalid reference format"),
            ("-a", "invalid reference format"),
            ("a___b", "invalid reference format"),
            ("host:port/a", "invalid reference format"),
            ("a@sha256:12", "invalid reference format"),
            (&id, &format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings")),
            (&"a".repeat(256), "repository name must not be more than 255 characters"),
            (&format!("a@sha256:{}", "1".repeat(40)), "invalid checksum digest length"),
            (&format!("a@sha256:{}", "F".repeat(64)), "invalid checksum digest format"),
            (&format!("a@md5:{}", "1".repeat(32)), "unsupported digest algorithm"),
        ] {
            let error = ImageName::parse(name).unwrap_err().to_string();
            assert_eq!(error, format!("couldn't parse image name \"{name}\": {problem}"));
        }
    }

    /// Kubernetes' `TestApplyDefaultImageTag`.
    #[test]
    fn upstream_test_apply_default_image_tag() {
        for (name, expected) in [
            ("root", "root:latest"),
            ("root:tag", "root:tag"),
            (&format!("root@{DIGEST}"), &format!("root@{DIGEST}")),
            (&format!("root:latest@{DIGEST}"), &format!("root:latest@{DIGEST}")),
            ("host:5000/root", "host:5000/root:latest"),
        ] {
            assert_eq!(with_default_tag(name).unwrap(), expected);
        }
        assert!(with_default_tag("root:bad tag").is_err());
    }

    #[test]
    fn a_name_without_tag_and_digest_keeps_its_registry_as_written() {
        for (name, expected) in [
            ("a", "a"),
            ("a:1", "a"),
            ("host:5000/a", "host:5000/a"),
            ("host:5000/a:1", "host:5000/a"),
            (&format!("a:1@{DIGEST}"), "a"),
            (&format!("host:1/a@{DIGEST}"), "host:1/a"),
        ] {
            assert_eq!(without_tag_and_digest(name), expected);
        }
    }
}
