//! The response of a container to an httpGet probe.

use super::block_on;
use crate::handler::interpret_response;

/// Reads a response to a probe in one piece, cut at the place that the first byte names, and with
/// redaction. The cut changes nothing.
pub(super) fn run(input: &[u8]) {
    let Some((cut, response)) = input.split_first() else { return };
    let (one, other) = response.split_at(usize::from(*cut).min(response.len()));
    block_on(async {
        let whole = interpret_response(&[response], false).await;
        assert_eq!(whole, interpret_response(&[one, other], false).await);
        assert_eq!(whole, interpret_response(&[response], true).await);
    });
}
