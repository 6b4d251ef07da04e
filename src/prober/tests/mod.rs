//! Tests of the whole prober, on paused time and with simulated commands.

mod attempts;
mod dry_run;
mod fixture;
mod kill;
mod lateness;
mod model;
mod pauses;
mod tables;
