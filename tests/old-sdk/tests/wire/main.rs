//! The emulated SDKs against a scripted server: every byte, every repetition, every crash.
//!
//! `cfg(test)` marks the helpers as test code for the lints too; it is always set here.

#[cfg(test)]
mod dispatcher;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod old_runtime;
#[cfg(test)]
mod player;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod server;
