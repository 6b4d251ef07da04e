//! Reports: their size, hostile texts, secrets, gaps, JSON, and `probeshim report` next to a kill.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use fixtures::periods::{self, PROBES_OF_DAY};
use probeshim::history::timeline::{Period, Prober};
use probeshim::report::{Report, ReportInput, ResultKind, Selection, html, redacted, report};
use serde_json::Value;

use crate::probing::{FAILING, run, told};
use crate::procrun::Runtime;
use crate::program::Place;

fn report_of(period: &Period) -> Report {
    let input = ReportInput {
        generated: periods::end(),
        source: "a fixture".to_owned(),
        selection: Selection::default(),
        findings: periods::findings(),
    };
    report(period, input)
}

fn page_of(period: &Period) -> String {
    html(&report_of(period))
}

#[test]
fn the_page_of_a_day_of_200_probes_has_at_most_300_kib() {
    let report = report_of(&periods::day());
    assert_eq!((report.probes.len(), report.axis.columns), (PROBES_OF_DAY, 288));
    let page = html(&report);
    assert!(page.len() <= 300 << 10, "{} bytes", page.len());
    let strips = page.matches("class=\"strip\" viewBox=\"0 0 288 16\"").count();
    assert_eq!(strips, PROBES_OF_DAY, "each probe has a strip with all columns");
}

#[test]
fn strips_become_coarser_rather_than_the_page_too_large() {
    let mut report = report_of(&periods::day());
    for probe in &mut report.probes {
        let axis = &report.axis;
        let results = [ResultKind::Success, ResultKind::Slow, ResultKind::Failure];
        let span = |column: usize| probeshim::report::ResultSpan {
            from: axis.start_of(column),
            to: axis.start_of(column + 1),
            result: results[column % 3],
            attempts: 30,
            count: 1,
        };
        probe.spans = (0..axis.columns).map(span).collect();
    }
    let page = html(&report);
    assert!(page.len() <= 300 << 10, "{} bytes", page.len());
    let width = page.split_once("A column of a strip has ").unwrap().1.split(' ').next().unwrap();
    assert!(["10m00s", "20m00s", "40m00s"].contains(&width), "the page says how wide a column is: {width}");
}

#[test]
fn the_lead_counts_kills_and_not_containers() {
    let mut period = periods::hour();
    let kill = period.events.iter_mut().find(|event| event.reason == "Killing").unwrap();
    kill.count = 3;
    let page = page_of(&period);
    assert!(page.contains("3 kills were made because of a probe."), "{page}");
}

#[test]
fn commands_of_people_are_neither_probes_with_problems_nor_make_a_pod_bad() {
    let mut period = periods::hour();
    let mut command = period.probes.iter().find(|it| it.series.container == "redis").unwrap().clone();
    command.series.probe = "unknown".to_owned();
    command.series.handler = "rm -r /data".to_owned();
    command.series.prober = Prober::named("crictl");
    let attempts = command.total().attempts();
    for minute in &mut command.minutes {
        (minute.failures, minute.successes) = (minute.successes, 0);
    }
    let before = report_of(&period);
    period.probes.push(command);
    let report = report_of(&period);
    assert_eq!(report.probes.last().unwrap().kind, "unknown", "it is behind healthy probes");
    assert_eq!((report.totals.probes, report.totals.failed_probes), (before.totals.probes, 2));
    let failed = u64::from(attempts);
    assert_eq!(report.totals.counts.attempts, before.totals.counts.attempts + failed);
    assert_eq!(report.totals.counts.failures, before.totals.counts.failures + failed);
    assert_eq!((report.totals.other_execs, report.totals.failed_other_execs), (failed, failed));
    let pods = |report: &Report| report.pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    assert_eq!(pods(&report), pods(&before), "the order of the pods is the same");
    let cache = report.pods.iter().find(|pod| pod.name == "cache-5d8c7").unwrap();
    assert_eq!((cache.probes, cache.failed, cache.other_execs), (1, 0, failed));
    let pods = report.pods.iter().map(|pod| pod.attempts + pod.other_execs);
    assert_eq!(pods.sum::<u64>(), report.totals.counts.attempts);
    let page = html(&report);
    let (main, others) = page.split_once("<h2 id=\"other-execs\">Other execs</h2>").unwrap();
    assert!(!main.contains("rm -r /data") && others.contains("rm -r /data"), "{page}");
    assert!(page.contains(&format!("{attempts} of {attempts} other execs failed.")), "{page}");
    assert_elements_are_closed(&page);
}

