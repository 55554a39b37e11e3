//! How many requests an address and a user may send: so many a second, twice as many at once. And how many players may sign
//! up from an address, which nobody has to have a token for. Counted by this instance.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::address::Address;
use crate::error::{Error, Result};

/// Of so many requests that an address may send, one may be a new player's; a crowd may come at once, and then it takes so
/// many seconds until the next.
const SIGN_UPS_PER_REQUESTS: u32 = 100;
const SIGN_UPS_BURST_S: u32 = 20;
/// How often those are forgotten who have all their requests left: that bounds the memory to what came within this time.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);
/// All that may be sent at once, in seconds of what may be sent on and on.
const BURST_S: u32 = 2;
/// Every so many times their memory is given back, too.
const SHRINK_EVERY: u32 = 60;

pub struct Limits {
    addresses: Limit<Address>,
    users: Limit<i64>,
    sign_ups: Limit<Address>,
}

impl Limits {
    /// Requests per second; 0 is no limit.
    pub fn new(address: u32, user: u32) -> Self {
        Self {
            addresses: Limit::new(address, BURST_S),
            users: Limit::new(user, BURST_S),
            sign_ups: Limit::new(address.div_ceil(SIGN_UPS_PER_REQUESTS), SIGN_UPS_BURST_S),
        }
    }

    /// Counts a request of a token's user or runtime: their ids are never the same.
    pub fn admit_user(&self, id: i64) -> Result<()> {
        self.users.admit(&id, "too many requests of this user")
    }

    /// Counts a new player.
    pub fn admit_sign_up(&self, address: Address) -> Result<()> {
        self.sign_ups.admit(&address, "too many new players from this address")
    }

    fn admit_address(&self, address: Address) -> Result<()> {
        self.addresses.admit(&address, "too many requests from this address")
    }
}

struct Limit<K: Hash + Eq + Clone>(Option<DefaultKeyedRateLimiter<K>>);

impl<K: Hash + Eq + Clone> Limit<K> {
    fn new(per_s: u32, burst_s: u32) -> Self {
        Self(NonZeroU32::new(per_s).map(|per_s| {
            let burst = per_s.saturating_mul(NonZeroU32::new(burst_s).unwrap_or(NonZeroU32::MIN));
            RateLimiter::keyed(Quota::per_second(per_s).allow_burst(burst))
        }))
    }

    fn admit(&self, key: &K, reason: &'static str) -> Result<()> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        limiter.check_key(key).map_err(|not_until| Error::TooManyRequests {
            reason,
            retry_after: not_until.wait_time_from(DefaultClock::default().now()),
        })
    }

    fn forget(&self, shrink: bool) {
        let Some(limiter) = &self.0 else { return };
        limiter.retain_recent();
        if shrink {
            limiter.shrink_to_fit();
        }
    }
}

/// Refuses requests of an address that sends too many.
pub async fn check_address(State(app): State<App>, request: Request, next: Next) -> Response {
    let address = Address::of(request.extensions(), request.headers(), &app.config.trusted_proxies);
    match app.limits.admit_address(address) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Forgets those who have been quiet.
pub(crate) async fn forget(app: App, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(FORGET_INTERVAL);
    for round in (0..SHRINK_EVERY).cycle() {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            return;
        }
        app.limits.addresses.forget(round == 0);
        app.limits.users.forget(round == 0);
        app.limits.sign_ups.forget(round == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_asks_too_much_waits_and_nobody_else_does() {
        let limits = Limits::new(0, 2);
        for _ in 0..4 {
            limits.admit_user(7).unwrap();
        }
        let Err(Error::TooManyRequests { retry_after, .. }) = limits.admit_user(7) else {
            panic!("the fifth request at once was admitted");
        };
        assert!(
            !retry_after.is_zero() && retry_after <= Duration::from_millis(500),
            "{retry_after:?}"
        );
        limits.admit_user(8).unwrap();
    }

    #[test]
    fn those_who_were_quiet_are_forgotten_and_the_others_are_not() {
        let limit = Limit::<i64>::new(1, BURST_S);
        for key in 0..1_000 {
            limit.admit(&key, "").unwrap();
        }
        let limiter = limit.0.as_ref().unwrap();
        limit.forget(true);
        assert_eq!(limiter.len(), 1_000, "they have used a request just now");
        let fast = Limit::<i64>::new(1_000_000, BURST_S);
        for key in 0..1_000 {
            fast.admit(&key, "").unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
        fast.forget(true);
        assert_eq!(fast.0.as_ref().unwrap().len(), 0);
    }

    #[test]
    fn a_crowd_signs_up_at_once_and_a_flood_does_not() {
        let limits = Limits::new(5_000, 0);
        let from = Address::new(std::net::Ipv4Addr::LOCALHOST.into());
        let admitted = (0..2_000).filter(|_| limits.admit_sign_up(from).is_ok()).count();
        assert!((1_000..1_100).contains(&admitted), "{admitted}");
    }

    #[test]
    fn zero_is_no_limit() {
        let limits = Limits::new(0, 0);
        assert!((0..100_000).all(|_| limits.admit_user(7).is_ok()));
    }
}
