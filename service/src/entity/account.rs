//! Everybody who has a password: operators, developers, players.

use omgservers_protocol::admin::{self, User};
use omgservers_protocol::call::{Deleted, Page, Paging, PasswordChange};
use omgservers_protocol::id::UserId;
use omgservers_protocol::support::{CreateDeveloperAlias, CreatedUser};
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;

use crate::address::Address;
use crate::entity::alias::{self, Scope};
use crate::entity::page::Walk;
use crate::entity::{api_key, audit, timestamp};
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::principal::Actor;
use crate::{App, attempts, auth, revocation};

/// Characters of a password that somebody chooses.
const PASSWORD_MIN: usize = 8;
/// A player who signed up and never came to a stage is forgotten after so many days.
const UNUSED_DAYS: i32 = 30;

/// A new user with a generated password, which is shown this once.
pub async fn create(app: &App, by: Option<&Actor>, role: Role) -> Result<CreatedUser> {
    let user_id: UserId = app.ids.mint();
    let password = auth::generate_password();
    let mut tx = app.db.begin(user_id.get()).await?;
    insert(&mut tx, user_id, role, &auth::hash_generated(&password)).await?;
    if let Some(by) = by {
        audit::note(app, &mut tx, by, "create-developer", None, user_id, None).await?;
    }
    tx.commit().await?;
    Ok(CreatedUser { user_id, password })
}

async fn insert(db: &mut PgConnection, id: UserId, role: Role, hash: &str) -> Result<()> {
    sqlx::query("insert into account (id, role, password_hash, unused) values ($1, $2, $3, $4)")
        .bind(id)
        .bind(role.as_str())
        .bind(hash)
        .bind(role == Role::Player)
        .execute(db)
        .await?;
    Ok(())
}

