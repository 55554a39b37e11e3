//! Whether a connection is alive: everything that is heard counts, and who is silent is asked. Sans-I/O.

use std::time::Duration;

/// When a connection was heard and asked last.
pub(crate) struct Pulse {
    pub(crate) heard_at: Duration,
    pinged_at: Duration,
    /// A ping waits to be sent.
    pub(crate) ping_due: bool,
}

/// How a connection is doing.
pub(crate) enum Feeling {
    Well,
    /// Ask.
    Unsure,
    Gone,
}

impl Pulse {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            heard_at: now,
            pinged_at: now,
            ping_due: false,
        }
    }

    /// Looks at the time. A connection that is to be asked is not asked again before it was.
    pub(crate) fn feel(&mut self, now: Duration, idle: Duration, ping_every: Duration) -> Feeling {
        if now.saturating_sub(self.heard_at) > idle {
            return Feeling::Gone;
        }
        if !self.ping_due && now.saturating_sub(self.pinged_at) >= ping_every {
            self.pinged_at = now;
            self.ping_due = true;
            return Feeling::Unsure;
        }
        Feeling::Well
    }
}
