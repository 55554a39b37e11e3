//! The binary link between dispatcher and runtime.
