//! A file of manifests, which `run` probes, `play` runs, and `check` validates.

use std::path::Path;

use super::text::assert_harmless;
use crate::cli::probe_table;
use crate::manifest::{Files, PodSet, Purpose, ReadOptions};
use crate::probe::SpecResolver;
use crate::terminal::harmless_text;

/// Path of the file. It is not opened.
const PATH: &str = "manifest.yaml";

/// Reads a text as manifests for each purpose. Redaction changes no pod. Each problem names the
/// file and a line. Tables of probes are harmless.
pub(super) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // A carriage return ends a line of YAML too.
    let lines = text.matches(['\n', '\r']).count() as u64 + 1;
    for purpose in [Purpose::Probe, Purpose::Run, Purpose::Check] {
        let options = ReadOptions { purpose, ..ReadOptions::default() };
        let files = read(text, options);
        for problem in files.problems().iter().chain(&files.warnings()).chain(&files.remarks()) {
            let place = problem.strip_prefix(PATH).and_then(|rest| rest.strip_prefix(':'));
            let place = place.unwrap_or_else(|| panic!("{problem:?} does not name the file"));
            let line = place.split(':').next().unwrap_or_default().parse::<u64>();
            assert!(line.is_err() || line.is_ok_and(|line| line <= lines), "{problem:?}");
            assert_harmless(&harmless_text(problem));
        }
        let redacted = read(text, ReadOptions { redact: true, ..options });
        assert!(files.documents().eq(redacted.documents()), "redaction changes documents");
        let lenient = read(text, ReadOptions { ignore_unsupported: true, ..options });
        assert!(lenient.problems().len() <= files.problems().len());

        let set = PodSet::new(lenient.documents());
        set.problems.iter().for_each(|problem| assert_harmless(&harmless_text(problem)));
        let described = SpecResolver::from_files(&files).describe_all();
        assert_harmless(&probe_table(&described));
    }
}

fn read(text: &str, options: ReadOptions) -> Files {
    Files::from_text(Path::new(PATH), text, options)
}
