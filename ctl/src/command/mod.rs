//! One file per group of commands, and those that are more than one call.

pub(crate) mod admin;
mod deploy;
pub(crate) mod developer;
pub(crate) mod environment;
pub(crate) mod image;
mod init;
mod invite;
mod login;
pub(crate) mod support;
