//! Who is asking: principals that handlers take as arguments, from the token or key of a request.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use omgservers_protocol::id::{RuntimeId, UserId};
use omgservers_protocol::token::{Claims, Role};

use crate::App;
use crate::entity::api_key::{self, Grant};
use crate::error::{Error, Result};

/// Marks a route on which [`Actor::hides_others`] is true.
#[derive(Debug, Clone, Copy)]
pub struct HidesOthers;

/// Somebody who is known. Decides what is allowed, and stands in the audit log.
#[derive(Debug, Clone)]
pub struct Actor {
    pub user_id: UserId,
    pub role: Role,
    /// Of the token.
    pub epoch: i64,
    /// On routes that the first API did not have: what belongs to others is not refused but not there.
    pub hides_others: bool,
    /// Set when a program asks with a key of that user: what the key is good for.
    pub key: Option<Arc<Grant>>,
}

impl Actor {
    /// Refuses a key: some things only the person may do.
    pub fn require_person(&self) -> Result<()> {
        match self.key {
            None => Ok(()),
            Some(_) => Err(Error::Forbidden("a key cannot do this, log in by password".into())),
        }
    }
}

fn bearer(parts: &Parts) -> Result<&str> {
    let header = parts
        .headers
        .get(AUTHORIZATION)
        .ok_or(Error::WrongCredentials("this operation needs a token"))?;
    let text = header
        .to_str()
        .map_err(|_| Error::WrongCredentials("the token is not valid"))?;
    let (_, token) = text
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .ok_or(Error::WrongCredentials(
            "the authorization header must be `Bearer <token>`",
        ))?;
    Ok(token)
}

fn require(claims: &Claims, role: Role) -> Result<()> {
    if claims.groups.contains(&role) {
        Ok(())
    } else {
        Err(other_role(role))
    }
}

fn other_role(role: Role) -> Error {
    Error::Forbidden(format!("this operation is for the role `{}`", role.as_str()))
}

async fn actor(parts: &Parts, app: &App, role: Role) -> Result<Actor> {
    let token = bearer(parts)?;
    let hides_others = parts.extensions.get::<HidesOthers>().is_some();
    if token.starts_with(api_key::PREFIX) {
        let (user_id, grant) = api_key::verify(app, token).await?;
        app.limits.admit_user(user_id.get())?;
        if role != Role::Developer {
            return Err(other_role(role));
        }
        return Ok(Actor {
            user_id,
            role,
            epoch: 0,
            hides_others,
            key: Some(grant),
        });
    }
    let claims = app.tokens.caller(token)?;
    if let Some(user) = claims.user_id {
        app.revocations.check(user.get(), claims.epoch)?;
        app.limits.admit_user(user.get())?;
    }
    require(&claims, role)?;
    Ok(Actor {
        user_id: claims
            .user_id
            .ok_or(Error::WrongCredentials("the token names no user"))?,
        role,
        epoch: claims.epoch,
        hides_others,
        key: None,
    })
}

macro_rules! principals {
    ($($(#[$doc:meta])* $name:ident($role:expr);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(Actor);

        impl Deref for $name {
            type Target = Actor;
            fn deref(&self) -> &Actor {
                &self.0
            }
        }

        impl FromRequestParts<App> for $name {
            type Rejection = Error;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
                actor(parts, app, $role).await.map(Self)
            }
        }
    )*};
}

principals!(
    /// Manages the installation.
    Admin(Role::Admin);
    /// Looks after tenants.
    Support(Role::Support);
    /// Makes games.
    Developer(Role::Developer);
    /// Plays them.
    Player(Role::Player);
    /// The edge.
    Dispatcher(Role::Dispatcher);
);

/// Everybody, with a token or without. One that is not good is refused all the same: its sender takes it for good.
pub struct Anybody;

impl FromRequestParts<App> for Anybody {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(Self);
        }
        let token = bearer(parts)?;
        if token.starts_with(api_key::PREFIX) {
            api_key::verify(app, token).await?;
            return Ok(Self);
        }
        let claims = app.tokens.caller(token)?;
        if let Some(user) = claims.user_id {
            app.revocations.check(user.get(), claims.epoch)?;
        }
        Ok(Self)
    }
}

/// A running game server.
#[derive(Debug, Clone, Copy)]
pub struct Runtime {
    pub runtime_id: RuntimeId,
    /// Of its start: tokens of an earlier one are not good any more.
    pub generation: i64,
}

impl FromRequestParts<App> for Runtime {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let token = bearer(parts)?;
        if token.starts_with(api_key::PREFIX) {
            api_key::verify(app, token).await?;
            return Err(other_role(Role::Runtime));
        }
        let claims = app.tokens.caller(token)?;
        require(&claims, Role::Runtime)?;
        let runtime_id = claims
            .runtime_id
            .ok_or(Error::WrongCredentials("the token names no runtime"))?;
        app.limits.admit_user(runtime_id.get())?;
        Ok(Self {
            runtime_id,
            generation: claims.epoch,
        })
    }
}
