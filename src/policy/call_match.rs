//! The calls that a rule selects.

use std::fmt;

use wildmatch::WildMatch;

use super::command_pattern::CommandPattern;
use crate::cri::Method;
use crate::manifest::ProbeType;
use crate::manifest::validation::{QUALIFIED_NAME, is_qualified_name};
use crate::probe::Selector;
use crate::relay::Peer;
use crate::suggest::did_you_mean;

/// Name of the client that selects the calls of probeshim itself.
pub(super) const OWN_CLIENT: &str = "probeshim";

/// Prefix of the key that selects a label.
const LABEL: &str = "label.";

/// Selection of calls. A criterion that is absent is met by every call.
#[derive(Clone, Debug, Default)]
pub struct CallMatch {
    /// Methods, and the text that selects them.
    pub(super) methods: Option<(String, Vec<Method>)>,
    /// Pod and container of the call.
    pub(crate) selector: Selector,
    /// Command of an ExecSync or Exec, with its arguments separated by spaces.
    pub(crate) command: Option<CommandPattern>,
    /// Name of the client's program.
    pub(crate) client: Option<WildMatch>,
    /// Type of the probe that an ExecSync belongs to.
    pub(crate) probe: Option<ProbeType>,
}

impl CallMatch {
    /// Keys of the criteria. Labels have keys of their own, such as `label.app`.
    pub const KEYS: [&str; 8] =
        ["method", "namespace", "pod", "container", "image", "command", "client", "probe"];

    /// Adds a criterion. The error is a predicate about the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err("must not be empty; * matches any text, and ? one character".to_owned());
        }
        match key {
            "method" => self.methods = Some((value.to_owned(), methods(value)?)),
            "pod" => match value.split_once('/') {
                None => self.selector.pod = Some(WildMatch::new(value)),
                Some((namespace, pod)) => {
                    if namespace.is_empty() || pod.is_empty() || pod.contains('/') {
                        return Err("must be POD or NAMESPACE/POD".to_owned());
                    }
                    if self.selector.namespace.is_some() {
                        return Err("names a namespace, and namespace is set too".to_owned());
                    }
                    self.selector.namespace = Some(WildMatch::new(namespace));
                    self.selector.pod = Some(WildMatch::new(pod));
                }
            },
            "namespace" if self.selector.namespace.is_some() => {
                return Err("is also in the name of the pod".to_owned());
            }
            "namespace" => self.selector.namespace = Some(WildMatch::new(value)),
            "container" => self.selector.container = Some(WildMatch::new(value)),
            "image" => self.selector.image = Some(WildMatch::new(value)),
            "command" => self.command = Some(CommandPattern::new(value)?),
            "client" => self.client = Some(WildMatch::new(value)),
            "probe" => {
                let probe = ProbeType::ALL.into_iter().find(|probe| probe.name() == value);
                let names = || ProbeType::ALL.map(ProbeType::name).join(", ");
                self.probe = Some(probe.ok_or_else(|| format!("must be one of {}", names()))?);
            }
            _ => {
                let label = key.strip_prefix(LABEL).filter(|label| !label.is_empty());
                let label = label.ok_or_else(|| {
                    let (hint, known) = (did_you_mean(key, Self::KEYS), Self::KEYS.join(", "));
                    format!("has an unknown key{hint}; the keys are {known} and label.NAME")
                })?;
                if !is_qualified_name(label) {
                    return Err(format!("has an invalid name of a label: {QUALIFIED_NAME}"));
                }
                self.selector.labels.push((label.to_owned(), WildMatch::new(value)));
            }
        }
        Ok(())
    }

    /// Returns whether every call of every client is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        let is_any = |pattern: &WildMatch| pattern.to_string().chars().all(|char| char == '*');
        self.methods().count() == Method::all().count()
            && self.selector == Selector::default()
            && self.command.is_none()
            && self.client.as_ref().is_none_or(is_any)
            && self.probe.is_none()
    }

    /// Returns whether the selection depends on the probe that an `ExecSync` belongs to.
    #[must_use]
    pub fn selects_probes(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns whether the selection depends on the client only.
    pub(super) fn selects_clients_only(&self) -> bool {
        Self { client: None, ..self.clone() }.is_everything()
    }

    /// Returns whether the calls of a client may be selected. Calls of probeshim itself are
    /// selected by its name only.
    pub(super) fn admits(&self, peer: Option<&Peer>) -> bool {
        let program = peer.and_then(|peer| peer.program.as_deref());
        if peer.is_some_and(Peer::is_this_process) {
            return self.selects_own_calls();
        }
        self.client.as_ref().is_none_or(|client| program.is_some_and(|program| client.matches(program)))
    }

    /// Returns whether calls of probeshim itself may be selected.
    pub(super) fn selects_own_calls(&self) -> bool {
        self.client.as_ref().is_some_and(|client| *client == WildMatch::new(OWN_CLIENT))
    }

    /// Returns the methods whose calls may be selected.
    pub(crate) fn methods(&self) -> Box<dyn Iterator<Item = Method> + '_> {
        match &self.methods {
            Some((_, methods)) => Box::new(methods.iter().copied()),
            None => Box::new(Method::all()),
        }
    }
}

impl fmt::Display for CallMatch {
    /// Writes the criteria in the one-line form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { methods, selector, command, client, probe } = self;
        let Selector { namespace, pod, container, image, labels } = selector;
        let text = |glob: &Option<WildMatch>| glob.as_ref().map(ToString::to_string);
        let pairs = [
            ("namespace", text(namespace)),
            ("pod", text(pod)),
            ("container", text(container)),
            ("image", text(image)),
            ("command", command.as_ref().map(ToString::to_string)),
            ("client", text(client)),
            ("probe", probe.map(|probe| probe.name().to_owned())),
        ];
        let pairs = pairs.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?)));
        let labels = labels.iter().map(|(key, glob)| (format!("{LABEL}{key}"), glob.to_string()));
        f.write_str(methods.as_ref().map_or("*", |(text, _)| text))?;
        pairs.chain(labels).try_for_each(|(key, text)| write!(f, " {key}={}", quoted(&text)))
    }
}

/// Returns a text as a word of the one-line form.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |char: char| !char.is_whitespace() && !matches!(char, '\'' | '"' | ',' | '(' | ')');
    if !text.is_empty() && text.chars().all(is_plain) && !text.ends_with(':') {
        text.to_owned()
    } else if text.contains('\'') && !text.contains('"') {
        format!("\"{text}\"")
    } else {
        // Quotes of both kinds follow each other without a space.
        format!("'{}'", text.replace('\'', "'\"'\"'"))
    }
}

/// Returns the methods that a text selects: names or patterns, separated by `|`.
fn methods(text: &str) -> Result<Vec<Method>, String> {
    let mut found = Vec::new();
    for part in text.split('|') {
        let pattern = WildMatch::new(part);
        let is_match = |method: &Method| pattern.matches(method.name());
        let methods = match Method::from_name(part) {
            Some(method) => vec![method],
            None => Method::all().filter(is_match).collect(),
        };
        if methods.is_empty() {
            let hint = did_you_mean(part, Method::all().map(Method::name));
            return Err(format!(
                "names no method of the CRI: {part:?}{hint}; it must be a name such as ExecSync, a pattern such as \
                 List*, or several separated by |"
            ));
        }
        for method in methods {
            if !found.contains(&method) {
                found.push(method);
            }
        }
    }
    Ok(found)
}
