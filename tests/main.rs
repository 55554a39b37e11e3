//! Stories over the whole system.
