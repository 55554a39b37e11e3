//! Tokens: what is claimed in them, how they are signed and verified. Clients never look inside.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::id::{ClientId, RuntimeId, UserId};

/// What every token says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub aud: String,
    pub sub: String,
    /// Seconds since 1970.
    pub iat: i64,
    pub exp: i64,
    /// Unique: a WebSocket token is good for one connection.
    pub jti: String,
    pub groups: Vec<Role>,
    /// How often the user's password had changed, or the runtime was started: tokens of an older one are refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_id: Option<RuntimeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<ClientId>,
    /// In a WebSocket token: which side of the room it opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_role: Option<Role>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Who is asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Admin,
    Support,
    Registry,
    Builder,
    Service,
    Dispatcher,
    Developer,
    Player,
    Runtime,
    Websocket,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Support => "support",
            Self::Registry => "registry",
            Self::Builder => "builder",
            Self::Service => "service",
            Self::Dispatcher => "dispatcher",
            Self::Developer => "developer",
            Self::Player => "player",
            Self::Runtime => "runtime",
            Self::Websocket => "websocket",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Admin,
            Self::Support,
            Self::Registry,
            Self::Builder,
            Self::Service,
            Self::Dispatcher,
            Self::Developer,
            Self::Player,
            Self::Runtime,
            Self::Websocket,
        ]
        .into_iter()
        .find(|role| role.as_str() == text)
    }
}

/// The kinds of tokens; one is never taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    User,
    Runtime,
    Websocket,
}

impl Audience {
    /// The `aud` claim in tokens of this issuer.
    pub fn claim(self, issuer: &str) -> String {
        let kind = match self {
            Self::User => "user",
            Self::Runtime => "runtime",
            Self::Websocket => "websocket",
        };
        format!("{issuer}/{kind}")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the token is not valid: {0}")]
pub struct InvalidToken(String);

/// Signs tokens with the installation's Ed25519 key.
pub struct Signer {
    key: Ed25519KeyPair,
    /// The first part of every token.
    header: String,
}

impl Signer {
    /// From a PKCS#8 document (DER).
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, InvalidToken> {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
            .map_err(|cause| InvalidToken(format!("not an Ed25519 key: {cause}")))?;
        let header = serde_json::to_vec(&Header::new(Algorithm::EdDSA)).expect("a header is plain JSON");
        Ok(Self {
            key,
            header: URL_SAFE_NO_PAD.encode(header),
        })
    }

    /// Written out here, since `jsonwebtoken::encode` reads the key anew for each token, which takes longer than signing.
    pub fn sign(&self, claims: &Claims) -> String {
        let claims = serde_json::to_vec(claims).expect("claims are plain JSON");
        let mut token = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    /// The key by which others verify, as a JSON Web Key Set.
    pub fn keys(&self) -> Keys {
        Keys {
            keys: vec![Key {
                kty: "OKP".into(),
                crv: "Ed25519".into(),
                x: URL_SAFE_NO_PAD.encode(self.key.public_key()),
            }],
        }
    }
}

/// A JSON Web Key Set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Keys {
    pub keys: Vec<Key>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Key {
    pub kty: String,
    pub crv: String,
    pub x: String,
}

/// Verifies tokens of one audience.
pub struct Verifier {
    keys: Vec<DecodingKey>,
    validation: Validation,
}

impl Verifier {
    pub fn new(keys: &Keys, issuer: &str, audience: Audience) -> Result<Self, InvalidToken> {
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[audience.claim(issuer)]);
        validation.leeway = 5;
        let keys = keys
            .keys
            .iter()
            .filter(|key| key.kty == "OKP")
            .map(|key| DecodingKey::from_ed_components(&key.x).map_err(|cause| InvalidToken(cause.to_string())))
            .collect::<Result<_, _>>()?;
        Ok(Self { keys, validation })
    }

    pub fn verify(&self, token: &str) -> Result<Claims, InvalidToken> {
        let mut last = InvalidToken("there is no key to verify it with".into());
        for key in &self.keys {
            match jsonwebtoken::decode::<Claims>(token, key, &self.validation) {
                Ok(data) => return Ok(data.claims),
                Err(cause) => last = InvalidToken(cause.to_string()),
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        let key = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new()).unwrap();
        Signer::from_pkcs8(key.as_ref()).unwrap()
    }

    fn claims(audience: Audience, exp: i64) -> Claims {
        Claims {
            iss: "omgservers".into(),
            aud: audience.claim("omgservers"),
            sub: "1".into(),
            iat: 0,
            exp,
            jti: "1".into(),
            groups: vec![Role::Player],
            epoch: 0,
            user_id: Some(UserId(1)),
            runtime_id: None,
            client_id: None,
            user_role: None,
        }
    }

    #[test]
    fn a_token_is_good_for_its_audience_issuer_and_time_only() {
        let signer = signer();
        let verifier = |audience, issuer: &str| Verifier::new(&signer.keys(), issuer, audience).unwrap();
        let far = 4_000_000_000;
        let token = signer.sign(&claims(Audience::User, far));
        assert_eq!(
            verifier(Audience::User, "omgservers").verify(&token).unwrap().user_id,
            Some(UserId(1))
        );
        assert!(verifier(Audience::Websocket, "omgservers").verify(&token).is_err());
        assert!(verifier(Audience::User, "other").verify(&token).is_err());
        assert!(
            verifier(Audience::User, "omgservers")
                .verify(&signer.sign(&claims(Audience::User, 1)))
                .is_err()
        );
        assert!(
            Verifier::new(&self::signer().keys(), "omgservers", Audience::User)
                .unwrap()
                .verify(&token)
                .is_err()
        );
        assert!(
            verifier(Audience::User, "omgservers")
                .verify(&token[..token.len() - 2])
                .is_err()
        );
    }
}
