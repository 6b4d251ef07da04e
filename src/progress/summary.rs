//! Summary of pods at the end of `play` and `demo`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::events::{Event, reason};
use crate::kubelet::{PublishedPod, Summary};
use crate::terminal::format::times;
use crate::terminal::{sanitize, width};

/// Returns a table of pods with the columns of `kubectl get pods`. Pods of several namespaces have
/// their namespace before the name.
#[must_use]
pub fn pod_table(pods: &[PublishedPod]) -> String {
    let rows = pods.iter().map(|published| {
        let (namespace, name) = published.names();
        (namespace.to_owned(), name.to_owned(), published.summary())
    });
    table(&rows.collect::<Vec<_>>())
}

fn table(pods: &[(String, String, Summary)]) -> String {
    let namespaces: BTreeSet<&str> = pods.iter().map(|(namespace, ..)| namespace.as_str()).collect();
    let shown = |(namespace, name, _): &(String, String, Summary)| {
        sanitize(&if namespaces.len() > 1 { format!("{namespace}/{name}") } else { name.clone() })
    };
    let names: Vec<String> = pods.iter().map(shown).collect();
    let columns = names.iter().map(|name| width(name)).max().unwrap_or(0).max("NAME".len());
    let of_status = pods.iter().map(|(.., summary)| width(&summary.status_column)).max().unwrap_or(0);
    let of_status = of_status.max("STATUS".len());
    let blanks = |text: &str, columns: usize| " ".repeat(columns.saturating_sub(width(text)));
    let mut text =
        format!("NAME{}  READY  STATUS{}  RESTARTS\n", blanks("NAME", columns), blanks("STATUS", of_status));
    for (name, (.., summary)) in names.iter().zip(pods) {
        let Summary { ready, total, restarts, status_column: status, .. } = summary;
        let (ready, after_name) = (format!("{ready}/{total}"), blanks(name, columns));
        let after_status = blanks(status, of_status);
        let _ = writeln!(text, "{name}{after_name}  {ready:<5}  {status}{after_status}  {restarts:>8}");
    }
    text
}

/// Returns a sentence about each pod of the demo: the kills by its probes, and its restarts.
#[must_use]
pub fn demo_outcome(pods: &[PublishedPod], events: &[Arc<Event>]) -> String {
    let mut text = String::new();
    for published in pods {
        let (_, name) = published.names();
        let of_pod =
            events.iter().filter(|event| event.pod.as_ref().and_then(|it| it.name.as_deref()) == Some(name));
        let killed = of_pod.filter(|event| {
            event.reason == reason::KILLING && event.message.contains("failed liveness probe")
        });
        let kills = killed.map(|event| event.count).sum();
        text += &outcome(name, kills, published.summary().restarts.into());
    }
    text
}

fn outcome(name: &str, kills: u64, restarts: u64) -> String {
    match (kills, restarts) {
        (0, 0) => format!("{name} was neither killed nor restarted.\n"),
        (0, restarts) => format!("{name} was restarted {}.\n", times(restarts)),
        (1, 0) => format!("{name} was killed by its liveness probe.\n"),
        (1, 1) => format!("{name} was killed by its liveness probe and restarted once.\n"),
        (kills, restarts) => format!(
            "{name} was killed by its liveness probe {} and restarted {}.\n",
            times(kills),
            times(restarts)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_at_the_end_has_aligned_columns_and_namespaces_only_if_they_differ() {
        let pod = |namespace: &str, name: &str, status: &str, restarts| {
            let status_column = status.to_owned();
            let summary = Summary { ready: 1, total: 2, restarts, status_column, ..Summary::default() };
            (namespace.to_owned(), name.to_owned(), summary)
        };
        let mut pods =
            vec![pod("shop", "web", "Running", 0), pod("shop", "worker-long", "CrashLoopBackOff", 12)];
        let expected = "NAME         READY  STATUS            RESTARTS\n\
                        web          1/2    Running                  0\n\
                        worker-long  1/2    CrashLoopBackOff        12\n";
        assert_eq!(table(&pods), expected);
        pods[0].0 = "other".to_owned();
        assert!(table(&pods).contains("\nother/web         1/2"), "{}", table(&pods));
    }

    #[test]
    fn the_outcome_of_the_demo_is_a_sentence_about_each_pod() {
        assert_eq!(outcome("steady", 0, 0), "steady was neither killed nor restarted.\n");
        assert_eq!(outcome("moody", 1, 1), "moody was killed by its liveness probe and restarted once.\n");
        let twice = "moody was killed by its liveness probe twice and restarted once.\n";
        assert_eq!(outcome("moody", 2, 1), twice);
    }
}
