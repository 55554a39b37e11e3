//! The ways in which somebody asks this program to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Result};

pub(crate) struct Signals {
    signals: [Signal; 3],
}

impl Signals {
    pub(crate) fn listen() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|cause| Failure::refused(format!("cannot listen for signals: {cause}")));
        Ok(Self {
            signals: [
                listen(SignalKind::interrupt())?,
                listen(SignalKind::terminate())?,
                listen(SignalKind::hangup())?,
            ],
        })
    }

    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