#[test]
fn a_page_says_that_its_slowest_calls_are_those_that_were_kept() {
    let page = page_of(&periods::hour());
    let calls = page.split_once("<h2 id=\"calls\">Slowest kept calls</h2>").unwrap().1;
    assert!(calls.contains("at most 16 each time it writes results"), "{calls}");
    assert!(calls.contains("others may have been slower"), "{calls}");
}

/// Returns the period with this number of copies of each probe, in pods with other names.
fn copied(mut period: Period, copies: usize) -> Period {
    let probes = std::mem::take(&mut period.probes);
    for copy in 0..copies {
        period.probes.extend(probes.iter().cloned().map(|mut probe| {
            probe.series.pod = format!("{}-{copy}", probe.series.pod);
            probe
        }));
    }
    period
}

#[test]
fn the_lists_of_a_page_end_early_rather_than_the_page_be_too_large() {
    let mut period = copied(periods::day(), 20);
    let other = period.probes.clone();
    period.probes.extend(other.into_iter().take(1000).map(|mut probe| {
        probe.series.probe = "unknown".to_owned();
        probe
    }));
    let page = page_of(&period);
    assert!(page.len() <= 300 << 10, "{} bytes", page.len());
    assert_elements_are_closed(&page);
    for rows in ["probes", "pods", "execs"] {
        let left_out = format!(" more {rows}: a report in JSON (<code>-o FILE.json</code>) has all");
        assert!(page.contains(&left_out), "{rows}");
    }
    assert!(page.contains("The lists of this page have at most "), "{page}");
    let targets: Vec<&str> =
        page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    for target in targets {
        assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
    }
}

#[test]
fn a_page_that_is_too_large_with_two_rows_in_each_list_is_complete() {
    let mut report = report_of(&periods::hour());
    report.source = "&".repeat(1 << 20);
    report.pods[0].containers = (0..100_000).map(|number| format!("container-{number}")).collect();
    for finding in &mut report.findings {
        finding.lint = Box::leak("x".repeat(400 << 10).into_boxed_str());
    }
    let page = html(&report);
    assert!(page.len() > 300 << 10 && page.ends_with("</html>\n"), "{} bytes", page.len());
    assert_elements_are_closed(&page);
}

#[test]
fn a_page_has_neither_scripts_nor_references_to_other_files() {
    for period in [periods::hour(), periods::day(), periods::empty()] {
        let page = page_of(&period);
        for markup in ["<script", "<link", "<img", "src=", "@import", "javascript:", "http:", "https:"] {
            let text = page.replace("http-equiv", "").replace("http://:", "");
            assert!(!text.contains(markup), "{markup}");
        }
        assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"));
        assert_eq!(page.matches("url(").count(), page.matches("url(#").count());
    }
}

#[test]
fn every_element_of_a_page_is_closed() {
    for period in [periods::hour(), periods::day(), periods::empty(), periods::hostile("</p><b>")] {
        assert_elements_are_closed(&page_of(&period));
    }
}

