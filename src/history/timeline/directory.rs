//! Reads a period from a directory of records.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::period::Period;
use super::period_builder::PeriodBuilder;
use crate::history::journal;

/// Reads what the records in a directory say about a period. Blocks.
pub fn read_period(dir: &Path, from: SystemTime, to: SystemTime) -> io::Result<Period> {
    let mut period = PeriodBuilder::new(from, to, PeriodBuilder::resolution(from, to));
    journal::read_all(dir, |record| period.add_call(&Arc::new(record)))?;
    Ok(period.build())
}
