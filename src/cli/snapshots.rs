//! Snapshots of what commands print, on every kind of screen.

use std::fmt::Write as _;

use crate::terminal::screen::Screen;

/// Widths of terminals, in columns.
const WIDTHS: [usize; 2] = [80, 160];

/// Compares the output of `render` with the snapshot of this name: at 80 and 160 columns, with and
/// without colours, with and without UTF-8. The escape character is shown as `ESC`.
///
/// `cargo insta review`, or `INSTA_UPDATE=always cargo test`, accepts a changed output.
pub(crate) fn assert_screens(name: &str, render: impl Fn(Screen) -> String) {
    let mut shown = String::new();
    for width in WIDTHS {
        for colour in [false, true] {
            for utf8 in [true, false] {
                let screen = Screen { width: Some(width), colour, utf8 };
                let kind =
                    [if colour { "colours" } else { "no colours" }, if utf8 { "UTF-8" } else { "ASCII" }];
                let text = render(screen);
                let text = screen.encode(&text).replace('\u{1b}', "ESC");
                let _ = writeln!(shown, "--- {width} columns, {}\n{text}", kind.join(", "));
            }
        }
    }
    insta::assert_snapshot!(name, shown);
}