fn assert_elements_are_closed(page: &str) {
    let void = ["meta", "!doctype"];
    let body = page.split_once("<body>").unwrap().1.rsplit_once("</body>").unwrap().0;
    let mut open: Vec<&str> = Vec::new();
    for tag in body.split('<').skip(1) {
        let name = tag.split([' ', '>', '\n', '/']).find(|part| !part.is_empty()).unwrap();
        match (tag.starts_with('/'), tag.split('>').next().unwrap().ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "{tag:.100}"),
            (false, true) => {}
            (false, false) if void.contains(&name) => {}
            (false, false) => open.push(name),
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn markup_in_names_and_commands_is_escaped() {
    let page = page_of(&periods::hostile("</bdi><script>alert(\"1\")</script><b onclick='x'>&amp;"));
    for markup in ["<script", "onclick='", "<b o", "\"1\""] {
        assert!(!page.contains(markup), "{markup}");
    }
    let text =
        "&lt;/bdi&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&lt;b onclick=&#39;x&#39;&gt;&amp;amp;";
    for place in ["pod-", "main-", "host-"] {
        assert!(page.contains(&format!("{place}{text}")), "{place}");
    }
}

#[test]
fn control_characters_in_names_and_commands_are_shown_as_codes() {
    let page = page_of(&periods::hostile("a\u{1b}[2Jb\u{0}c\rd\u{85}e\u{7f}"));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(page.contains(r"pod-a\u{1b}[2Jb\0c\rd\u{85}e\u{7f}"));
}

#[test]
fn marks_of_the_direction_of_writing_are_shown_as_codes() {
    let marks =
        "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}";
    let page = page_of(&periods::hostile(marks));
    assert!(!page.contains(|c| marks.contains(c)));
    assert!(page.contains(r"pod-\u{202a}\u{202b}"));
}

#[test]
fn letters_written_from_right_to_left_stay_and_are_isolated() {
    let page = page_of(&periods::hostile("שלום"));
    assert!(page.contains("<bdi>default/pod-שלום</bdi>"));
}

#[test]
fn a_redacted_report_has_no_arguments_output_or_query_strings() {
    let mut period = periods::hostile("s3cret");
    let plain = "plain".to_owned();
    for probe in &mut period.probes {
        (probe.series.pod, probe.series.container) = (plain.clone(), plain.clone());
    }
    for event in &mut period.events {
        (event.pod, event.container) = (Some(plain.clone()), Some(plain.clone()));
        event.message = "Get \"http://10.0.0.1/a?token=s3cret\": failed".to_owned();
    }
    period.node = None;
    let has_secret = |period: &Period| {
        let report = report_of(period);
        let json = serde_json::to_string(&report).unwrap();
        // Names of pods of calls are no secrets, but the fixture has the text in them.
        let names = |text: &str| text.replace("pod-s3cret", "").replace("main-s3cret", "").contains("s3cret");
        (names(&html(&report)), names(&json))
    };
    assert_eq!(has_secret(&period), (true, true));
    assert_eq!(has_secret(&redacted(period)), (false, false));
}

#[test]
fn gaps_are_drawn_and_listed_with_their_causes() {
    let page = page_of(&periods::day());
    for cause in
        ["probeshim did not run", "3150 observations were dropped", "the clock was set forward by 60.0 s"]
    {
        assert!(page.contains(cause), "{cause}");
    }
    assert_eq!(page.matches("<use href=\"#gaps\"/>").count(), PROBES_OF_DAY);
    assert_eq!(page.matches("class=\"gap\"").count(), 3);
    let report = report_of(&periods::hour());
    let (gap, probe) = (&report.gaps[0], &report.probes[0]);
    assert!(
        probe.spans.iter().all(|span| span.to <= gap.from || span.from >= gap.to),
        "there is no result within a gap"
    );
}

#[test]
fn an_empty_report_says_that_nothing_was_observed_and_why() {
    let page = page_of(&periods::empty());
    let reason = "<strong>Nothing was observed.</strong> <bdi>No probe ran through probeshim in this period";
    assert!(page.contains(reason), "{page}");
}

#[test]
fn probes_are_ordered_by_kills_failures_and_slowness() {
    let report = report_of(&periods::hour());
    let names: Vec<&str> = report.probes.iter().map(|probe| probe.container.as_str()).collect();
    assert_eq!(names, ["main", "agent", "postgres", "redis"]);
    let healthy: Vec<bool> = report.probes.iter().map(probeshim::report::ProbeReport::is_healthy).collect();
    assert_eq!(healthy, [false, false, false, true]);
}

#[test]
fn a_selection_leaves_only_its_pods() {
    let mut period = periods::hour();
    let pod = Some("shop/db-0".to_owned());
    Selection { namespace: None, pod }.apply(&mut period);
    let report = report_of(&period);
    assert_eq!(report.pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["db-0"]);
    assert_eq!((report.probes.len(), report.lifecycle.len(), report.slowest_calls.len()), (1, 1, 1));
    let namespace = Some("none".to_owned());
    Selection { namespace, pod: None }.apply(&mut period);
    assert!(period.probes.is_empty() && period.events.is_empty() && period.calls.is_empty());
}

/// After a change, run `INSTA_UPDATE=always cargo test --test it report` and review the diff.
#[test]
fn the_json_of_a_report_has_all_fields() {
    let mut period = periods::hour();
    let (from, to) = (period.from + Duration::from_secs(29 * 60), period.from + Duration::from_secs(33 * 60));
    (period.from, period.to) = (from, to);
    period.calls.truncate(1);
    period.probes.retain(|probe| probe.series.container == "main");
    period.probes[0].minutes.retain(|minute| (from..to).contains(&minute.start()));
    period.events.truncate(2);
    period.gaps.truncate(1);
    let mut json = serde_json::to_value(report_of(&period)).unwrap();
    json["version"] = "VERSION".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}

#[tokio::test]
async fn a_report_shows_the_kill_of_a_failed_container() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    run(&mut runtime, "web").await;
    place.configure(FAILING);
    let shim = place.start_watching(&["--enforce", "kill"]).await;
    told(&place, "web", "ContainerExited", "", 1).await;

    let file = |name: &str| place.at(name).display().to_string();
    let (page, json) = (file("report.html"), file("report.json"));
    let written = place.ask(&["report", "-o", &page]).await;
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(written.stdout.starts_with(&page), "{written:?}");
    assert_eq!(place.ask(&["report", "--since", "10m", "--pod", "web", "-o", &json]).await.code, Some(0));
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600);

    let unknown = place.ask(&["report", "--pod", "wbe", "-o", &page]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("--pod \"wbe\": no attempts and no events in the period"), "{unknown:?}");

    let page = fs::read_to_string(&page).unwrap();
    for text in ["killed for a probe", "Container main failed liveness probe, will be killed", "1 kill"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let probe = &report["probes"][0];
    assert_eq!((&probe["type"], &probe["kills"]), (&"liveness".into(), &1.into()), "{report:#}");
    let kinds: Vec<&Value> = report["lifecycle"].as_array().unwrap().iter().map(|it| &it["kind"]).collect();
    assert!(kinds.contains(&&"killed".into()) && kinds.contains(&&"exited".into()), "{kinds:?}");
    // The records show the kill once probeshim has ended.
    shim.stop().await;
    let (records, later) = (file("state/calls"), file("later.json"));
    let arguments = ["report", "--records", &records, "--since", "10m", "--pod", "web", "-o", &later];
    let written = place.ask(&arguments).await;
    assert_eq!(written.code, Some(0), "{written:?}");
    let later: Value = serde_json::from_slice(&fs::read(&later).unwrap()).unwrap();
    assert_eq!(later["totals"]["kills"], 1, "{later:#}");
    assert!(later["totals"]["failures"].as_u64().unwrap() > 0, "{later:#}");
    assert_eq!(later["source"], format!("records in {records}"));
    runtime.end().await;
}

#[tokio::test]
async fn a_report_needs_a_file_name_that_ends_with_html_or_json() {
    let place = Place::new();
    for name in ["json", "-", "report.txt"] {
        let refused = place.ask(&["report", "-o", name]).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains("must be the name of a file that ends with .html or .json"),
            "{refused:?}"
        );
        assert!(!Path::new(name).exists());
    }
    let missing = place.ask(&["report"]).await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("--output <FILE>"), "{missing:?}");
}
