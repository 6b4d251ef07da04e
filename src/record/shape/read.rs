//! From JSON back to what is recorded.
