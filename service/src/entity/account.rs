//! Everybody who has a password: operators, developers, players.

use omgservers_protocol::id::UserId;
use omgservers_protocol::support::CreatedUser;
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use time::OffsetDateTime;

use crate::entity::alias::{self, Scope};
use crate::error::{Error, Result};
use crate::{App, auth};

/// A new user with a generated password, which is shown this once.
pub async fn create(app: &App, role: Role) -> Result<CreatedUser> {
    let user_id: UserId = app.ids.mint();
    let password = auth::generate_password();
    insert(app, user_id, role, &auth::hash_generated(&password)).await?;
    Ok(CreatedUser { user_id, password })
}

async fn insert(app: &App, id: UserId, role: Role, hash: &str) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("insert into account (id, role, password_hash) values ($1, $2, $3)")
        .bind(id)
        .bind(role.as_str())
        .bind(hash)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// Makes sure that a user of this name exists. The account is written first: a name that leads nowhere would be for ever.
pub async fn bootstrap(app: &App, role: Role, name: &str, password: &str) -> Result<()> {
    let mut tx = app.db.begin(Scope::User.key()).await?;
    if alias::find(&mut tx, Scope::User, name).await?.is_some() {
        return Ok(());
    }
    let id: UserId = app.ids.mint();
    insert(app, id, role, &auth::hash_chosen(password.to_owned()).await?).await?;
    match alias::create(&mut tx, app.ids.mint(), Scope::User, id.get(), name).await {
        Ok(()) => tx.commit().await,
        // Another instance was faster.
        Err(Error::Conflict(_)) => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// A token of the user's own role, for the right password.
pub async fn log_in(app: &App, user: UserId, password: &Text) -> Result<String> {
    let row: Option<(String, String, Option<OffsetDateTime>)> = {
        let mut tx = app.db.begin(user.get()).await?;
        sqlx::query_as("select role, password_hash, deleted from account where id = $1")
            .bind(user)
            .fetch_optional(&mut *tx)
            .await?
    };
    let (role, hash, deleted) = row.ok_or_else(|| Error::not_found("user", user))?;
    if deleted.is_some() {
        return Err(Error::UserDeleted);
    }
    if !auth::is_password(password.as_str(), &hash).await? {
        return Err(Error::WrongCredentials("the password is wrong"));
    }
    let role = Role::parse(&role).ok_or_else(|| anyhow::anyhow!("user `{user}` has the unknown role `{role}`"))?;
    Ok(app.tokens.for_user(user, role))
}

pub async fn exists(app: &App, user: UserId) -> Result<()> {
    let mut tx = app.db.begin(user.get()).await?;
    let found: Option<i32> = sqlx::query_scalar("select 1 from account where id = $1")
        .bind(user)
        .fetch_optional(&mut *tx)
        .await?;
    found.map(|_| ()).ok_or_else(|| Error::not_found("user", user))
}
