//! Operations of developers: everything between a project and its running lobbies and matches.

use axum::Json;
use axum::extract::multipart::MultipartRejection;
use axum::extract::{Multipart, State};
use omgservers_protocol::audit::{AuditRecord, TenantQuotas, UsageRecord};
use omgservers_protocol::call::{Created, Deleted, Empty, Page, RawToken};
use omgservers_protocol::developer::{self as dev, Details};
use omgservers_protocol::support::CreatedProject;
use omgservers_protocol::text::Text;
use tokio::time::Instant;

use super::Body;
use super::admin::{log_in, renew};
use super::player::{LOOK_AGAIN, check_lists, deadline};
use crate::App;
use crate::address::Address;
use crate::entity::{
    account, api_key, deployment, files, local_run, permission, project, quota, stage, tenant, venue, version,
};
use crate::error::{Error, Result};
use crate::principal::{Anybody, Developer};
use crate::wake::News;

/// Longest value of a field in a form, bytes.
const FIELD_MAX: usize = 256;
/// A machine that runs a stage asks again within this time, which is shorter than it may be silent.
const LOCAL_RUN_WAIT_MAX_MS: u64 = 10_000;

pub(super) async fn create_token(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(call): Body<dev::CreateToken>,
) -> Result<Json<RawToken>> {
    log_in(&app, from, &call.user_id, &call.password).await
}

pub(super) async fn renew_token(
    State(app): State<App>,
    by: Developer,
    Body(_): Body<dev::RenewToken>,
) -> Result<Json<RawToken>> {
    renew(&app, &by).await
}

/// Operations are alike: the caller, the call, one function.
macro_rules! operations {
    ($($name:ident($call:ty) -> $reply:ty = $operation:path;)*) => {$(
        pub(super) async fn $name(
            State(app): State<App>,
            by: Developer,
            Body(call): Body<$call>,
        ) -> Result<Json<$reply>> {
            $operation(&app, &by, call).await.map(|reply| Json(reply.into()))
        }
    )*};
}

operations! {
    create_api_key(dev::CreateApiKey) -> dev::CreatedApiKey = api_key::create;
    list_api_keys(dev::ListApiKeys) -> Page<dev::ApiKey> = api_key::list;
    list_tenants(dev::ListTenants) -> Page<dev::Tenant> = tenant::list_own;
    list_audit_records(dev::ListAuditRecords) -> Page<AuditRecord> = tenant::audit_records;
    list_permissions(dev::ListPermissions) -> Page<dev::PermissionRow> = permission::list;
    tenant_details(dev::GetTenantDetails) -> Details<dev::TenantDetails> = tenant::details;
    create_project(dev::CreateProject) -> CreatedProject = project::create;
    create_project_alias(dev::CreateProjectAlias) -> Empty = project::create_alias;
    project_details(dev::GetProjectDetails) -> Details<dev::ProjectDetails> = project::details;
    delete_project(dev::DeleteProject) -> Deleted = project::delete;
    list_projects(dev::ListProjects) -> Page<dev::Project> = project::list;
    create_stage(dev::CreateStage) -> dev::CreatedStage = stage::create;
    create_stage_alias(dev::CreateStageAlias) -> Empty = stage::create_alias;
    stage_details(dev::GetStageDetails) -> Details<dev::StageDetails> = stage::details;
    delete_stage(dev::DeleteStage) -> Deleted = stage::delete;
    list_stages(dev::ListStages) -> Page<dev::Stage> = stage::list;
    set_stage_maintenance(dev::SetStageMaintenance) -> Empty = stage::set_maintenance;
    set_stage_variable(dev::SetStageVariable) -> Created = stage::set_variable;
    delete_stage_variable(dev::DeleteStageVariable) -> Deleted = stage::delete_variable;
    list_stage_variables(dev::ListStageVariables) -> Page<dev::StageVariable> = stage::list_variables;
    start_local_run(dev::StartLocalRun) -> dev::StartedLocalRun = local_run::start;
    stop_local_run(dev::StopLocalRun) -> Deleted = local_run::stop;
    create_version(dev::CreateVersion) -> dev::CreatedVersion = version::create;
    version_details(dev::GetVersionDetails) -> Details<dev::VersionDetails> = version::details;
    version_config(dev::GetVersionConfig) -> dev::ReadVersionConfig = version::config;
    delete_version(dev::DeleteVersion) -> Deleted = version::delete;
    list_versions(dev::ListVersions) -> Page<dev::Version> = version::list;
    list_files_archives(dev::ListFilesArchives) -> Page<dev::FilesArchive> = files::list;
    create_image(dev::CreateImage) -> Created = version::create_image;
    list_images(dev::ListImages) -> Page<dev::Image> = version::list_images;
    deploy_version(dev::DeployVersion) -> dev::CreatedDeployment = deployment::create;
    deployment_details(dev::GetDeploymentDetails) -> Details<dev::DeploymentDetails> = deployment::details;
    deployment_config(dev::GetDeploymentConfig) -> dev::ReadDeploymentConfig = deployment::config;
    delete_deployment(dev::DeleteDeployment) -> Deleted = deployment::delete;
    list_deployments(dev::ListDeployments) -> Page<dev::Deployment> = deployment::list;
    create_lobby_request(dev::CreateLobbyRequest) -> Empty = venue::create_lobby;
    delete_lobby(dev::DeleteLobby) -> Deleted = venue::delete_lobby;
    list_lobbies(dev::ListLobbies) -> Page<dev::VenueStatus> = venue::list_lobbies;
    create_matchmaker_request(dev::CreateMatchmakerRequest) -> Empty = venue::create_matchmaker;
    delete_matchmaker(dev::DeleteMatchmaker) -> Deleted = venue::delete_matchmaker;
    list_matches(dev::ListMatches) -> Page<dev::VenueStatus> = venue::list_matches;
    list_clients(dev::ListClients) -> Page<dev::ClientStatus> = venue::list_clients;
}

