//! The prober as a whole, on paused time and with commands that are played.

mod attempts;
mod dry_run;
mod fixture;
mod kill;
mod lateness;
mod model;
mod tables;
