//! Characters of the columns of a strip, which the page draws.

use crate::overview::StripMark;
use crate::report::ResultKind;

/// Returns the character of a column.
pub(super) fn mark(mark: StripMark) -> char {
    match mark {
        StripMark::Empty => '.',
        StripMark::Gap => '-',
        StripMark::Result(ResultKind::Success) => 'o',
        StripMark::Result(ResultKind::Slow) => 's',
        StripMark::Result(ResultKind::Late) => 'l',
        StripMark::Result(ResultKind::NotSent) => 'a',
        StripMark::Result(ResultKind::NoResult) => 'n',
        StripMark::Result(ResultKind::Error) => 'e',
        StripMark::Result(ResultKind::Failure) => 'f',
        StripMark::Result(ResultKind::Timeout) => 't',
        StripMark::WouldBeKilled => 'w',
        StripMark::Killed => 'k',
    }
}