pub(super) async fn change_password(
    State(app): State<App>,
    from: Address,
    by: Developer,
    Body(call): Body<dev::ChangePassword>,
) -> Result<Json<Empty>> {
    account::change_password(&app, from, &by, &call.0).await?;
    Ok(Json(Empty {}))
}

pub(super) async fn delete_api_key(
    State(app): State<App>,
    by: Developer,
    Body(call): Body<dev::DeleteApiKey>,
) -> Result<Json<Deleted>> {
    api_key::delete(&app, &by, call.id).await.map(Json)
}

pub(super) async fn get_tenant_quotas(
    State(app): State<App>,
    by: Developer,
    Body(call): Body<dev::GetTenantQuotas>,
) -> Result<Json<TenantQuotas>> {
    quota::get(&app, &by, &call.tenant).await.map(Json)
}

pub(super) async fn list_usage(
    State(app): State<App>,
    by: Developer,
    Body(call): Body<dev::ListUsage>,
) -> Result<Json<Page<UsageRecord>>> {
    quota::list_usage(&app, &by, &call.tenant, &call.paging).await.map(Json)
}

/// A form with a file: fields in any order. Whoever names the version before the file is checked before it is read.
pub(super) async fn upload_files_archive(
    State(app): State<App>,
    by: Developer,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Json<dev::UploadedFilesArchive>> {
    let mut form = form.map_err(|_| Error::WrongMediaType("multipart/form-data"))?;
    let (mut tenant, mut version, mut archive, mut other_file) = (None, None, None, false);
    let mut upload = None;
    while let Some(mut field) = form.next_field().await.map_err(|cause| broken(&app, &cause))? {
        let name = field.name().unwrap_or_default().to_owned();
        let is_file = field.file_name().is_some();
        let limit = if name == "version.zip" { usize::MAX } else { FIELD_MAX };
        if name == "version.zip" && upload.is_none() {
            let is_named = tenant.is_some() && version.is_some();
            if is_named {
                files::check(&app, &by, &named(tenant.as_deref(), version.as_deref())?).await?;
            }
            upload = Some(app.uploads.begin(by.user_id, is_named)?);
        }
        let mut content = Vec::new();
        while let Some(chunk) = field.chunk().await.map_err(|cause| broken(&app, &cause))? {
            if content.len() + chunk.len() > limit && !is_file {
                return Err(Error::Invalid(format!("the field `{name}` is too long")));
            }
            if name == "version.zip" || !is_file {
                content.extend_from_slice(&chunk);
            }
        }
        match name.as_str() {
            "version.zip" => archive = Some(content),
            "tenant" => tenant = Some(content),
            "tenantVersionId" => version = Some(content),
            _ => other_file |= is_file,
        }
    }
    let call = named(tenant.as_deref(), version.as_deref())?;
    let archive = match archive {
        Some(archive) => archive,
        None if other_file => return Err(Error::ZipMissing),
        None => return Err(Error::Invalid("the file part `version.zip` is missing".into())),
    };
    files::create(&app, &by, call, archive).await.map(Json)
}

/// What an archive is for, by the fields of its form.
fn named(tenant: Option<&[u8]>, version: Option<&[u8]>) -> Result<dev::UploadFilesArchive> {
    let text = |field: Option<&[u8]>, name: &str| {
        field
            .and_then(|bytes| str::from_utf8(bytes).ok())
            .and_then(Text::new)
            .ok_or_else(|| Error::Invalid(format!("the field `{name}` is missing or blank")))
    };
    let tenant = text(tenant, "tenant")?;
    let version = text(version, "tenantVersionId")?;
    let version_id = version
        .as_id()
        .ok_or_else(|| Error::WrongRequest(format!("`{version}` is not the id of a version")))?
        .into();
    Ok(dev::UploadFilesArchive { tenant, version_id })
}

/// Why a form could not be read to its end.
fn broken(app: &App, cause: &axum::extract::multipart::MultipartError) -> Error {
    match cause.status() {
        axum::http::StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge {
            limit: archive_max(app),
        },
        _ => Error::WrongRequest("the form could not be read".into()),
    }
}

/// Largest upload, bytes: the archive and a little around it.
pub(super) fn archive_max(app: &App) -> usize {
    (app.config.archive_max_mb as usize) << 20
}

/// Hears what runs on a developer's machine and answers what should, at once or when that changes.
pub(super) async fn interchange_local_run(
    State(app): State<App>,
    by: Developer,
    Body(call): Body<dev::InterchangeLocalRun>,
) -> Result<Json<dev::InterchangedLocalRun>> {
    check_lists(call.running.len(), call.ended.len())?;
    let listener = app.db.hub().listen(News::LocalRun(call.run_id));
    let deadline = deadline(call.wait_ms.map(|wait| wait.min(LOCAL_RUN_WAIT_MAX_MS)));
    let tenant = local_run::hear(&app, &by, &call).await?;
    loop {
        let mut notified = std::pin::pin!(listener.notified());
        notified.as_mut().enable();
        let runtimes = local_run::wanted(&app, tenant, call.run_id, &call.running).await?;
        let is_news =
            runtimes.len() != call.running.len() || runtimes.iter().any(|runtime| runtime.environment.is_some());
        let now = Instant::now();
        if is_news || now >= deadline || app.stopping.is_cancelled() {
            return Ok(Json(dev::InterchangedLocalRun { runtimes }));
        }
        tokio::select! {
            () = notified => {}
            () = app.stopping.cancelled() => {}
            () = tokio::time::sleep_until(deadline.min(now + LOOK_AGAIN)) => {}
        }
    }
}
