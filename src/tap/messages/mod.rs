//! Decoding of the messages of watched methods. Only relevant fields are decoded: metadata, labels
//! and annotations of a configuration, but no environment variables or mounts; the size of a
//! command's output, and its beginning if the command failed.

pub(super) mod exec;
pub(super) mod lifecycle;
pub(super) mod lists;

use std::sync::Arc;

use super::call::Call;
use super::observation::Observation;
use crate::cri::v1;
use crate::object_ref::{ContainerRef, PodRef};

/// Maximum number of bytes that are kept of a name or an id.
const MAX_NAME_LEN: usize = 253;

/// A call whose messages are decoded.
#[derive(Debug)]
pub(super) struct MessageContext {
    pub(super) call: Call,
    /// Observations in the messages, which are true if the call succeeded.
    pub(super) facts: Vec<Observation>,
    /// Whether the request of a list has a filter.
    pub(super) is_filtered: bool,
}

impl MessageContext {
    /// Creates the context of a call before its first message.
    pub(super) fn new(call: Call) -> Self {
        Self { call, facts: Vec::new(), is_filtered: false }
    }

    fn pod(&mut self) -> &mut PodRef {
        Arc::make_mut(self.call.pod.get_or_insert_default())
    }

    fn set_image(&mut self, image: Option<v1::ImageSpec>) {
        let image = image.map(|image| name(image.image)).filter(|image| !image.is_empty());
        self.call.image = image.map(String::into_boxed_str);
    }

    fn container(&mut self) -> &mut ContainerRef {
        Arc::make_mut(self.call.container.get_or_insert_default())
    }
}

/// Returns a name or an id, truncated to the maximum length.
fn name(text: String) -> String {
    cut(text, MAX_NAME_LEN)
}

/// Returns a text, truncated at a character to at most `longest` bytes.
pub(super) fn cut(mut text: String, longest: usize) -> String {
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
    fn observed_names_have_at_most_253_bytes() {
        assert_eq!(name("n".repeat(300)).len(), 253);
        assert_eq!(name(format!("{}ö", "n".repeat(252))).len(), 252, "no character is cut in two");
    }
}
