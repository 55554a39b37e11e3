//! Operations of admin, support and developers.

use axum::Json;
use axum::extract::State;
use omgservers_protocol::call::{Created, Deleted, Empty, RawToken};
use omgservers_protocol::developer::{self as dev, Details};
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use omgservers_protocol::{admin, support};

use super::Body;
use crate::App;
use crate::auth::{Admin, Developer, Support};
use crate::entity::{account, alias, deployment, tenant, version};
use crate::error::Result;

pub(super) async fn log_in(app: &App, user: &Text, password: &Text) -> Result<Json<RawToken>> {
    let user = alias::resolve_user(app, user).await?;
    Ok(Json(RawToken {
        raw_token: account::log_in(app, user, password).await?,
    }))
}

pub(super) async fn admin_token(
    State(app): State<App>,
    Body(call): Body<admin::CreateToken>,
) -> Result<Json<RawToken>> {
    log_in(&app, &call.user, &call.password).await
}

pub(super) async fn generate_id(
    State(app): State<App>,
    _: Admin,
    Body(_): Body<admin::GenerateId>,
) -> Result<Json<admin::GeneratedId>> {
    Ok(Json(admin::GeneratedId { id: app.ids.mint() }))
}

pub(super) async fn support_token(
    State(app): State<App>,
    Body(call): Body<support::CreateToken>,
) -> Result<Json<RawToken>> {
    log_in(&app, &call.user, &call.password).await
}

pub(super) async fn create_tenant(
    State(app): State<App>,
    _: Support,
    Body(_): Body<support::CreateTenant>,
) -> Result<Json<support::CreatedTenant>> {
    tenant::create(&app).await.map(Json)
}

pub(super) async fn create_tenant_alias(
    State(app): State<App>,
    _: Support,
    Body(call): Body<support::CreateTenantAlias>,
) -> Result<Json<Empty>> {
    tenant::create_alias(&app, call).await.map(|()| Json(Empty {}))
}

pub(super) async fn delete_tenant(
    State(app): State<App>,
    _: Support,
    Body(call): Body<support::DeleteTenant>,
) -> Result<Json<Deleted>> {
    tenant::delete(&app, call).await.map(Json)
}

pub(super) async fn create_developer(
    State(app): State<App>,
    _: Support,
    Body(_): Body<support::CreateDeveloper>,
) -> Result<Json<support::CreatedUser>> {
    account::create(&app, Role::Developer).await.map(Json)
}

pub(super) async fn create_tenant_permissions(
    State(app): State<App>,
    _: Support,
    Body(call): Body<support::CreateTenantPermissions>,
) -> Result<Json<support::CreatedPermissions<support::TenantPermission>>> {
    tenant::create_permissions(&app, call).await.map(Json)
}

pub(super) async fn developer_token(
    State(app): State<App>,
    Body(call): Body<dev::CreateToken>,
) -> Result<Json<RawToken>> {
    Ok(Json(RawToken {
        raw_token: account::log_in(&app, alias::resolve_user(&app, &call.user_id).await?, &call.password).await?,
    }))
}

/// Operations of a developer are alike: the caller, the call, one function.
macro_rules! operations {
    ($($name:ident($call:ty) -> $reply:ty = $operation:path, $wrap:expr;)*) => {$(
        pub(super) async fn $name(
            State(app): State<App>,
            developer: Developer,
            Body(call): Body<$call>,
        ) -> Result<Json<$reply>> {
            $operation(&app, &developer, call).await.map(|reply| Json($wrap(reply)))
        }
    )*};
}

fn same<T>(reply: T) -> T {
    reply
}

fn details<T>(details: T) -> Details<T> {
    Details { details }
}

fn empty((): ()) -> Empty {
    Empty {}
}

operations! {
    tenant_details(dev::GetTenantDetails) -> Details<dev::TenantDetails> = tenant::tenant_details, details;
    create_project(dev::CreateProject) -> support::CreatedProject = tenant::create_project, same;
    create_project_alias(dev::CreateProjectAlias) -> Empty = tenant::create_project_alias, empty;
    project_details(dev::GetProjectDetails) -> Details<dev::ProjectDetails> = tenant::project_details, details;
    delete_project(dev::DeleteProject) -> Deleted = tenant::delete_project, same;
    create_stage(dev::CreateStage) -> dev::CreatedStage = tenant::create_stage, same;
    create_stage_alias(dev::CreateStageAlias) -> Empty = tenant::create_stage_alias, empty;
    stage_details(dev::GetStageDetails) -> Details<dev::StageDetails> = tenant::stage_details, details;
    delete_stage(dev::DeleteStage) -> Deleted = tenant::delete_stage, same;
    create_version(dev::CreateVersion) -> dev::CreatedVersion = version::create, same;
    version_details(dev::GetVersionDetails) -> Details<dev::VersionDetails> = version::details, details;
    delete_version(dev::DeleteVersion) -> Deleted = version::delete, same;
    create_image(dev::CreateImage) -> Created = version::create_image, same;
    deploy_version(dev::DeployVersion) -> dev::CreatedDeployment = deployment::create, same;
    deployment_details(dev::GetDeploymentDetails) -> Details<dev::DeploymentDetails> = deployment::details, details;
    delete_deployment(dev::DeleteDeployment) -> Deleted = deployment::delete, same;
}
