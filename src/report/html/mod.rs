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

/// Size of the page of a day of 200 probes, in bytes. A larger page gets coarser strips, and then
/// shorter lists.
const MAX_BYTES: usize = 300 << 10;

/// Numbers of columns of the report in a column of a strip.
const FACTORS: [usize; 4] = [1, 2, 4, 8];

/// Maximum lengths of the lists of a page that is too large with the coarsest strips.
const MAX_ROWS: [usize; 6] = [500, 200, 60, 20, 6, 2];

const STYLE: &str = include_str!("style.css");

/// Returns the report as a page in HTML. A page that is too large gets coarser strips. If these are
/// not enough, its lists end early, and say how many rows are left out.
#[must_use]
pub fn html(report: &Report) -> String {
    let [.., coarsest] = FACTORS;
    let complete = FACTORS.into_iter().map(|factor| (factor, usize::MAX));
    let shortened = MAX_ROWS.into_iter().map(|rows| (coarsest, rows));
    let mut written = String::new();
    for (factor, max_rows) in complete.chain(shortened) {
        written = page(report, &Strips::new(report, factor), max_rows);
        if written.len() <= MAX_BYTES {
            break;
        }
    }
    written
}

/// Writes a page, with at most `max_rows` in each list.
fn page(report: &Report, strips: &Strips, max_rows: usize) -> String {
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
    summary::write_header(&mut page, report, max_rows);
    page.markup("<main>\n");
    if let Some(reason) = &report.empty_because {
        page.markup("<p class=\"empty\"><strong>Nothing was observed.</strong> ")
            .sentence(reason)
            .markup("</p>\n");
    }
    findings::write(&mut page, report, max_rows);
    if report.empty_because.is_none() {
        probes::write_worst(&mut page, report, strips, max_rows);
    }
    tables::write_restarts(&mut page, report, max_rows);
    if report.empty_because.is_none() {
        calls::write(&mut page, report, max_rows);
    }
    heat_map::write(&mut page, report);
    tables::write_gaps(&mut page, report, max_rows);
    tables::write_pods(&mut page, report, max_rows);
    probes::write_others(&mut page, report, strips, max_rows);
    probes::write_other_execs(&mut page, report, strips, max_rows);
    tables::write_node(&mut page, report, max_rows);
    page.markup("</main>\n");
    summary::write_footer(&mut page, report, strips, max_rows);
    page.markup("</body>\n</html>\n");
    page.finish()
}
