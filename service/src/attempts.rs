//! Wrong passwords: after a few of them for one user from one address, the next is looked at only after a while, which
//! grows. Nobody is locked out by others: another address is not affected. Counted by this instance.

use std::time::{Duration, Instant};

use moka::ops::compute::Op;
use moka::sync::Cache;

use crate::address::Address;
use crate::error::{Error, Result};
use crate::{App, auth};

/// So many wrong passwords cost nothing: people mistype.
const FREE: u32 = 3;
/// The wait after the last free one; doubled with each further one.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Somebody who stays away for so long begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// Users at addresses that are remembered.
const REMEMBERED_MAX: u64 = 100_000;

pub struct Attempts(Cache<Key, Wrong>);

/// Id of the user or runtime, and where the attempt comes from.
type Key = (i64, Address);

#[derive(Debug, Clone, Copy)]
struct Wrong {
    count: u32,
    last: Instant,
}

impl Wrong {
    fn wait(self) -> Duration {
        match self.count.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(further) => (WAIT_MIN * 2_u32.saturating_pow(further.min(6))).min(WAIT_MAX),
        }
    }
}

impl Default for Attempts {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(REMEMBERED_MAX)
            .time_to_idle(FORGOTTEN_AFTER);
        Self(cache.build())
    }
}

impl Attempts {
    /// Whether a password may be looked at now.
    fn admit(&self, key: &Key, now: Instant) -> Result<()> {
        let Some(wrong) = self.0.get(key) else { return Ok(()) };
        let retry_after = (wrong.last + wrong.wait()).saturating_duration_since(now);
        if retry_after.is_zero() {
            return Ok(());
        }
        Err(Error::TooManyRequests {
            reason: "too many wrong passwords",
            retry_after,
        })
    }

    fn note(&self, key: Key, is_right: bool, now: Instant) {
        self.0.entry(key).and_compute_with(|known| match (known, is_right) {
            (None, true) => Op::Nop,
            (Some(_), true) => Op::Remove,
            (known, false) => Op::Put(Wrong {
                count: known.map_or(0, |known| known.value().count).saturating_add(1),
                last: now,
            }),
        });
    }
}

/// Passes the right password. A wrong one is counted, and after too many none is looked at for a while.
pub async fn check_password(app: &App, id: i64, from: Address, password: &str, hash: &str) -> Result<()> {
    let key = (id, from);
    app.attempts.admit(&key, Instant::now())?;
    let is_right = if auth::is_generated(hash) {
        let is_right = auth::is_generated_password(password, hash);
        app.attempts.note(key, is_right, Instant::now());
        is_right
    } else {
        let (app, password, hash) = (app.clone(), password.to_owned(), hash.to_owned());
        auth::hash_slowly(Some(from), move || -> Result<bool> {
            // Many at once do not outrun the count: those that waited for their turn are looked at one by one.
            app.attempts.admit(&key, Instant::now())?;
            let is_right = auth::is_chosen_password(&password, &hash)?;
            app.attempts.note(key, is_right, Instant::now());
            Ok(is_right)
        })
        .await??
    };
    match is_right {
        true => Ok(()),
        false => Err(Error::WrongCredentials("the password is wrong")),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Extensions, HeaderMap};

    use super::*;

    fn address(text: &'static str) -> Address {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", text.parse().unwrap());
        Address::of(&Extensions::new(), &headers, &"0.0.0.0".parse().unwrap())
    }

    fn wait_s(attempts: &Attempts, key: &Key, now: Instant) -> u64 {
        match attempts.admit(key, now) {
            Ok(()) => 0,
            Err(Error::TooManyRequests { retry_after, .. }) => retry_after.as_secs(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_wait_grows_with_each_wrong_password_up_to_a_minute() {
        let attempts = Attempts::default();
        let key = (7, address("1.1.1.1"));
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..11 {
            attempts.note(key, false, now);
            let wait = wait_s(&attempts, &key, now);
            waits.push(wait);
            now += Duration::from_secs(wait);
            assert_eq!(wait_s(&attempts, &key, now), 0, "the wait is over");
        }
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn the_right_password_makes_up_for_all_wrong_ones() {
        let attempts = Attempts::default();
        let key = (7, address("1.1.1.1"));
        let now = Instant::now();
        for _ in 0..5 {
            attempts.note(key, false, now);
        }
        attempts.note(key, true, now);
        attempts.note(key, false, now);
        assert_eq!(wait_s(&attempts, &key, now), 0);
    }

    #[test]
    fn nobody_else_waits() {
        let attempts = Attempts::default();
        let now = Instant::now();
        for _ in 0..5 {
            attempts.note((7, address("1.1.1.1")), false, now);
        }
        assert_eq!(wait_s(&attempts, &(7, address("1.1.1.1")), now), 4);
        assert_eq!(wait_s(&attempts, &(7, address("2.2.2.2")), now), 0);
        assert_eq!(wait_s(&attempts, &(8, address("1.1.1.1")), now), 0);
    }
}
