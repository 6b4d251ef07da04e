//! The report as a page: one file without scripts, and without requests to anything else.

mod calls;
mod findings;
mod heat_map;
mod page;
mod phases;
mod probes;
mod strip;
mod summary;
mod tables;
mod time;

use page::Page;
use strip::Strips;

use super::model::Report;

/// Size of the page of a day of 200 probes, in bytes. Strips of a larger page become coarser.
const MAX_BYTES: usize = 300 << 10;

/// Numbers of columns of the report in a column of a strip.
const FACTORS: [usize; 4] = [1, 2, 4, 8];

const STYLE: &str = include_str!("style.css");

/// Returns the report as a page in HTML.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut pages = FACTORS.into_iter().map(|factor| page(report, &Strips::new(report, factor)));
    let first = pages.next().unwrap_or_default();
    if first.len() <= MAX_BYTES {
        return first;
    }
    let coarser: Vec<String> = pages.collect();
    let fitting = coarser.iter().position(|page| page.len() <= MAX_BYTES);
    coarser.into_iter().nth(fitting.unwrap_or(0)).unwrap_or(first)
}

fn page(report: &Report, strips: &Strips) -> String {
    let mut page = Page::default();
    page.markup(
        r#"<!doctype html>
<html lang="en" dir="ltr">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>"#,
    )
    .text(summary::title(report))
    .markup("</title>\n<style>\n")
    .markup(STYLE)
    .markup("</style>\n</head>\n<body>\n");
    strips.write_definitions(&mut page);
    summary::write_header(&mut page, report);
    page.markup("<main>\n");
    if let Some(reason) = &report.empty_because {
        page.markup("<p class=\"empty\"><strong>Nothing was observed.</strong> ")
            .sentence(reason)
            .markup("</p>\n");
    }
    findings::write(&mut page, report);
    if report.empty_because.is_none() {
        probes::write_worst(&mut page, report, strips);
    }
    tables::write_restarts(&mut page, report);
    if report.empty_because.is_none() {
        calls::write(&mut page, report);
    }
    heat_map::write(&mut page, report);
    tables::write_gaps(&mut page, report);
    tables::write_pods(&mut page, report);
    probes::write_others(&mut page, report, strips);
    probes::write_other_execs(&mut page, report, strips);
    tables::write_node(&mut page, report);
    page.markup("</main>\n");
    summary::write_footer(&mut page, report, strips);
    page.markup("</body>\n</html>\n");
    page.finish()
}
