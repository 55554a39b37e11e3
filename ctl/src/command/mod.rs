//! One file per group of commands.

pub(crate) mod admin;
pub(crate) mod developer;
pub(crate) mod environment;
pub(crate) mod image;
pub(crate) mod support;
