//! `make ui-test`: pages in Debian's Chromium. Screenshots are in `target/ui`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod browser;
mod page;
mod report;
