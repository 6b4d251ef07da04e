//! Requests of users to the admin socket and to the public address.

use std::time::Duration;

use super::admin_state::admin;
use super::block_on;
use crate::admin::{FuzzCaller, interpret_requests};
use crate::web;

/// Time without a byte after which a client gives up a response that follows calls or events.
const FOLLOW_TIME: Duration = Duration::from_millis(2);

/// Time without a byte after which a client gives up another response. None takes as long.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// Parts of paths whose responses do not end.
const ENDLESS: [&[u8]; 3] = [b"follow", b"capture", b"updates"];

/// Maximum number of bytes of all responses to an input.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Sends an input as the bytes of a client. The first byte selects the client. The server does not
/// panic, fails no request, and its responses are bounded.
pub(super) fn run(input: &[u8]) {
    let Some((caller, requests)) = input.split_first() else { return };
    let caller = match caller {
        b'r' => FuzzCaller::Reader,
        b'c' => FuzzCaller::Controller,
        b'p' => FuzzCaller::Public,
        _ => FuzzCaller::Owner,
    };
    let contains =
        |part: &&[u8]| requests.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    let is_endless = requests.contains(&b'%') || ENDLESS.iter().any(contains);
    let quiet_time = if is_endless { FOLLOW_TIME } else { QUIET_TIME };
    let responses = block_on(async {
        let admin = admin();
        let responses = interpret_requests(requests, caller, admin.clone(), web::routes(), quiet_time).await;
        admin.state.policies.end("the end of the input");
        responses
    });
    assert!(responses.len() <= MAX_RESPONSE_BYTES, "{} bytes", responses.len());
    assert!(responses.is_empty() || responses.starts_with(b"HTTP/1."));
    // A body has no carriage return.
    let failure = b" 500 Internal Server Error\r\n";
    assert!(!responses.windows(failure.len()).any(|window| window == failure), "a request failed");
}
