//! Rights of the callers of the admin socket.

use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;

use super::caller::{Caller, CallerClass};
use super::refusal::refusal;
use crate::policy::FaultRule;
use crate::prober::EnforcementMode;

/// Serves callers who may change something.
pub(super) async fn control_only(
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if caller.class >= CallerClass::Control {
        return next.run(request).await;
    }
    let uid = caller.uid();
    let reason =
        format!("uid {uid} may only read: the flag --allow-control-uid {uid} of probeshim permits changes");
    refusal(StatusCode::FORBIDDEN, reason)
}

/// Serves root and the user of probeshim.
pub(super) async fn owner_only(
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if caller.class == CallerClass::Owner {
        return next.run(request).await;
    }
    let uid = caller.uid();
    let reason = format!("uid {uid} may not capture calls: only root and the user of probeshim may");
    refusal(StatusCode::FORBIDDEN, reason)
}

/// Refuses a rule that only root and the user of probeshim may add.
pub(super) fn check_rule(caller: &Caller, rule: &FaultRule) -> Result<(), String> {
    match rule.message_change() {
        Some(action) if caller.class < CallerClass::Owner => Err(format!(
            "rule {:?} has {action}, which changes messages: only root and the user of probeshim may add it, not uid {}",
            rule.name,
            caller.uid()
        )),
        _ => Ok(()),
    }
}

/// Refuses a mode above that at the start of probeshim, except for root and the user of probeshim.
pub(super) fn check_mode(
    caller: &Caller,
    wanted: EnforcementMode,
    start: EnforcementMode,
) -> Result<(), String> {
    if caller.class == CallerClass::Owner || wanted <= start {
        return Ok(());
    }
    Err(format!(
        "mode {:?} is above {:?}, the mode of --enforce: only root and the user of probeshim may set it, not uid {}",
        wanted.name(),
        start.name(),
        caller.uid()
    ))
}