/// Makes sure that a user of this name exists. The account is written first: a name that leads nowhere would be for ever.
pub async fn bootstrap(app: &App, role: Role, name: &str, password: &str) -> Result<()> {
    // One transaction at a time: both may be in the same shard, and there may be one connection to it.
    let mut tx = app.db.begin(Scope::User.key()).await?;
    let is_known = alias::find(&mut tx, Scope::User, name).await?.is_some();
    drop(tx);
    if is_known {
        return Ok(());
    }
    let id: UserId = app.ids.mint();
    let hash = auth::hash_chosen(password.to_owned(), None).await?;
    let mut tx = app.db.begin(id.get()).await?;
    insert(&mut tx, id, role, &hash).await?;
    tx.commit().await?;
    let mut tx = app.db.begin(Scope::User.key()).await?;
    match alias::create(&mut tx, app.ids.mint(), Scope::User, id.get(), name).await {
        Ok(()) => tx.commit().await,
        // Another instance was faster.
        Err(Error::Conflict(_)) => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// The builder, who pushes images of every project, and the service, which pulls them: those of them that there are.
pub async fn image_users(app: &App) -> Result<Vec<UserId>> {
    let config = &app.config;
    let mut tx = app.db.begin(Scope::User.key()).await?;
    let mut users = Vec::new();
    for name in [
        &config.bootstrap_builder_user_alias,
        &config.bootstrap_service_user_alias,
    ] {
        users.extend(alias::find(&mut tx, Scope::User, name).await?.map(UserId));
    }
    Ok(users)
}

struct Account {
    role: Role,
    hash: String,
    epoch: i64,
}

/// A user who is not deleted.
async fn find(app: &App, user: UserId) -> Result<Account> {
    let columns = "role, password_hash, epoch, deleted";
    let row: Option<(String, String, i64, Option<OffsetDateTime>)> =
        app.db.read_row(columns, "account", user.get()).await?;
    let (role, hash, epoch, deleted) = row.ok_or_else(|| Error::not_found("user", user))?;
    if deleted.is_some() {
        return Err(Error::UserDeleted);
    }
    let role = Role::parse(&role).ok_or_else(|| anyhow::anyhow!("user `{user}` has the unknown role `{role}`"))?;
    Ok(Account { role, hash, epoch })
}

/// A token of the user's own role, for the right password.
pub async fn log_in(app: &App, from: Address, user: UserId, password: &Text) -> Result<String> {
    let account = find(app, user).await?;
    attempts::check_password(app, user.get(), from, password.as_str(), &account.hash).await?;
    Ok(app.tokens.for_user(user, account.role, account.epoch))
}

/// A fresh token for one that is still good.
pub async fn renew(app: &App, by: &Actor) -> Result<String> {
    by.require_person()?;
    let account = find(app, by.user_id).await?;
    if account.epoch != by.epoch {
        return Err(Error::WrongCredentials("the token was revoked, log in again"));
    }
    Ok(app.tokens.for_user(by.user_id, account.role, account.epoch))
}

/// A password that the user chose, for the old one. Every token made before is refused from then on.
pub async fn change_password(app: &App, from: Address, by: &Actor, change: &PasswordChange) -> Result<()> {
    by.require_person()?;
    let user = by.user_id;
    let account = find(app, user).await?;
    attempts::check_password(app, user.get(), from, change.password.as_str(), &account.hash).await?;
    if change.new_password.as_str().chars().count() < PASSWORD_MIN {
        return Err(Error::Invalid(format!(
            "a password has at least {PASSWORD_MIN} characters: several words are good"
        )));
    }
    let hash = auth::hash_chosen(change.new_password.as_str().to_owned(), Some(from)).await?;
    set_password(app, by, user, &hash, Some(account.epoch), "change-password").await
}

/// A generated password for somebody who lost theirs: of this role, or of any.
pub async fn reset_password(app: &App, by: &Actor, user: UserId, role: Option<Role>) -> Result<CreatedUser> {
    let account = find(app, user).await?;
    if role.is_some_and(|role| role != account.role) {
        return Err(Error::not_found("developer", user));
    }
    let password = auth::generate_password();
    let hash = auth::hash_generated(&password);
    set_password(app, by, user, &hash, None, "reset-password").await?;
    // Whoever had the old password may have made keys. The new password is not told before they are gone.
    api_key::forget_of_user(app, user).await?;
    Ok(CreatedUser {
        user_id: user,
        password,
    })
}

async fn set_password(
    app: &App,
    by: &Actor,
    user: UserId,
    hash: &str,
    epoch: Option<i64>,
    operation: &'static str,
) -> Result<()> {
    let mut tx = app.db.begin(user.get()).await?;
    // Of two changes at once one wins: the other knew a password that is no longer the old one.
    let epoch: Option<i64> = sqlx::query_scalar(
        "update account set password_hash = $2, epoch = epoch + 1 \
         where id = $1 and deleted is null and epoch = coalesce($3, epoch) returning epoch",
    )
    .bind(user)
    .bind(hash)
    .bind(epoch)
    .fetch_optional(&mut *tx)
    .await?;
    let epoch = epoch.ok_or(Error::WrongCredentials("the password was changed in the meantime"))?;
    // Operators and developers only: what players do is not theirs to read.
    if by.role != Role::Player {
        audit::note(app, &mut tx, by, operation, None, user, None).await?;
    }
    event::append(&mut tx, Kind::Account, user.get()).await?;
    tx.commit().await?;
    revocation::publish_now(app, user.get(), epoch).await;
    Ok(())
}

pub async fn delete_developer(app: &App, by: &Actor, user: UserId) -> Result<Deleted> {
    let mut tx = app.db.begin(user.get()).await?;
    let done = sqlx::query("update account set deleted = now() where id = $1 and role = $2 and deleted is null")
        .bind(user)
        .bind(Role::Developer.as_str())
        .execute(&mut *tx)
        .await?;
    let deleted = done.rows_affected() > 0;
    if deleted {
        audit::note(app, &mut tx, by, "delete-developer", None, user, None).await?;
        event::append(&mut tx, Kind::Account, user.get()).await?;
    }
    tx.commit().await?;
    if deleted {
        revocation::publish_now(app, user.get(), revocation::ALL).await;
    }
    Ok(Deleted { deleted })
}

/// The job of an account whose password changed or that is deleted: every instance must know.
pub async fn changed(app: &App, user: UserId) -> Result<()> {
    let row: Option<(i64, bool)> = {
        let mut tx = app.db.begin(user.get()).await?;
        sqlx::query_as("select epoch, deleted is not null from account where id = $1")
            .bind(user)
            .fetch_optional(&mut *tx)
            .await?
    };
    let (epoch, is_deleted) = row.unwrap_or((0, true));
    if !is_deleted {
        return revocation::publish(app, user.get(), epoch).await;
    }
    revocation::publish(app, user.get(), revocation::ALL).await?;
    let mut tx = app.db.begin(user.get()).await?;
    sqlx::query("delete from api_key where user_id = $1")
        .bind(user)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    let mut tx = app.db.begin(Scope::User.key()).await?;
    alias::release(&mut tx, Scope::User, user.get()).await?;
    tx.commit().await
}

pub async fn exists(app: &App, user: UserId) -> Result<()> {
    let mut tx = app.db.begin(user.get()).await?;
    let found: Option<i32> = sqlx::query_scalar("select 1 from account where id = $1")
        .bind(user)
        .fetch_optional(&mut *tx)
        .await?;
    found.map(|_| ()).ok_or_else(|| Error::not_found("user", user))
}

/// A name that a developer can log in by.
pub async fn create_developer_alias(app: &App, by: &Actor, call: CreateDeveloperAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    let account = find(app, call.user_id).await?;
    if account.role != Role::Developer {
        return Err(Error::not_found("developer", call.user_id));
    }
    let mut tx = app.db.begin(Scope::User.key()).await?;
    alias::create(&mut tx, app.ids.mint(), Scope::User, call.user_id.get(), value).await?;
    audit::note(
        app,
        &mut tx,
        by,
        "create-developer-alias",
        None,
        call.user_id,
        Some(value),
    )
    .await?;
    tx.commit().await?;
    // A deletion may have come between: whoever removes the names looks again.
    if let Err(Error::UserDeleted) = find(app, call.user_id).await {
        let mut tx = app.db.begin(call.user_id.get()).await?;
        event::append(&mut tx, Kind::Account, call.user_id.get()).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Users of one role, or of all.
pub async fn list(app: &App, role: Option<Role>, paging: &Paging) -> Result<Page<User>> {
    // Written out, so that the few who are no players are found by an index of their own.
    let of_role = role.map_or(String::new(), |role| format!("and role = '{}'", role.as_str()));
    let query: std::sync::Arc<str> = format!(
        "select id, role, created, deleted is not null from account where id > $1 {of_role} order by id limit $2"
    )
    .into();
    let mut walk = Walk::new(app, paging)?;
    while let Some(part) = walk.part() {
        let mut tx = app.db.begin_in(part.shard).await?;
        let rows: Vec<(UserId, String, OffsetDateTime, bool)> = sqlx::query_as(AssertSqlSafe(query.clone()))
            .bind(part.after)
            .bind(part.limit)
            .fetch_all(&mut *tx)
            .await?;
        let user = |(id, role, created, deleted): (UserId, String, OffsetDateTime, bool)| User {
            id,
            role,
            aliases: Vec::new(),
            created: timestamp(created),
            deleted,
        };
        walk.add(app, rows.into_iter().map(|row| (row.0.get(), user(row))).collect());
    }
    let mut page = walk.page();
    let ids = page.items.iter().map(|user| user.id.get());
    let mut names = alias::Names::read(&mut *app.db.begin(Scope::User.key()).await?, ids).await?;
    for user in &mut page.items {
        user.aliases = names.take(user.id.get()).into_iter().map(|alias| alias.value).collect();
    }
    Ok(page)
}

pub async fn list_users(app: &App, call: &admin::ListUsers) -> Result<Page<User>> {
    let parse =
        |role: &Text| Role::parse(role.as_str()).ok_or_else(|| Error::Invalid(format!("there is no role `{role}`")));
    list(app, call.role.as_ref().map(parse).transpose()?, &call.paging).await
}

/// Forgets users who were deleted long ago, and players who signed up and never played.
pub async fn purge(db: &mut PgConnection, after_s: i64, limit: i64) -> Result<()> {
    sqlx::query(
        "with looked_at as (select account.id, player.user_id is not null as has_played from account \
           left join lateral (select user_id from player where player.user_id = account.id limit 1) as player on true \
           where unused and created < now() - $1 * interval '1 day' order by created limit $2), \
         played as (update account set unused = false where id in (select id from looked_at where has_played)) \
         delete from account where id in (select id from looked_at where not has_played)",
    )
    .bind(UNUSED_DAYS)
    .bind(limit)
    .execute(&mut *db)
    .await?;
    sqlx::query(
        "delete from account where id in (select id from account where deleted < now() - $1 * interval '1 second' \
         and not exists (select 1 from event where kind = 'account' and key = account.id) limit $2)",
    )
    .bind(after_s)
    .bind(limit)
    .execute(&mut *db)
    .await?;
    sqlx::query("delete from api_key where id in (select id from api_key where expires < now() - $1 * interval '1 second' limit $2)")
        .bind(after_s)
        .bind(limit)
        .execute(db)
        .await?;
    Ok(())
}
