//! The response of a container to an httpGet probe.

use super::block_on;
use crate::handler::{interpret_response, split_heads};

/// Separates the heads of a response, in one piece and cut at the place that the first byte names.
/// Reads the rest as the response to a probe, with and without redaction.
pub(super) fn run(input: &[u8]) {
    let Some((cut, response)) = input.split_first() else { return };
    let whole = split_heads(&[response]);
    let (one, other) = response.split_at(usize::from(*cut).min(response.len()));
    assert_eq!(whole, split_heads(&[one, other]));
    assert_eq!(whole, split_heads(&response.chunks(1).collect::<Vec<_>>()));
    block_on(async {
        interpret_response(response, false).await;
        interpret_response(response, true).await;
    });
}
