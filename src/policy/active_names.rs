//! Names by which active rules and pauses are ended.

use super::fault::RuleError;

/// Checks that each of these names is that of an active rule or pause. `kind` names what it is.
pub(super) fn check_active(names: &[String], active: &[&str], kind: &str) -> Result<(), RuleError> {
    let Some(unknown) = names.iter().find(|name| !active.contains(&name.as_str())) else { return Ok(()) };
    let reason = match active.len() {
        0 => format!("is no active {kind}: there are none"),
        _ => format!("is no active {kind}; active are {}", active.join(", ")),
    };
    Err(RuleError::new(format!("name {unknown:?}"), reason))
}

/// Returns whether a name is selected. Without names, all are.
pub(super) fn is_named(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|known| *known == *name)
}
