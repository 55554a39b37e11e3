//! The shooter as a whole: matches over packets, the lobby over messages, replays, and the schema's generated code.

mod lobby;
mod platform;
mod play;
mod replay;
mod schema;
mod support;
