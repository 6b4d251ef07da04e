//! Heat map of latencies, and their percentiles as a table.

use std::fmt::Write as _;

use super::page::Page;
use super::probes::cell;
use super::strip::{gap_spans, hatch};
use super::time::{Ticks, date_time, number};
use crate::report::latency::{LatencyMap, LatencyRow};
use crate::report::model::Report;
use crate::terminal::format::duration;

/// Number of shades.
const LEVELS: u32 = 5;

/// Height of a row, in the units of the drawing.
const ROW: usize = 10;

/// Shade of each level. Cells of a lower level are smaller, too.
const CLASSES: [&str; LEVELS as usize] = ["h1", "h2", "h3", "h4", "h5"];

/// Writes the heat map and the percentiles.
pub(super) fn write(page: &mut Page, report: &Report) {
    let map = &report.latency;
    if map.rows.is_empty() {
        return;
    }
    page.markup(
        "<section aria-labelledby=\"latency\">\n<h2 id=\"latency\">Latency</h2>\n\
         <p>Number of attempts by time and duration, over all probes and other execs. The table below has the percentiles.</p>\n",
    );
    let max = map.rows.iter().flat_map(|row| &row.counts).copied().max().unwrap_or(0);
    drawing(page, report, max);
    legend(page, max);
    table(page, map);
    page.markup("</section>\n");
}

fn drawing(page: &mut Page, report: &Report, max: u32) {
    let map = &report.latency;
    let height = map.rows.len() * ROW;
    page.markup("<div class=\"map\"><div class=\"rows\" aria-hidden=\"true\">").each(
        map.rows.iter().rev(),
        |page, row| {
            page.markup("<span>").text(duration(row.from)).markup("</span>");
        },
    );
    page.markup("</div><div class=\"track\"><svg viewBox=\"0 0 ")
        .text(map.axis.columns)
        .text(" ")
        .text(height)
        .markup("\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Heat map of latencies; the table below has the percentiles\" style=\"height:")
        .text(height + height / 2)
        .markup("px\"><defs>");
    hatch(page, "map-hatch", map.axis.columns, 16);
    page.markup("</defs>");
    for (level, class) in (1..=LEVELS).zip(CLASSES) {
        let path = path(&map.rows, level, max);
        if !path.is_empty() {
            page.markup("<path class=\"").markup(class).markup("\" d=\"").text(path).markup("\"/>");
        }
    }
    page.each(gap_spans(&report.gaps, &map.axis), |page, (x, width)| {
        page.markup("<path class=\"map-gap\" d=\"")
            .text(format_args!("M{x:.2} 0h{width:.2}v{height}h-{width:.2}z"))
            .markup("\"/>");
    })
    .markup("</svg>");
    Ticks::of_axis(&map.axis).write(page);
    page.markup("</div></div>\n");
}

/// Returns the path through the cells of a level.
fn path(rows: &[LatencyRow], level: u32, max: u32) -> String {
    let mut path = String::new();
    for (at, row) in rows.iter().rev().enumerate() {
        let middle = at * ROW + ROW / 2;
        let mut start = 0;
        for run in row.counts.chunk_by(|one, other| self::level(*one, max) == self::level(*other, max)) {
            if self::level(run[0], max) == level {
                let _ = write!(path, "M{start} {middle}h{}", run.len());
            }
            start += run.len();
        }
    }
    path
}

/// Returns the level of a cell, from 0 for no attempt. Each level has several times the attempts of
/// the one below it.
fn level(count: u32, max: u32) -> u32 {
    (1..=LEVELS).find(|level| count <= bound(*level, max)).filter(|_| count > 0).unwrap_or(0)
}

/// Returns the highest number of attempts of a level.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and a count")]
fn bound(level: u32, max: u32) -> u32 {
    let share = f64::from(level) / f64::from(LEVELS);
    if level == LEVELS { max } else { f64::from(max.max(1)).powf(share) as u32 }
}

fn legend(page: &mut Page, max: u32) {
    page.markup("<ul class=\"legend\" aria-label=\"Legend of the heat map\">");
    let mut below = 0;
    for (level, class) in (1..=LEVELS).zip(CLASSES) {
        let bound = bound(level, max);
        if bound > below {
            let numbers = if bound == below + 1 {
                number(bound)
            } else {
                format!("{}–{}", number(below + 1), number(bound))
            };
            page.markup("<li><svg class=\"cell\" viewBox=\"0 0 14 10\" aria-hidden=\"true\"><path class=\"")
                .markup(class)
                .markup("\" d=\"M0 5h14\"/></svg> ")
                .text(numbers)
                .markup("</li>");
            below = bound;
        }
    }
    page.markup("<li>attempts</li></ul>\n");
}

fn table(page: &mut Page, map: &LatencyMap) {
    page.markup(
        r#"<div class="scroll" tabindex="0" role="region" aria-labelledby="latency-caption"><table>
<caption id="latency-caption">Percentiles of the latency by time</caption>
<thead><tr><th scope="col">From (UTC)</th><th scope="col" class="num">Attempts</th><th scope="col" class="num">Failed</th>
<th scope="col" class="num">p50</th><th scope="col" class="num">p90</th><th scope="col" class="num">p99</th>
<th scope="col" class="num">Max</th></tr></thead>
<tbody>
"#,
    );
    page.each(&map.summaries, |page, summary| {
        page.markup("<tr><th scope=\"row\" class=\"time\">").text(date_time(summary.from)).markup("</th>");
        cell(page, number(summary.attempts));
        cell(page, number(summary.failed));
        for time in [summary.p50, summary.p90, summary.p99, summary.max] {
            cell(page, duration(time));
        }
        page.markup("</tr>\n");
    })
    .markup("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_level_and_more_attempts_have_no_lower_one() {
        for max in [1, 2, 5, 100, 1_000_000] {
            let levels: Vec<u32> = (0..=max.min(2000)).map(|count| level(count, max)).collect();
            assert!(levels.is_sorted() && levels[0] == 0 && levels[1] >= 1, "{max}");
            assert_eq!(level(max, max), if max == 1 { 1 } else { LEVELS }, "{max}");
        }
    }
}
