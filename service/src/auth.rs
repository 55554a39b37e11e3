//! Passwords and tokens.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use omgservers_protocol::id::{ClientId, RuntimeId, UserId};
use omgservers_protocol::token::{Audience, Claims, Keys, Role, Signer, Verifier};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::error::{Error, Result};
use crate::ids::now_ms;

/// Life of a token that is not a player's, seconds.
const TOKEN_LIFE_S: i64 = 3_600;
/// Life of a runtime's token, seconds: 30 days. Old SDKs never renew theirs, and every use looks at the runtime's row.
const RUNTIME_TOKEN_LIFE_S: i64 = 30 * 24 * 3_600;
/// Life of a token for one WebSocket connection, seconds.
const WEBSOCKET_TOKEN_LIFE_S: i64 = 60;
/// Verified tokens that are remembered: the signature is checked once.
const CACHED_TOKENS: u64 = 100_000;
/// Bytes that bcrypt looks at; what is longer would be cut off without a word.
const BCRYPT_MAX: usize = 72;
/// Passwords that wait for a core: half a minute's work for two of them.
const HASHES_WAITING_MAX: usize = 1_024;
/// So many of them from one address: about two seconds' work.
const HASHES_PER_ADDRESS_MAX: usize = 64;

pub struct Tokens {
    signer: Signer,
    users: Verifier,
    runtimes: Verifier,
    verified: moka::sync::Cache<[u8; 32], Arc<Claims>>,
    issuer: String,
    player_life_s: i64,
}

impl Tokens {
    pub fn new(private_key_pem: &str, issuer: &str, player_life_s: i64) -> anyhow::Result<Self> {
        let body: String = private_key_pem
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .collect();
        let der = STANDARD
            .decode(body.trim())
            .context("the token key is not a PEM file")?;
        let signer = Signer::from_pkcs8(&der).context("the token key must be an Ed25519 key in PKCS#8")?;
        let keys = signer.keys();
        Ok(Self {
            users: Verifier::new(&keys, issuer, Audience::User)?,
            runtimes: Verifier::new(&keys, issuer, Audience::Runtime)?,
            verified: moka::sync::Cache::new(CACHED_TOKENS),
            signer,
            issuer: issuer.to_owned(),
            player_life_s,
        })
    }

    /// A new key as PEM.
    pub fn generate_key() -> anyhow::Result<String> {
        let key = aws_lc_rs::signature::Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new())
            .context("no key could be generated")?;
        Ok(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            STANDARD.encode(key.as_ref())
        ))
    }

    pub fn keys(&self) -> Keys {
        self.signer.keys()
    }

    fn claims(&self, audience: Audience, sub: String, group: Role, life_s: i64) -> Claims {
        let now = now_ms() / 1_000;
        let jti: u128 = rand::random();
        Claims {
            iss: self.issuer.clone(),
            aud: audience.claim(&self.issuer),
            sub,
            iat: now,
            exp: now + life_s,
            jti: format!("{jti:032x}"),
            groups: vec![group],
            epoch: 0,
            user_id: None,
            runtime_id: None,
            client_id: None,
            user_role: None,
        }
    }

    /// `epoch` is that of the user's account.
    pub fn for_user(&self, user: UserId, role: Role, epoch: i64) -> String {
        let life_s = if role == Role::Player {
            self.player_life_s
        } else {
            TOKEN_LIFE_S
        };
        let claims = self.claims(Audience::User, user.to_string(), role, life_s);
        self.signer.sign(&Claims {
            user_id: Some(user),
            epoch,
            ..claims
        })
    }

    /// How long a revocation must be remembered, seconds: by then every token of a user has expired.
    pub fn longest_life_s(&self) -> i64 {
        TOKEN_LIFE_S.max(self.player_life_s) + 60
    }

    /// `generation` is that of the runtime's start: tokens of an earlier one are refused.
    pub fn for_runtime(&self, runtime: RuntimeId, generation: i64) -> String {
        let claims = self.claims(
            Audience::Runtime,
            runtime.to_string(),
            Role::Runtime,
            RUNTIME_TOKEN_LIFE_S,
        );
        self.signer.sign(&Claims {
            runtime_id: Some(runtime),
            epoch: generation,
            ..claims
        })
    }

    /// For the runtime's side of its room.
    pub fn for_runtime_socket(&self, runtime: RuntimeId) -> String {
        let claims = self.claims(
            Audience::Websocket,
            runtime.to_string(),
            Role::Websocket,
            WEBSOCKET_TOKEN_LIFE_S,
        );
        self.signer.sign(&Claims {
            runtime_id: Some(runtime),
            user_role: Some(Role::Runtime),
            ..claims
        })
    }

    /// For a player's side of the room.
    pub fn for_player_socket(&self, client: ClientId, runtime: RuntimeId) -> String {
        let claims = self.claims(
            Audience::Websocket,
            client.to_string(),
            Role::Websocket,
            WEBSOCKET_TOKEN_LIFE_S,
        );
        self.signer.sign(&Claims {
            runtime_id: Some(runtime),
            client_id: Some(client),
            user_role: Some(Role::Player),
            ..claims
        })
    }

    /// The claims of a caller's token: of a user or a runtime.
    pub fn caller(&self, token: &str) -> Result<Arc<Claims>> {
        // One cache for both kinds: a token is of one audience, so the first that accepts it is right.
        self.verify(&self.users, token)
            .or_else(|_| self.verify(&self.runtimes, token))
    }

    fn verify(&self, verifier: &Verifier, token: &str) -> Result<Arc<Claims>> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(claims) = self.verified.get(&key) {
            if claims.exp > now_ms() / 1_000 {
                return Ok(claims);
            }
            self.verified.invalidate(&key);
            return Err(Error::WrongCredentials("the token has expired"));
        }
        let claims = verifier
            .verify(token)
            .map_err(|_| Error::WrongCredentials("the token is not valid"))?;
        let claims = Arc::new(claims);
        self.verified.insert(key, claims.clone());
        Ok(claims)
    }
}

