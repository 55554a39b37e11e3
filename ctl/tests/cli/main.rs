//! The command line from outside: what it prints, where, and how it exits.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails its test")]

mod commands;
mod control;
mod help;
mod image;
mod local_run;
mod old_face;
mod one_shot;
mod part;
mod replies;
mod run;
mod service;
mod supervisor;
mod upload;
