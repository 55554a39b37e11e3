//! Names of entities.

use std::collections::HashMap;

use omgservers_protocol::developer::Alias;
use omgservers_protocol::id::{AliasId, ProjectId, StageId, TenantId, UserId};
use omgservers_protocol::text::Text;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::{Tx, one_at_a_time};
use crate::entity::timestamp;
use crate::error::{Error, Result, constraint};

/// Names of one entity.
const ALIASES_MAX: i64 = 16;

/// What a name is unique among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Pool,
    User,
    Tenant,
    Project(TenantId),
    Stage(TenantId, ProjectId),
}

impl Scope {
    fn qualifier(self) -> &'static str {
        match self {
            Self::Pool => "POOL",
            Self::User => "USER",
            Self::Tenant => "TENANT",
            Self::Project(_) => "PROJECT",
            Self::Stage(..) => "STAGE",
        }
    }

    /// Decides the shard.
    pub fn key(self) -> i64 {
        match self {
            Self::Pool | Self::User | Self::Tenant => 0,
            Self::Project(tenant) | Self::Stage(tenant, _) => tenant.get(),
        }
    }

    fn group(self) -> i64 {
        match self {
            Self::Tenant => 0,
            Self::Pool => 1,
            Self::User => 2,
            Self::Project(tenant) => tenant.get(),
            Self::Stage(_, project) => project.get(),
        }
    }
}

/// Gives an entity a name. The caller's transaction must be in the shard of the scope's key.
pub async fn create(db: &mut PgConnection, id: AliasId, scope: Scope, entity: i64, value: &str) -> Result<()> {
    one_at_a_time(&mut *db, entity).await?;
    let done = sqlx::query(
        "insert into alias (id, qualifier, shard_key, uniqueness_group, entity_id, value) select $1, $2, $3, $4, $5, $6 \
         where (select count(*) from alias where entity_id = $5) < $7",
    )
    .bind(id)
    .bind(scope.qualifier())
    .bind(scope.key())
    .bind(scope.group())
    .bind(entity)
    .bind(value)
    .bind(ALIASES_MAX)
    .execute(db)
    .await
    .map_err(|cause| match constraint(&cause) {
        Some("alias_taken") => Error::Conflict(format!("the alias `{value}` is taken")),
        _ => cause.into(),
    })?;
    match done.rows_affected() {
        0 => Err(Error::Conflict(format!("it has {ALIASES_MAX} aliases already"))),
        _ => Ok(()),
    }
}

/// Frees every name of an entity that is deleted. They lead to it until they are forgotten, or given to something else.
pub async fn release(db: &mut PgConnection, scope: Scope, entity: i64) -> Result<()> {
    sqlx::query("update alias set deleted = now() where qualifier = $1 and shard_key = $2 and entity_id = $3 and deleted is null")
        .bind(scope.qualifier())
        .bind(scope.key())
        .bind(entity)
        .execute(db)
        .await?;
    Ok(())
}

/// A name from outside. One of digits only could never be used, since it would be read as an id.
pub fn check_value(value: &Text) -> Result<&str> {
    if value.as_id().is_some() {
        return Err(Error::Invalid(format!(
            "the alias `{value}` could not be told from an id"
        )));
    }
    Ok(value.as_str())
}

/// Whose name it is.
pub async fn find(db: &mut PgConnection, scope: Scope, value: &str) -> Result<Option<i64>> {
    look_up(db, scope, value, false).await
}

/// Whose name it is or was: of those who are deleted, the last one.
async fn look_up(db: &mut PgConnection, scope: Scope, value: &str, or_was: bool) -> Result<Option<i64>> {
    Ok(sqlx::query_scalar(
        "select entity_id from alias where qualifier = $1 and shard_key = $2 and uniqueness_group = $3 and value = $4 \
         and (deleted is null or $5) order by deleted desc nulls first limit 1",
    )
    .bind(scope.qualifier())
    .bind(scope.key())
    .bind(scope.group())
    .bind(value)
    .bind(or_was)
    .fetch_optional(db)
    .await?)
}

/// An id as it is, a name by look-up.
pub async fn resolve_tenant(app: &App, tenant: &Text) -> Result<TenantId> {
    resolve(app, Scope::Tenant, tenant)
        .await?
        .map(TenantId)
        .ok_or(Error::NoTenant)
}

pub async fn resolve_user(app: &App, user: &Text) -> Result<UserId> {
    resolve(app, Scope::User, user)
        .await?
        .map(UserId)
        .ok_or_else(|| Error::not_found("user", user))
}

async fn resolve(app: &App, scope: Scope, text: &Text) -> Result<Option<i64>> {
    if let Some(id) = text.as_id() {
        return Ok(Some(id));
    }
    // Postgres knows no zero bytes.
    if text.as_str().contains('\0') {
        return Ok(None);
    }
    let mut tx = app.db.begin(scope.key()).await?;
    look_up(&mut tx, scope, text.as_str(), true).await
}

/// The same within a transaction in the tenant's shard.
pub async fn resolve_project(tx: &mut Tx, tenant: TenantId, project: &Text) -> Result<ProjectId> {
    match project.as_id() {
        Some(id) => Ok(ProjectId(id)),
        None => look_up(tx, Scope::Project(tenant), project.as_str(), true)
            .await?
            .map(ProjectId)
            .ok_or_else(|| Error::not_found("project", project)),
    }
}

pub async fn resolve_stage(tx: &mut Tx, tenant: TenantId, project: ProjectId, stage: &Text) -> Result<StageId> {
    match stage.as_id() {
        Some(id) => Ok(StageId(id)),
        None => look_up(tx, Scope::Stage(tenant, project), stage.as_str(), true)
            .await?
            .map(StageId)
            .ok_or_else(|| Error::not_found("stage", stage)),
    }
}

/// The names of these entities.
pub async fn list(db: &mut PgConnection, entities: &[i64]) -> Result<Vec<Alias>> {
    let rows: Vec<(AliasId, OffsetDateTime, String, i64, String)> = sqlx::query_as(
        "select id, created, qualifier, entity_id, value from alias where entity_id = any($1) order by id",
    )
    .bind(entities)
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, created, qualifier, entity_id, value)| Alias {
            id,
            created: timestamp(created),
            qualifier,
            entity_id: entity_id.to_string(),
            value,
        })
        .collect())
}

/// The names of several entities.
pub struct Names(HashMap<String, Vec<Alias>>);

impl Names {
    pub async fn read(db: &mut PgConnection, entities: impl Iterator<Item = i64>) -> Result<Self> {
        let mut names: HashMap<String, Vec<Alias>> = HashMap::new();
        let mut entities: Vec<i64> = entities.collect();
        // A page of records has few users, each many times.
        entities.sort_unstable();
        entities.dedup();
        for alias in list(db, &entities).await? {
            names.entry(alias.entity_id.clone()).or_default().push(alias);
        }
        Ok(Self(names))
    }

    /// Those of users. The caller must hold no transaction: it may be in the same shard, and there may be one connection.
    pub async fn of_users(app: &App, users: impl Iterator<Item = UserId>) -> Result<Self> {
        let mut tx = app.db.begin(Scope::User.key()).await?;
        Self::read(&mut tx, users.map(UserId::get)).await
    }

    /// The first one of an entity.
    pub fn first(&self, entity: i64) -> Option<String> {
        let names = self.0.get(&entity.to_string())?;
        names.first().map(|alias| alias.value.clone())
    }

    /// Those of one of them, once.
    pub fn take(&mut self, entity: i64) -> Vec<Alias> {
        self.0.remove(&entity.to_string()).unwrap_or_default()
    }
}