/// A new secret of 192 bits: 32 characters of base64.
pub fn generate_password() -> String {
    STANDARD.encode(rand::random::<[u8; 24]>())
}

/// How a generated secret is stored: its entropy needs no slow hash.
pub fn hash_generated(password: &str) -> String {
    let digest = Sha256::digest(password.as_bytes());
    format!("sha256:{}", STANDARD.encode(digest))
}

/// How a password that a person chose is stored.
pub async fn hash_chosen(password: String, from: Option<Address>) -> Result<String> {
    if password.len() > BCRYPT_MAX {
        return Err(Error::Invalid(format!(
            "at most {BCRYPT_MAX} bytes can be hashed, and these are {}",
            password.len()
        )));
    }
    let hash = hash_slowly(from, move || bcrypt::hash_with_result(password, 10)).await?;
    // Spelled as in older installations; the algorithm is the same.
    let hash = hash.context("the password cannot be hashed")?;
    Ok(hash.format_for_version(bcrypt::Version::TwoA))
}

/// Whether this is the hash of a generated secret.
pub(crate) fn is_generated(hash: &str) -> bool {
    hash.starts_with("sha256:")
}

/// Whether the secret belongs to such a hash.
pub(crate) fn is_generated_password(password: &str, hash: &str) -> bool {
    let given = hash_generated(password);
    aws_lc_rs::constant_time::verify_slices_are_equal(given.as_bytes(), hash.as_bytes()).is_ok()
}

/// Whether the password belongs to any other hash: slow, see [`hash_slowly`].
pub(crate) fn is_chosen_password(password: &str, hash: &str) -> Result<bool> {
    Ok(bcrypt::verify(password, hash).context("the stored hash is damaged")?)
}

/// Does what takes tens of milliseconds of CPU off the async threads, for as many at a time as there are cores. One address
/// keeps nobody else waiting for long.
pub(crate) async fn hash_slowly<T: Send + 'static>(
    from: Option<Address>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    static CORES: LazyLock<Semaphore> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Semaphore::new(cores)
    });
    static QUEUE: Semaphore = Semaphore::const_new(HASHES_WAITING_MAX);
    let _share = from.map(Share::take).transpose()?;
    let _waiting = QUEUE
        .try_acquire()
        .map_err(|_| Error::Unavailable("too many log in at once, try again"))?;
    let core = CORES.acquire().await.expect("it is never closed");
    let done = tokio::task::spawn_blocking(move || {
        // Held to the end, also if nobody waits for it any more.
        let _core = core;
        work()
    });
    Ok(done.await.context("hashing was cut off")?)
}

/// One of the passwords that an address has waiting.
struct Share(Address);

static SHARES: LazyLock<Mutex<HashMap<Address, usize>>> = LazyLock::new(Mutex::default);

impl Share {
    fn take(from: Address) -> Result<Self> {
        let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = shares.entry(from).or_default();
        if *taken >= HASHES_PER_ADDRESS_MAX {
            return Err(Error::Unavailable(
                "too many log in at once from this address, try again",
            ));
        }
        *taken += 1;
        Ok(Self(from))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = shares.get_mut(&self.0) {
            *taken -= 1;
            if *taken == 0 {
                shares.remove(&self.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_belongs_to_its_own_hash_only() {
        let password = generate_password();
        assert_eq!(password.len(), 32);
        let (generated, chosen) = (
            hash_generated(&password),
            hash_chosen(password.clone(), None).await.unwrap(),
        );
        assert!(is_generated(&generated) && !is_generated(&chosen));
        assert!(chosen.starts_with("$2a$10$"), "{chosen}");
        assert!(hash_chosen("ä".repeat(36), None).await.is_ok() && hash_chosen("ä".repeat(37), None).await.is_err());
        for (given, expected) in [(password.as_str(), true), ("other", false)] {
            assert_eq!(is_generated_password(given, &generated), expected);
            assert_eq!(is_chosen_password(given, &chosen).unwrap(), expected);
        }
        assert!(!generated.contains(&password) && !chosen.contains(&password));
    }

    #[tokio::test]
    async fn an_address_with_many_passwords_waiting_keeps_nobody_else_out() {
        let many = Address::new(std::net::Ipv4Addr::new(192, 0, 2, 1).into());
        let other = Address::new(std::net::Ipv4Addr::new(192, 0, 2, 2).into());
        let shares: Vec<_> = (0..HASHES_PER_ADDRESS_MAX)
            .map(|_| Share::take(many).unwrap())
            .collect();
        assert!(hash_slowly(Some(many), || ()).await.is_err());
        hash_slowly(Some(other), || ()).await.unwrap();
        drop(shares);
        hash_slowly(Some(many), || ()).await.unwrap();
        assert!(
            !SHARES.lock().unwrap().contains_key(&many),
            "nobody is remembered for nothing"
        );
    }
}
