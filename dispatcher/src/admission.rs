//! Who may connect: verifies WebSocket tokens and remembers the used ones, since each is good for one connection.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use omgservers_protocol::id::{ClientId, RuntimeId};
use omgservers_protocol::token::{Audience, Claims, InvalidToken, Keys, Role, Verifier};
use serde::Deserialize;
use tokio::sync::{Notify, watch};

/// Used tokens that are remembered. When it is full, the one that expires first is forgotten first.
const USED_TOKENS_MAX: usize = 200_000;

/// A signature by an unknown key makes the keys be fetched again, but not more often than this.
const KEYS_AGE_MIN: Duration = Duration::from_secs(5);

/// How long a connection waits for new keys.
const KEYS_WAIT: Duration = Duration::from_secs(2);

/// What a good token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ticket {
    Runtime { runtime: RuntimeId },
    Player { runtime: RuntimeId, client: ClientId },
}

/// Why a token opens nothing. The texts are for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are no keys yet.
    NotReady,
    /// It is no token, or not a good one.
    WrongCredentials(&'static str),
    /// It is a good token, but for something else.
    NotPermitted(&'static str),
}

const INVALID: Refusal = Refusal::WrongCredentials("the token is not valid");

/// The keys of one moment.
struct Verifiers {
    websocket: Verifier,
    user: Verifier,
    runtime: Verifier,
    fetched_at: Instant,
}

pub(crate) struct Admission {
    issuer: String,
    /// Seconds since 1970. Tokens of an earlier time may have been used before the start.
    started_s: i64,
    verifiers: watch::Sender<Option<Arc<Verifiers>>>,
    /// Rung when the keys should be fetched now.
    wanted: Notify,
    used: Mutex<UsedTokens>,
}

impl Admission {
    pub(crate) fn new(issuer: String, started_s: i64) -> Self {
        Self {
            issuer,
            started_s,
            verifiers: watch::Sender::new(None),
            wanted: Notify::new(),
            used: Mutex::default(),
        }
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.verifiers.borrow().is_some()
    }

    /// Waits until somebody presents a token that the present keys do not explain.
    pub(crate) async fn keys_wanted(&self) {
        self.wanted.notified().await;
    }

    pub(crate) fn set_keys(&self, keys: &Keys) -> Result<(), InvalidToken> {
        self.set_keys_fetched_at(keys, Instant::now())
    }

    fn set_keys_fetched_at(&self, keys: &Keys, fetched_at: Instant) -> Result<(), InvalidToken> {
        let verifier = |audience| Verifier::new(keys, &self.issuer, audience);
        self.verifiers.send_replace(Some(Arc::new(Verifiers {
            websocket: verifier(Audience::Websocket)?,
            user: verifier(Audience::User)?,
            runtime: verifier(Audience::Runtime)?,
            fetched_at,
        })));
        Ok(())
    }

    /// Verifies a token and uses it up.
    pub(crate) async fn admit(&self, now_s: i64, token: &str) -> Result<Ticket, Refusal> {
        let mut changes = self.verifiers.subscribe();
        let present = changes.borrow_and_update().clone().ok_or(Refusal::NotReady)?;
        match self.check(now_s, &present, token) {
            Err(INVALID) if present.fetched_at.elapsed() > KEYS_AGE_MIN => {
                self.wanted.notify_one();
                // Whether new keys came in time or not, the second answer is the last.
                let _ = tokio::time::timeout(KEYS_WAIT, changes.changed()).await;
                let renewed = changes.borrow().clone().ok_or(Refusal::NotReady)?;
                self.check(now_s, &renewed, token)
            }
            answer => answer,
        }
    }

    fn check(&self, now_s: i64, verifiers: &Verifiers, token: &str) -> Result<Ticket, Refusal> {
        // Read before it is verified, so that no token costs more than one verification.
        let audience = unverified_audience(token).ok_or(INVALID)?;
        if audience != Audience::Websocket.claim(&self.issuer) {
            let other = if audience == Audience::User.claim(&self.issuer) {
                &verifiers.user
            } else if audience == Audience::Runtime.claim(&self.issuer) {
                &verifiers.runtime
            } else {
                return Err(INVALID);
            };
            other.verify(token).map_err(|_| INVALID)?;
            return Err(Refusal::NotPermitted("the token is not for WebSockets"));
        }
        let claims = verifiers.websocket.verify(token).map_err(|_| INVALID)?;
        if !claims.groups.contains(&Role::Websocket) {
            return Err(Refusal::NotPermitted("the token is not for WebSockets"));
        }
        let ticket = ticket(&claims).ok_or(Refusal::NotPermitted("the token opens no room"))?;
        if claims.iat < self.started_s {
            return Err(Refusal::WrongCredentials(
                "the token is older than this dispatcher: ask for another",
            ));
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.insert(now_s, &claims.jti, claims.exp) {
            return Err(Refusal::WrongCredentials("the token was used already: ask for another"));
        }
        Ok(ticket)
    }
}

fn ticket(claims: &Claims) -> Option<Ticket> {
    let runtime = claims.runtime_id?;
    match claims.user_role? {
        Role::Runtime => Some(Ticket::Runtime { runtime }),
        Role::Player => {
            let client = claims.client_id.or_else(|| claims.sub.parse().ok())?;
            Some(Ticket::Player { runtime, client })
        }
        _ => None,
    }
}

/// What a token says it is for; nobody has checked that yet.
fn unverified_audience(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Payload {
        aud: String,
    }
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Payload>(&payload)
        .ok()
        .map(|payload| payload.aud)
}

/// Identifiers of tokens until they expire, as keyed hashes: a fixed size, whatever they look like.
#[derive(Default)]
struct UsedTokens {
    hasher: RandomState,
    hashes: HashSet<u64>,
    by_expiry: BTreeSet<(i64, u64)>,
}

impl UsedTokens {
    /// Whether it is new.
    fn insert(&mut self, now_s: i64, jti: &str, exp: i64) -> bool {
        // Verification has some leeway for clocks; so has this.
        while let Some(&(expiry, hash)) = self.by_expiry.first()
            && (expiry + 60 < now_s || self.by_expiry.len() >= USED_TOKENS_MAX)
        {
            self.by_expiry.pop_first();
            self.hashes.remove(&hash);
        }
        let hash = self.hasher.hash_one(jti);
        if !self.hashes.insert(hash) {
            return false;
        }
        self.by_expiry.insert((exp, hash));
        true
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::Ed25519KeyPair;
    use omgservers_protocol::token::Signer;

    use super::*;

    const NOW_S: i64 = 4_000_000_000;

    fn signer() -> Signer {
        Signer::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref()).unwrap()
    }

    fn claims(audience: Audience, role: Role) -> Claims {
        Claims {
            iss: "omgservers".into(),
            aud: audience.claim("omgservers"),
            sub: "7".into(),
            iat: NOW_S,
            exp: NOW_S + 60,
            jti: "a".into(),
            groups: vec![Role::Websocket],
            epoch: 0,
            user_id: None,
            runtime_id: Some(RuntimeId(5)),
            client_id: None,
            user_role: Some(role),
        }
    }

    fn admission(signer: &Signer) -> Admission {
        let admission = Admission::new("omgservers".into(), NOW_S);
        admission.set_keys(&signer.keys()).unwrap();
        admission
    }

    async fn check(change: impl FnOnce(&mut Claims), expected: Result<Ticket, fn(&'static str) -> Refusal>) {
        let signer = signer();
        let mut claims = claims(Audience::Websocket, Role::Player);
        change(&mut claims);
        let answer = admission(&signer).admit(NOW_S, &signer.sign(&claims)).await;
        match (answer, expected) {
            (Err(Refusal::WrongCredentials(text)), Err(expected)) => {
                assert_eq!(expected(text), Refusal::WrongCredentials(text))
            }
            (Err(Refusal::NotPermitted(text)), Err(expected)) => {
                assert_eq!(expected(text), Refusal::NotPermitted(text))
            }
            (answer, expected) => assert_eq!(answer.ok(), expected.ok()),
        }
    }

    #[tokio::test]
    async fn a_token_opens_the_side_that_it_names() {
        let player = Ticket::Player {
            runtime: RuntimeId(5),
            client: ClientId(7),
        };
        check(|_| {}, Ok(player)).await;
        check(
            |claims| {
                claims.client_id = Some(ClientId(7));
                claims.sub = "not a number".into();
            },
            Ok(player),
        )
        .await;
        let runtime = Ticket::Runtime { runtime: RuntimeId(5) };
        check(|claims| claims.user_role = Some(Role::Runtime), Ok(runtime)).await;
    }

    #[tokio::test]
    async fn tokens_for_other_things_are_not_permitted_and_bad_ones_are_wrong() {
        check(
            |claims| claims.aud = Audience::User.claim("omgservers"),
            Err(Refusal::NotPermitted),
        )
        .await;
        check(
            |claims| claims.aud = Audience::Runtime.claim("omgservers"),
            Err(Refusal::NotPermitted),
        )
        .await;
        check(|claims| claims.groups = vec![Role::Player], Err(Refusal::NotPermitted)).await;
        check(|claims| claims.runtime_id = None, Err(Refusal::NotPermitted)).await;
        check(
            |claims| claims.user_role = Some(Role::Admin),
            Err(Refusal::NotPermitted),
        )
        .await;
        check(|claims| claims.sub = "x".into(), Err(Refusal::NotPermitted)).await;
        check(|claims| claims.aud = "elsewhere".into(), Err(Refusal::WrongCredentials)).await;
        check(|claims| claims.iss = "elsewhere".into(), Err(Refusal::WrongCredentials)).await;
        check(|claims| claims.exp = 1_000_000_000, Err(Refusal::WrongCredentials)).await;
        check(|claims| claims.iat = NOW_S - 1, Err(Refusal::WrongCredentials)).await;
        for garbage in ["", "a.b.c", "..", "a.e30.c", "a.eyJhdWQiOiJ4In0.c"] {
            let answer = admission(&signer()).admit(NOW_S, garbage).await;
            assert!(matches!(answer, Err(Refusal::WrongCredentials(_))), "{garbage}");
        }
    }

    #[tokio::test]
    async fn a_token_is_good_once() {
        let signer = signer();
        let admission = admission(&signer);
        let token = signer.sign(&claims(Audience::Websocket, Role::Player));
        assert!(admission.admit(NOW_S, &token).await.is_ok());
        assert!(matches!(
            admission.admit(NOW_S, &token).await,
            Err(Refusal::WrongCredentials(_))
        ));
    }

    #[tokio::test]
    async fn without_keys_nobody_is_admitted() {
        let admission = Admission::new("omgservers".into(), 0);
        assert_eq!(admission.admit(NOW_S, "a.b.c").await, Err(Refusal::NotReady));
        assert!(!admission.has_keys());
    }

    #[tokio::test]
    async fn a_signature_by_an_unknown_key_waits_for_new_keys() {
        let (old, new) = (signer(), signer());
        let admission = Arc::new(admission(&old));
        let token = new.sign(&claims(Audience::Websocket, Role::Player));
        assert!(admission.admit(NOW_S, &token).await.is_err(), "the keys are fresh");
        let long_ago = Instant::now().checked_sub(KEYS_AGE_MIN * 2).unwrap();
        admission.set_keys_fetched_at(&old.keys(), long_ago).unwrap();
        let fetching = tokio::spawn({
            let admission = admission.clone();
            async move {
                admission.keys_wanted().await;
                admission.set_keys(&new.keys()).unwrap();
            }
        });
        assert!(admission.admit(NOW_S, &token).await.is_ok());
        fetching.await.unwrap();
    }

    #[test]
    fn used_tokens_are_forgotten_when_they_expire_and_when_there_are_too_many() {
        let mut used = UsedTokens::default();
        assert!(used.insert(100, "a", 150) && !used.insert(100, "a", 150));
        assert!(used.insert(1_000, "b", 1_060), "and `a` is forgotten meanwhile");
        assert!(used.hashes.len() == 1 && used.by_expiry.len() == 1);
        for number in 0..USED_TOKENS_MAX {
            used.insert(1_000, &number.to_string(), 2_000);
        }
        assert_eq!(used.hashes.len(), USED_TOKENS_MAX);
        assert!(!used.insert(1_000, "5", 2_000) && used.insert(1_000, "b", 1_060));
    }
}
