//! Test that `docs/reference/metrics.md` lists the metrics of the program.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use prometheus_client::registry::Registry;
use regex::Regex;

use super::ApiMetrics;
use crate::cri::MeteredChannel;
use crate::history::journal::{Journal, JournalConfig};
use crate::metrics::{self, MetricsFormat};
use crate::policy::Policies;
use crate::socket::SocketPath;
use crate::telemetry::traces::Traces;

/// Environment variable that `make generate` sets. With it the test writes the document.
const WRITE: &str = "PROBESHIM_GENERATE";

const INTRODUCTION: &str = "# Metrics

Generated from the program by `make generate`. The endpoints answer in the text format
of Prometheus, version 0.0.4, or in OpenMetrics 1.0.0 if the `Accept` header of the request names
it, as that of Prometheus does. Both have the same samples.
`/metrics` has the metrics of calls, connections and the prober. `/metrics/probes` has the metrics
of single probes. Metrics of a probe exist only while probeshim runs that probe, as in a kubelet.
Sizes are those of messages with their gRPC frames. `method=\"other\"` stands for methods outside
the CRI. Beyond 2,000 probes, `probeshim_exec_margin_seconds` counts all further probes as
`probe=\"other\"`.

Values of labels:

- `code`: a gRPC code, or the reason why the call has none, as in [api.md](api.md#calls)
- `phase`, `state`: phases of an ExecSync and their
  [completeness](../guides/execsync.md#phases)
- `assessment`: `fine`, `slow`, `failed`
- `kind`: kinds of [stuck execs](../guides/execsync.md#stuck-execs)
- `reason` of undecoded messages: `too-long`, `no-room`, `compressed`, `not-one-message`,
  `malformed`
- `limit` of [connections](../transparency.md#limits-for-one-client): `streams`, `unwritten_bytes`,
  `resets`
- `kill`: `predicted`, `unpredicted`, `not_observed`; `result` of kills: `stopped`, `failed`
";

#[tokio::test]
async fn the_metric_reference_lists_all_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let config = JournalConfig { dir: dir.path().to_owned(), limit: 1 << 20 };
    let (journal, _thread) = Journal::start(config, 1, std::sync::Arc::default()).unwrap();
    let (traces, _task) = Traces::start(&"http://127.0.0.1:4317".parse().unwrap()).unwrap();
    let all = ApiMetrics {
        relay: crate::relay::RelayMetrics::default(),
        tap: crate::tap::TapMetrics::default(),
        exec: crate::execsync::ExecMetrics::default(),
        prober: crate::prober::ProberMetrics::default(),
        traces: Some(traces),
        panics: prometheus_client::metrics::counter::Counter::default(),
    };
    all.tap.create_samples();
    all.exec.create_samples();
    all.prober.create_samples();
    let mut registry = all.register(Some(&journal));
    let channel = MeteredChannel::new(&SocketPath::new(Path::new("/nonexistent")).unwrap());
    channel.create_samples();
    channel.register(&mut registry);
    Policies::default().register(&mut registry);

    let mut document = INTRODUCTION.to_owned();
    table(&mut document, "/metrics", &[registry]);
    table(&mut document, "/metrics/probes", &all.prober.registries());

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/metrics.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, document).unwrap();
    } else if std::fs::read_to_string(&path).unwrap_or_default() != document {
        panic!("docs/reference/metrics.md differs from the program; run `make generate`");
    }
}

/// Appends a table of the families of some registries.
fn table(document: &mut String, endpoint: &str, registries: &[Registry]) {
    let head = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|";
    writeln!(document, "\n## {endpoint}\n\n{head}").unwrap();
    let open_metrics = |registry| metrics::encode(registry, MetricsFormat::OpenMetrics);
    for text in registries.iter().map(open_metrics) {
        for family in text.split("# HELP ").skip(1) {
            let (name, rest) = family.split_once(' ').unwrap();
            let (help, rest) = rest.split_once('\n').unwrap();
            let kind = rest.split_whitespace().nth(3).unwrap();
            let labels = labels(family).into_iter().filter(|label| label != "le");
            let labels: Vec<_> = labels.map(|label| format!("`{label}`")).collect();
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let (help, labels) = (help.trim_end_matches('.'), labels.join(", "));
            writeln!(document, "| `{name}{suffix}` | {kind} | {labels} | {help} |").unwrap();
        }
    }
}

/// Returns the names of the labels of a family's samples.
fn labels(family: &str) -> BTreeSet<String> {
    let label = Regex::new(r#"([a-z_]+)=""#).unwrap();
    let samples = family.lines().filter(|line| line.contains('{'));
    samples.flat_map(|line| label.captures_iter(line).map(|found| found[1].to_owned())).collect()
}
