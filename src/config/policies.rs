//! Settings of the policies: fault rules, limits and coalescing.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::file::File;
use super::validator::Validator;
use super::{Environment, ExecLimitFlags, Flags, Problems};
use crate::policy::{ExecSettings, FaultRule, RuleError};

/// The policies with which probeshim starts.
#[derive(Clone, Debug, Default)]
pub struct PolicySettings {
    /// Limits, and whether probes are coalesced.
    pub exec: ExecSettings,
    /// Flags of the command line for these, which take precedence over the file.
    pub exec_flags: ExecLimitFlags,
    /// Fault rules of flags, which live as long as the process.
    pub flags: Vec<FaultRule>,
    /// Fault rules of the configuration file.
    pub configured: Vec<FaultRule>,
    /// The configuration file, from which the policies are read again when it changes.
    pub file: Option<PathBuf>,
}

/// A fault rule in a flag, in the one-line form.
#[derive(Clone, Debug)]
pub struct FaultFlag(FaultRule);

/// Name of a rule of a flag without a name, until its number is known.
const UNNAMED: &str = "flag";

impl PolicySettings {
    /// Names the rules of flags that have no name, and checks that all names differ. `file` is the
    /// configuration file with the rules `configured`.
    pub(super) fn new(
        flags: Vec<FaultFlag>,
        configured: Vec<FaultRule>,
        file: Option<PathBuf>,
        validator: &mut Validator,
    ) -> Self {
        let mut rules: Vec<FaultRule> = Vec::new();
        for (number, FaultFlag(mut rule)) in (1..).zip(flags) {
            if &*rule.name == UNNAMED {
                rule.name = format!("{UNNAMED}-{number}").into();
            }
            if rules.iter().chain(&configured).any(|known| known.name == rule.name) {
                let reason = format!("has the name {:?}, which another rule has too", rule.name);
                validator.error("--fault", Some(&rule.to_string()), reason);
            } else {
                rules.push(rule);
            }
        }
        Self { flags: rules, configured, file, ..Self::default() }
    }

    /// Creates settings of flags only. The error has all problems.
    pub fn of_flags(flags: Vec<FaultFlag>) -> Result<Self, Problems> {
        let mut validator = Validator::default();
        let settings = Self::new(flags, Vec::new(), None, &mut validator);
        if validator.problems.is_empty() { Ok(settings) } else { Err(Problems(validator.problems)) }
    }
}

impl FromStr for FaultFlag {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        FaultRule::parse(UNNAMED, text, None, false).map(Self)
    }
}

/// Reads the fault rules of a configuration file. The error has all problems of the file.
pub fn read_faults(path: &Path, around: &Environment) -> Result<Vec<FaultRule>, Problems> {
    read_policies(path, ExecLimitFlags::default(), around).map(|(faults, _)| faults)
}

/// Reads the policies of a configuration file. The flags take precedence. The error has all
/// problems of the file.
pub fn read_policies(
    path: &Path,
    exec_limits: ExecLimitFlags,
    around: &Environment,
) -> Result<(Vec<FaultRule>, ExecSettings), Problems> {
    let mut validator = Validator::default();
    let mut flags = Flags { config: Some(path.to_owned()), exec_limits, ..Flags::default() };
    let file = File::read(&mut flags, around, &mut validator);
    let exec = flags.exec_limits.settings(&mut validator);
    if validator.problems.is_empty() { Ok((file.faults, exec)) } else { Err(Problems(validator.problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_rules_of_the_examples_are_valid_and_short() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/faults");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let rules = read_faults(&path, &Environment::detect()).unwrap_or_else(|error| panic!("{error}"));
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#') && *line != "faults:").count();
            assert!((1..=8).contains(&lines), "{} has {lines} lines", path.display());
            names.extend(rules.into_iter().map(|rule| rule.name.to_string()));
        }
        names.sort_unstable();
        assert_eq!(names.len(), 12, "{names:?}");
    }
}
