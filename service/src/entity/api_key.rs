//! Keys of programs that act for a developer, such as build servers: `omgk.<user>.<key>.<secret>`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use omgservers_protocol::call::{Deleted, Page};
use omgservers_protocol::developer::{ApiKey, CreateApiKey, CreatedApiKey, ListApiKeys, Scope};
use omgservers_protocol::id::{ApiKeyId, ProjectId, TenantId, UserId};
use omgservers_protocol::text::Secret;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::db::{Shard, one_at_a_time};
use crate::entity::page::Window;
use crate::entity::{alias, audit, project, tenant, timestamp};
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::ids::now_ms;
use crate::principal::Actor;
use crate::{App, auth, revocation};

/// How a key begins, so that it is not taken for a token.
pub const PREFIX: &str = "omgk.";
/// Longest life of a key, days.
const LIFE_DAYS_MAX: i64 = 731;
/// Keys of one user.
const KEYS_MAX: i64 = 100;

/// What a key is good for, besides what its user may do.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    pub id: ApiKeyId,
    pub tenant: TenantId,
    pub project: Option<ProjectId>,
    pub scopes: Vec<Scope>,
    expires_ms: i64,
}

fn parse_scopes(names: &[String]) -> Vec<Scope> {
    let named = |name: &String| Scope::ALL.iter().find(|scope| scope.as_str() == name);
    names.iter().filter_map(named).copied().collect()
}

