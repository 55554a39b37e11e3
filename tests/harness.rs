//! Starts the parts of the system for the stories.
