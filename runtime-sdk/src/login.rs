//! The token for the service, sans-I/O: when to ask for one, when to replace it, when to give up.

use std::sync::Arc;
use std::time::Duration;

use crate::exchange::{Backoff, Failure};

/// How often in a row the password must be refused before whoever it belongs to counts as deleted: about a second.
pub(crate) const DENIALS_MAX: u32 = 5;

/// A token and the login that it came from.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: Arc<str>,
    login: u64,
}

pub(crate) struct Login {
    token: Option<Token>,
    count: u64,
    is_busy: bool,
    denials: u32,
    backoff: Backoff,
}

impl Login {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            token: None,
            count: 0,
            is_busy: false,
            denials: 0,
            backoff: Backoff::new(seed ^ 3),
        }
    }

    /// The present token, if there is one.
    pub(crate) fn token(&self) -> Option<Token> {
        self.token.clone()
    }

    /// Whether to log in now; then [`Login::granted`] or [`Login::denied`] follows.
    pub(crate) fn start(&mut self, now: Duration) -> bool {
        let starts = !self.is_busy && self.backoff.is_over(now);
        self.is_busy |= starts;
        starts
    }

    pub(crate) fn granted(&mut self, token: String) {
        self.is_busy = false;
        self.denials = 0;
        self.backoff.succeeded();
        self.count += 1;
        self.token = Some(Token {
            text: token.into(),
            login: self.count,
        });
    }

    /// The reason to give up, if there is one.
    pub(crate) fn denied(&mut self, now: Duration, failure: Failure) -> Option<String> {
        self.is_busy = false;
        self.backoff.failed(now);
        match failure {
            Failure::Unauthorized(reason) | Failure::Gone(reason) | Failure::Refused(reason) => {
                self.denials += 1;
                (self.denials >= DENIALS_MAX).then_some(reason)
            }
            Failure::Unavailable(_) => None,
        }
    }

    /// The service did not take this token. Only the present one is dropped: another may have replaced it already.
    pub(crate) fn expired(&mut self, token: &Token) {
        if token.login == self.count {
            self.token = None;
        }
    }

    /// When the pause before the next attempt ends.
    pub(crate) fn until(&self) -> Duration {
        self.backoff.until()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn only_a_password_that_is_refused_again_and_again_is_given_up() {
        let mut login = Login::new(1);
        for attempt in 1..DENIALS_MAX * 3 {
            let now = NOW * 3 * attempt;
            assert!(login.start(now) && !login.start(now), "one at a time");
            assert!(login.denied(now, Failure::Unavailable("down".into())).is_none());
            assert!(!login.start(now), "a pause first");
        }
        for attempt in 1..=DENIALS_MAX {
            let reason = login.denied(NOW, Failure::Unauthorized("wrong".into()));
            assert_eq!(reason.is_some(), attempt == DENIALS_MAX);
        }
    }

    #[test]
    fn a_token_that_was_replaced_cannot_expire_its_successor() {
        let mut login = Login::new(1);
        login.granted("old".into());
        let old = login.token().unwrap();
        login.expired(&old);
        assert!(login.token().is_none());
        login.granted("new".into());
        login.expired(&old);
        assert_eq!(login.token().as_ref().map(|token| &*token.text), Some("new"));
    }
}