pub async fn create(app: &App, by: &Actor, call: CreateApiKey) -> Result<CreatedApiKey> {
    by.require_person()?;
    if call.scopes.is_empty() {
        return Err(Error::Invalid("scopes must not be empty".into()));
    }
    let expires = OffsetDateTime::parse(&call.expires, &Rfc3339)
        .map_err(|_| Error::Invalid("expires must be a time such as 2026-12-31T00:00:00Z".into()))?;
    let life_days = (expires.unix_timestamp() - now_ms() / 1_000).div_euclid(86_400);
    if !(0..=LIFE_DAYS_MAX).contains(&life_days) {
        return Err(Error::Invalid(format!(
            "expires must be ahead, at most {LIFE_DAYS_MAX} days"
        )));
    }
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let project = {
        let mut tx = app.db.begin(tenant.get()).await?;
        let is_member = tenant::is_member(&mut tx, tenant, by.user_id).await?;
        if !is_member {
            return Err(Error::NoTenant);
        }
        match &call.project {
            None => None,
            Some(named) => {
                let id = alias::resolve_project(&mut tx, tenant, named).await?;
                project::find(&mut tx, tenant, id).await?;
                Some(id)
            }
        }
    };
    let id: ApiKeyId = app.ids.mint();
    let secret = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 24]>());
    let mut scopes: Vec<&str> = call.scopes.iter().map(|scope| scope.as_str()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let mut tx = app.db.begin(by.user_id.get()).await?;
    one_at_a_time(&mut tx, by.user_id.get()).await?;
    let keys: i64 = sqlx::query_scalar("select count(*) from api_key where user_id = $1")
        .bind(by.user_id)
        .fetch_one(&mut *tx)
        .await?;
    if keys >= KEYS_MAX {
        return Err(Error::Conflict(format!(
            "a user has at most {KEYS_MAX} keys, delete one"
        )));
    }
    sqlx::query(
        "insert into api_key (id, user_id, tenant_id, project_id, name, scopes, secret_hash, expires) \
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(id)
    .bind(by.user_id)
    .bind(tenant)
    .bind(project)
    .bind(call.name.as_str())
    .bind(&scopes)
    .bind(auth::hash_generated(&secret))
    .bind(expires)
    .execute(&mut *tx)
    .await?;
    let detail = format!("{} until {}", scopes.join(" "), timestamp(expires));
    audit::note(app, &mut tx, by, "create-api-key", Some(tenant), id, Some(&detail)).await?;
    tx.commit().await?;
    let api_key = Secret::new(format!("{PREFIX}{}.{id}.{secret}", by.user_id));
    Ok(CreatedApiKey { id, api_key })
}

/// Whose key it is and what it is good for.
pub async fn verify(app: &App, key: &str) -> Result<(UserId, Arc<Grant>)> {
    let wrong = || Error::WrongCredentials("the key is not valid");
    let mut parts = key.strip_prefix(PREFIX).ok_or_else(wrong)?.splitn(3, '.');
    let mut number = || parts.next().and_then(|part| part.parse::<i64>().ok()).ok_or_else(wrong);
    let (user, id) = (UserId(number()?), ApiKeyId(number()?));
    let secret = parts.next().ok_or_else(wrong)?;
    // A password that the user changed does not matter, a user who is gone does.
    app.revocations.check(user.get(), revocation::ALL - 1)?;
    let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let grant = match app.keys.get(&digest) {
        Some(grant) => grant,
        None => {
            let grant = Arc::new(load(app, user, id, secret).await?.ok_or_else(wrong)?);
            app.keys.insert(digest, grant.clone());
            grant
        }
    };
    app.revocations.check(id.get(), 0).map_err(|_| wrong())?;
    if grant.expires_ms <= now_ms() {
        return Err(Error::WrongCredentials("the key has expired"));
    }
    Ok((user, grant))
}

async fn load(app: &App, user: UserId, id: ApiKeyId, secret: &str) -> Result<Option<Grant>> {
    type Row = (TenantId, Option<ProjectId>, Vec<String>, String, OffsetDateTime);
    let mut tx = app.db.begin(user.get()).await?;
    let row: Option<Row> = sqlx::query_as(
        "select tenant_id, project_id, scopes, secret_hash, expires from api_key \
         join account on account.id = user_id and account.deleted is null where api_key.id = $1 and user_id = $2",
    )
    .bind(id)
    .bind(user)
    .fetch_optional(&mut *tx)
    .await?;
    drop(tx);
    let Some((tenant, project, scopes, hash, expires)) = row else {
        return Ok(None);
    };
    if !auth::is_generated_password(secret, &hash) {
        return Ok(None);
    }
    Ok(Some(Grant {
        id,
        tenant,
        project,
        scopes: parse_scopes(&scopes),
        expires_ms: expires.unix_timestamp() * 1_000,
    }))
}

pub async fn delete(app: &App, by: &Actor, id: ApiKeyId) -> Result<Deleted> {
    by.require_person()?;
    let mut tx = app.db.begin(by.user_id.get()).await?;
    let tenant: Option<TenantId> =
        sqlx::query_scalar("delete from api_key where id = $1 and user_id = $2 returning tenant_id")
            .bind(id)
            .bind(by.user_id)
            .fetch_optional(&mut *tx)
            .await?;
    if let Some(tenant) = tenant {
        audit::note(app, &mut tx, by, "delete-api-key", Some(tenant), id, None).await?;
        event::append(&mut tx, Kind::ApiKey, id.get()).await?;
    }
    tx.commit().await?;
    if tenant.is_some() {
        revocation::publish_now(app, id.get(), revocation::ALL).await;
    }
    Ok(Deleted {
        deleted: tenant.is_some(),
    })
}

/// Deletes all keys of a user.
pub async fn forget_of_user(app: &App, user: UserId) -> Result<()> {
    let mut tx = app.db.begin(user.get()).await?;
    let gone: Vec<ApiKeyId> = sqlx::query_scalar("delete from api_key where user_id = $1 returning id")
        .bind(user)
        .fetch_all(&mut *tx)
        .await?;
    for id in &gone {
        event::append(&mut tx, Kind::ApiKey, id.get()).await?;
    }
    tx.commit().await?;
    for id in gone {
        revocation::publish_now(app, id.get(), revocation::ALL).await;
    }
    Ok(())
}

/// Deletes keys of a tenant that is gone, a batch of them. Says whether there may be more.
pub async fn forget(app: &App, shard: Shard, tenant: TenantId, limit: i64) -> Result<bool> {
    let mut tx = app.db.begin_in(shard).await?;
    let gone: Vec<ApiKeyId> = sqlx::query_scalar(
        "delete from api_key where id in (select id from api_key where tenant_id = $1 limit $2) returning id",
    )
    .bind(tenant)
    .bind(limit)
    .fetch_all(&mut *tx)
    .await?;
    for id in &gone {
        event::append(&mut tx, Kind::ApiKey, id.get()).await?;
    }
    tx.commit().await?;
    Ok(i64::try_from(gone.len()) == Ok(limit))
}

/// The job of a key that was deleted: every instance must know.
pub async fn changed(app: &App, shard: Shard, id: ApiKeyId) -> Result<()> {
    let mut tx = app.db.begin_in(shard).await?;
    let found: Option<i32> = sqlx::query_scalar("select 1 from api_key where id = $1")
        .bind(id)
        .fetch_optional(&mut *tx)
        .await?;
    drop(tx);
    match found {
        Some(_) => Ok(()),
        None => revocation::publish(app, id.get(), revocation::ALL).await,
    }
}

pub async fn list(app: &App, by: &Actor, call: ListApiKeys) -> Result<Page<ApiKey>> {
    by.require_person()?;
    let window = Window::new(&call.paging)?;
    type Row = (
        ApiKeyId,
        String,
        TenantId,
        Option<ProjectId>,
        Vec<String>,
        OffsetDateTime,
        OffsetDateTime,
    );
    let mut tx = app.db.begin(by.user_id.get()).await?;
    let rows: Vec<Row> = sqlx::query_as(
        "select id, name, tenant_id, project_id, scopes, created, expires from api_key \
         where user_id = $1 and id > $2 order by id limit $3",
    )
    .bind(by.user_id)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(&mut *tx)
    .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, name, tenant_id, project_id, scopes, created, expires)| ApiKey {
            id,
            name,
            tenant_id,
            project_id,
            scopes: parse_scopes(&scopes),
            created: timestamp(created),
            expires: timestamp(expires),
        },
    ))
}
