//! Operations of an admin: the installation itself and its operators.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use omgservers_protocol::admin::{
    BcryptHash, BcryptedHash, CalculateShard, CalculatedShard, ChangePassword, CreateToken, FailedJob, GenerateId,
    GeneratedId, Host, Instance, ListAuditRecords, ListFailedJobs, ListHosts, ListInstances, ListShards, ListUsers,
    PingDockerHost, PingedDockerHost, RenewToken, ResetPassword, Shard, User,
};
use omgservers_protocol::audit::AuditRecord;
use omgservers_protocol::call::{Empty, Page, RawToken};
use omgservers_protocol::support::CreatedUser;
use omgservers_protocol::text::Text;

use super::Body;
use crate::App;
use crate::address::Address;
use crate::entity::{account, alias, audit, pool};
use crate::error::{Error, Result};
use crate::principal::{Actor, Admin, Anybody};
use crate::{auth, event, host, instance};

/// Longest key that a shard is calculated for, bytes.
const SHARD_KEY_MAX: usize = 1_024;
/// A Docker engine must answer within this time.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn log_in(app: &App, from: Address, user: &Text, password: &Text) -> Result<Json<RawToken>> {
    let user = alias::resolve_user(app, user).await?;
    Ok(Json(RawToken {
        raw_token: account::log_in(app, from, user, password).await?,
    }))
}

pub(super) async fn renew(app: &App, by: &Actor) -> Result<Json<RawToken>> {
    Ok(Json(RawToken {
        raw_token: account::renew(app, by).await?,
    }))
}

pub(super) async fn create_token(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(call): Body<CreateToken>,
) -> Result<Json<RawToken>> {
    log_in(&app, from, &call.user, &call.password).await
}

pub(super) async fn renew_token(
    State(app): State<App>,
    by: Admin,
    Body(_): Body<RenewToken>,
) -> Result<Json<RawToken>> {
    renew(&app, &by).await
}

pub(super) async fn change_password(
    State(app): State<App>,
    from: Address,
    by: Admin,
    Body(call): Body<ChangePassword>,
) -> Result<Json<Empty>> {
    account::change_password(&app, from, &by, &call.0).await?;
    Ok(Json(Empty {}))
}

pub(super) async fn reset_password(
    State(app): State<App>,
    by: Admin,
    Body(call): Body<ResetPassword>,
) -> Result<Json<CreatedUser>> {
    let user = alias::resolve_user(&app, &call.user).await?;
    account::reset_password(&app, &by, user, None).await.map(Json)
}

pub(super) async fn generate_id(
    State(app): State<App>,
    _: Admin,
    Body(_): Body<GenerateId>,
) -> Result<Json<GeneratedId>> {
    Ok(Json(GeneratedId { id: app.ids.mint() }))
}

pub(super) async fn bcrypt_hash(_: Admin, Body(call): Body<BcryptHash>) -> Result<Json<BcryptedHash>> {
    let value = call.value.as_str();
    if value.trim().is_empty() || value.contains('\0') {
        return Err(Error::Invalid("value must not be blank".into()));
    }
    Ok(Json(BcryptedHash {
        hash: auth::hash_chosen(value.to_owned(), None).await?,
    }))
}

/// The shard of any text.
pub(super) fn shard_of(app: &App, key: &Text) -> Result<u16> {
    let text = key.as_str();
    if text.len() > SHARD_KEY_MAX {
        return Err(Error::Invalid(format!("shard_key has more than {SHARD_KEY_MAX} bytes")));
    }
    Ok(app.db.shard_of_text(text).index())
}

pub(super) async fn calculate_shard(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<CalculateShard>,
) -> Result<Json<CalculatedShard>> {
    Ok(Json(CalculatedShard {
        shard_index: shard_of(&app, &call.shard_key)?,
        server_uri: app.config.server_uri.clone(),
    }))
}

pub(super) async fn ping_docker_host(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<PingDockerHost>,
) -> Result<Json<PingedDockerHost>> {
    let address = &call.docker_daemon_uri;
    if address.len() > 1_024 {
        return Err(Error::Invalid("docker_daemon_uri has more than 1024 bytes".into()));
    }
    let settings = host::HostSettings {
        connect_timeout: PING_TIMEOUT,
        response_timeout: PING_TIMEOUT,
        ..app.hosts.settings().clone()
    };
    let host = host::connect(address, &settings).map_err(|cause| Error::WrongArgument(cause.to_string()))?;
    match host.ping().await {
        Ok(()) => Ok(Json(PingedDockerHost {
            successful: true,
            from_server: app.config.server_uri.clone(),
        })),
        Err(cause) => Err(Error::HostAway(cause.to_string())),
    }
}

pub(super) async fn list_shards(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<ListShards>,
) -> Result<Json<Page<Shard>>> {
    app.db.list_shards(&call.paging).await.map(Json)
}

pub(super) async fn list_instances(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<ListInstances>,
) -> Result<Json<Page<Instance>>> {
    instance::list(app.db.system(0), &call.paging).await.map(Json)
}

pub(super) async fn list_hosts(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<ListHosts>,
) -> Result<Json<Page<Host>>> {
    pool::list(&app, &call.paging).await.map(Json)
}

pub(super) async fn list_users(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<ListUsers>,
) -> Result<Json<Page<User>>> {
    account::list_users(&app, &call).await.map(Json)
}

pub(super) async fn list_failed_jobs(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<ListFailedJobs>,
) -> Result<Json<Page<FailedJob>>> {
    event::list_failed(&app, &call.paging).await.map(Json)
}

pub(super) async fn list_audit_records(
    State(app): State<App>,
    _: Admin,
    Body(call): Body<ListAuditRecords>,
) -> Result<Json<Page<AuditRecord>>> {
    audit::of_all(&app, &call.paging).await.map(Json)
}
