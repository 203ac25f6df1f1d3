//! Every event in every state, with a scripted store and paused time.

mod acquiring;
mod metrics;
mod releasing;
mod script;
mod watching;
