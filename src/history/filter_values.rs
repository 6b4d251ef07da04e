//! Values of filters, validated. Each error is a predicate: messages put the flag or field and the
//! text before it.

use std::fmt;
use std::str::FromStr;

use crate::cri::{Method, MethodName};
use crate::execsync::ProbeMatch;
use crate::relay::CallOutcome;
use crate::suggest::did_you_mean;

/// The reason for which a text is not a value of a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterValueError(String);

/// The label of a probe or hook, of [`ProbeMatch::LABELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeLabel(pub &'static str);

/// The outcome of a call, by its label: a gRPC code, or `client-reset`, `refused`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLabel(pub CallOutcome);

/// A method: one of the CRI by its name or path, or another one by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodArg(pub MethodName);

impl MethodArg {
    /// Returns the method with the name or the path that a call has in JSON.
    #[must_use]
    pub fn method_of(name: &str) -> MethodName {
        Method::from_name(name).map_or_else(|| MethodName::of_path(name), MethodName::Known)
    }
}

impl FromStr for ProbeLabel {
    type Err = FilterValueError;

    fn from_str(text: &str) -> Result<Self, FilterValueError> {
        let known = ProbeMatch::LABELS.into_iter().find(|label| label.eq_ignore_ascii_case(text));
        known.map(Self).ok_or_else(|| {
            let hint = did_you_mean(text, ProbeMatch::LABELS);
            FilterValueError(format!("must be one of {}{hint}", ProbeMatch::LABELS.join(", ")))
        })
    }
}

impl FromStr for CodeLabel {
    type Err = FilterValueError;

    fn from_str(text: &str) -> Result<Self, FilterValueError> {
        let known = CallOutcome::labels().find(|label| label.eq_ignore_ascii_case(text));
        CallOutcome::named(known.unwrap_or(text)).map(Self).ok_or_else(|| {
            let hint = did_you_mean(text, CallOutcome::labels());
            FilterValueError(format!(
                "must be a gRPC code, such as OK or DEADLINE_EXCEEDED, or a reason why there is none, such as \
                 client-reset{hint}"
            ))
        })
    }
}

impl FromStr for MethodArg {
    type Err = FilterValueError;

    fn from_str(text: &str) -> Result<Self, FilterValueError> {
        if text.starts_with('/') {
            return Ok(Self(MethodName::of_path(text)));
        }
        Method::from_name(text).map(|method| Self(MethodName::Known(method))).ok_or_else(|| {
            let hint = did_you_mean(text, Method::all().map(Method::name));
            FilterValueError(format!(
                "must be a method of the CRI, such as ExecSync, or the path of another method{hint}"
            ))
        })
    }
}

impl fmt::Display for ProbeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for CodeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MethodArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_call_filters_ignore_case_and_an_unknown_value_gets_a_suggestion() {
        assert_eq!("PRESTOP".parse(), Ok(ProbeLabel("preStop")));
        assert_eq!("deadline_exceeded".parse::<CodeLabel>().unwrap().to_string(), "DEADLINE_EXCEEDED");
        assert_eq!("Client-Reset".parse::<CodeLabel>().unwrap().to_string(), "client-reset");
        assert_eq!("CODE(17)".parse::<CodeLabel>().unwrap().to_string(), "CODE(17)");
        assert_eq!("execsync".parse::<MethodArg>().unwrap().to_string(), "ExecSync");
        assert_eq!("/a.B/C".parse::<MethodArg>().unwrap().to_string(), "/a.B/C");
        let error = |text: Result<(), FilterValueError>| text.unwrap_err().to_string();
        for (error, end) in [
            (error("livness".parse::<ProbeLabel>().map(drop)), "unknown, did you mean \"liveness\"?"),
            (error("deadline".parse::<CodeLabel>().map(drop)), "did you mean \"DEADLINE_EXCEEDED\"?"),
            (error("ExecSynch".parse::<MethodArg>().map(drop)), "method, did you mean \"ExecSync\"?"),
        ] {
            assert!(error.starts_with("must be ") && error.ends_with(end), "{error}");
        }
    }
}
