//! The response of a container to a grpc probe.

use super::block_on;
use crate::handler::interpret_health_response;

/// Reads a response to a health check in one piece, and cut at the place that the first byte names.
/// The cut changes nothing.
pub(super) fn run(input: &[u8]) {
    let Some((cut, response)) = input.split_first() else { return };
    let (one, other) = response.split_at(usize::from(*cut).min(response.len()));
    block_on(async {
        let whole = interpret_health_response(&[response]).await;
        assert_eq!(whole, interpret_health_response(&[one, other]).await);
    });
}
