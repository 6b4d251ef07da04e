//! What is read from the messages of watched methods, and nothing else: of a whole configuration the metadata, labels and annotations,
//! without the env and mounts around them; of a command's output its size.

pub(super) mod exec;
pub(super) mod lifecycle;
pub(super) mod lists;

use std::sync::Arc;

use super::call::Call;
use super::observation::Observation;
use crate::object_ref::{ContainerRef, PodRef};

/// Bytes that are kept of a name or an id.
const MAX_NAME_LEN: usize = 253;

/// A call while its messages are read.
#[derive(Debug)]
pub(super) struct MessageContext {
    pub(super) call: Call,
    /// What they tell of pods and containers, if the call went well.
    pub(super) facts: Vec<Observation>,
    /// Whether a list was asked for in parts only.
    pub(super) is_filtered: bool,
}

impl MessageContext {
    /// A call of which no message has been read.
    pub(super) fn new(call: Call) -> Self {
        Self { call, facts: Vec::new(), is_filtered: false }
    }

    fn pod(&mut self) -> &mut PodRef {
        Arc::make_mut(self.call.pod.get_or_insert_default())
    }

    fn container(&mut self) -> &mut ContainerRef {
        Arc::make_mut(self.call.container.get_or_insert_default())
    }
}

/// A name or an id, as much of it as is kept.
fn name(text: String) -> String {
    cut(text, MAX_NAME_LEN)
}

/// The beginning of a text that takes no more than so many bytes.
fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text.shrink_to_fit();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_end() {
        assert_eq!(name("n".repeat(300)).len(), 253);
        assert_eq!(name(format!("{}ö", "n".repeat(252))).len(), 252, "no character is cut in two");
    }
}
