//! Settings of fault rules.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::file::File;
use super::validator::Validator;
use super::{Environment, Flags, Problems};
use crate::policy::{FaultRule, RuleError};

/// The fault rules with which probeshim starts.
#[derive(Clone, Debug, Default)]
pub struct FaultSettings {
    /// Rules of flags, which live as long as the process.
    pub flags: Vec<FaultRule>,
    /// Rules of the configuration file.
    pub configured: Vec<FaultRule>,
    /// The configuration file, from which the rules are read again when it changes.
    pub file: Option<PathBuf>,
}

/// A fault rule in a flag, in the one-line form.
#[derive(Clone, Debug)]
pub struct FaultFlag(FaultRule);

/// Name of a rule of a flag without a name, until its number is known.
const UNNAMED: &str = "flag";

impl FaultSettings {
    /// Names the rules of flags that have no name, and checks that all names differ.
    pub(super) fn new(flags: Vec<FaultFlag>, file: &mut File, validator: &mut Validator) -> Self {
        let configured = std::mem::take(&mut file.faults);
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
        Self { flags: rules, configured, file: file.path.take() }
    }
}

impl FromStr for FaultFlag {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        FaultRule::parse(UNNAMED, text, None, false).map(Self)
    }
}

/// Reads the fault rules of a configuration file again. The error has all problems of the file.
pub fn read_faults(path: &Path, around: &Environment) -> Result<Vec<FaultRule>, Problems> {
    let mut validator = Validator::default();
    let mut flags = Flags { config: Some(path.to_owned()), ..Flags::default() };
    let file = File::read(&mut flags, around, &mut validator);
    if validator.problems.is_empty() { Ok(file.faults) } else { Err(Problems(validator.problems)) }
}
