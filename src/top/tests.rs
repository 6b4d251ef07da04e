//! Tests of the state and its screens.
