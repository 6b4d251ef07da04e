//! A bar of the phases of an ExecSync.

use super::page::Page;
use crate::terminal::format;

/// Writes the phases as a bar, and as text below it. Unknown phases and phases of no time are left
/// out. Durations are in milliseconds.
pub(super) fn write(page: &mut Page, title: &str, phases: &[(&'static str, Option<f64>)]) {
    let known =
        || phases.iter().filter_map(|(name, time)| Some((*name, (*time)?))).filter(|(_, time)| *time > 0.0);
    let total: f64 = known().map(|(_, time)| time).sum();
    if total <= 0.0 {
        return;
    }
    page.markup("<figure class=\"phases\"><figcaption>")
        .text(title)
        .markup("</figcaption><div class=\"bar\" aria-hidden=\"true\">");
    page.each(known(), |page, (name, time)| {
        page.markup("<i class=\"")
            .markup(name)
            .markup("\" style=\"width:")
            .text(format_args!("{:.2}", 100.0 * time / total))
            .markup("%\"></i>");
    });
    page.markup("</div><ul>");
    page.each(known(), |page, (name, time)| {
        page.markup("<li><i class=\"")
            .markup(name)
            .markup("\" aria-hidden=\"true\"></i> ")
            .markup(name)
            .text(format_args!(" {} ({:.0} %)", format::milliseconds(time), 100.0 * time / total))
            .markup("</li>");
    });
    page.markup("</ul></figure>\n");
}
