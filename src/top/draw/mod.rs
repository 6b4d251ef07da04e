//! Draws the state of `top`. Each file draws one part as lines.

mod detail;
mod dialog;
mod findings;
mod header;
mod help;
mod page;
mod table;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;

use super::app::{TopApp, TopView};
use super::symbols::TopScreen;
use page::Page;

/// Minimum size of the terminal, in columns and rows.
const MIN_SIZE: (u16, u16) = (40, 10);

/// Number of rows above and below the content.
const HEADER_ROWS: u16 = 2;
const FOOTER_ROWS: u16 = 1;

/// Draws the state on a terminal with these properties.
pub fn draw(frame: &mut Frame<'_>, app: &TopApp, screen: TopScreen) {
    let area = frame.area();
    let Rect { width, height, .. } = area;
    if width < MIN_SIZE.0 || height < MIN_SIZE.1 {
        let text = format!("top needs {}x{}; q quits", MIN_SIZE.0, MIN_SIZE.1);
        return put(frame, area, &[Line::raw(text)]);
    }
    let rows = height - HEADER_ROWS - FOOTER_ROWS;
    let columns = usize::from(width);
    put(frame, Rect { height: HEADER_ROWS, ..area }, &header::header(app, screen, columns));
    let content = Rect { y: HEADER_ROWS, height: rows, ..area };
    let mut page = Page::new(screen, columns);
    let lines = match &app.view {
        TopView::Table => table::table(app, screen, columns, rows.into()),
        TopView::Detail(detail) => {
            detail::detail(&mut page, app, detail);
            page.visible(detail.scroll, rows.into())
        }
        TopView::Findings(chosen) => {
            let first = findings::findings(&mut page, app, *chosen);
            page.visible(first, rows.into())
        }
        TopView::Help => {
            help::help(&mut page, app.status.as_ref().map(|status| &status.probe_names));
            page.visible(0, rows.into())
        }
    };
    put(frame, content, &lines);
    let footer = Rect { y: height - FOOTER_ROWS, height: FOOTER_ROWS, ..area };
    put(frame, footer, &[header::footer(app, screen, columns)]);
    if let Some(dialog) = &app.dialog {
        let mut page = Page::new(screen, columns - 4);
        dialog::dialog(&mut page, dialog);
        let lines = page.visible(0, rows.saturating_sub(2).into());
        let height = u16::try_from(lines.len()).unwrap_or(rows).saturating_add(2).min(rows);
        let window = Rect { x: 0, y: HEADER_ROWS + rows - height, width, height };
        frame.render_widget(Clear, window);
        let rule = Line::raw(screen.encode(&"–".repeat(columns)).into_owned());
        put(frame, Rect { height: 1, ..window }, std::slice::from_ref(&rule));
        put(frame, Rect { y: window.y + height - 1, height: 1, ..window }, &[rule]);
        let inner = Rect { x: 2, y: window.y + 1, width: width - 4, height: height - 2 };
        put(frame, inner, &lines);
    }
}

/// Writes lines from the top of an area.
fn put(frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
    }
}
