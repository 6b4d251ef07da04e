//! Validation of manifests and of a configuration file, without using them.

use std::path::{Path, PathBuf};

use super::file::File;
use super::validator::Validator;
use super::{EmbeddedRuntimeName, Environment, Flags, Problems, Purpose, Settings};
use crate::manifest::{self, Files, PodSet, ReadOptions, shown_path, skipped_files};
use crate::probe::SpecResolver;

/// Result of a validation.
#[derive(Debug)]
pub struct CheckReport {
    /// The probes of the manifests and of the rules, or all errors.
    pub specs: Result<SpecResolver, Problems>,
    /// Warnings about probable mistakes, and about parts that are left out.
    pub warnings: Vec<String>,
}

/// Validates manifests as `play` does with a runtime that it starts, and a configuration file.
/// `ignore_unsupported`: unsupported fields are warnings.
pub fn check(
    paths: &[PathBuf],
    config: Option<&PathBuf>,
    ignore_unsupported: bool,
    runtime: Option<EmbeddedRuntimeName>,
    around: &Environment,
) -> CheckReport {
    // The files may be checked as another user or on another host than the one on which they are
    // used: the defaults of root leave no path without a value.
    let around = Environment { user: 0, ..around.clone() };
    let (mut flags, mut validator) =
        (Flags { config: config.cloned(), ..Flags::default() }, Validator::default());
    let file = File::read(&mut flags, &around, &mut validator);
    let options = ReadOptions {
        purpose: manifest::Purpose::Check,
        redact: flags.redact_commands,
        ignore_unsupported,
        ..ReadOptions::default()
    };
    // The manifests in a configuration file are for `run`, where a kubelet runs their pods.
    let probed = std::mem::take(&mut flags.manifests);
    let probed = Files::new(&probed, ReadOptions { ignore_unsupported: true, ..options });
    let needs_commands = runtime == Some(EmbeddedRuntimeName::Procrun);
    let played = Files::new(paths, ReadOptions { needs_commands, ..options });
    let pod_set = PodSet::new(played.documents());
    let problems = [probed.problems(), played.problems(), pod_set.problems].concat();
    for problem in problems {
        validator.error("", None, problem);
    }
    let mut warnings = [probed.remarks(), played.remarks()].concat();
    warnings.extend(played.warnings().iter().map(|warning| format!("left out: {warning}")));
    let without_pods = probed.paths_without_pods().chain(played.paths_without_pods());
    warnings.extend(without_pods.map(no_pod));
    let manifests = probed.probed().chain(played.probed()).collect();
    let specs = SpecResolver::default().with_manifests(manifests).and_rules(file.rules.clone());
    let settings = Settings::from_flags(flags, file, validator, &around, Purpose::Run);
    CheckReport { specs: settings.map(|_| specs), warnings }
}

/// Returns the problem of a path without pods, with the files that are no manifests because of
/// their names.
pub(super) fn no_pod(path: &Path) -> String {
    let problem = format!("{}: no pod, and no workload with a pod template", shown_path(path));
    let skipped = skipped_files(path);
    let Some(name) = skipped.first().and_then(|file| file.file_name()) else { return problem };
    let others = match skipped.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let (name, rule) = (name.display(), "names of manifests end with .yaml, .yml or .json");
    format!("{problem}; {name}{others} skipped: {rule}")
}
