//! Operations of support: tenants and developers. What support does to projects and stages is what a developer does who
//! may do everything.

use axum::Json;
use axum::extract::State;
use omgservers_protocol::admin::User;
use omgservers_protocol::audit::{TenantQuotas, UsageRecord};
use omgservers_protocol::call::{Deleted, Empty, Page, RawToken};
use omgservers_protocol::developer as dev;
use omgservers_protocol::support::{
    ChangePassword, CreateDeveloper, CreateDeveloperAlias, CreateProject, CreateProjectAlias, CreateProjectPermissions,
    CreateStage, CreateStageAlias, CreateStagePermissions, CreateTenant, CreateTenantAlias, CreateTenantPermissions,
    CreateToken, CreatedPermissions, CreatedProject, CreatedTenant, CreatedUser, DeleteDeveloper, DeleteProject,
    DeleteProjectPermissions, DeleteStage, DeleteStagePermissions, DeleteTenant, DeleteTenantPermissions,
    DeletedPermissions, GetTenantQuotas, ListDevelopers, ListPermissions, ListProjects, ListStages, ListTenants,
    ListUsage, ProjectPermission, RenewToken, ResetDeveloperPassword, SetTenantQuotas, StagePermission,
    TenantPermission,
};
use omgservers_protocol::token::Role;

use super::Body;
use super::admin::{log_in, renew};
use crate::App;
use crate::address::Address;
use crate::entity::permission::{self, Wanted};
use crate::entity::{account, project, quota, stage, tenant};
use crate::error::Result;
use crate::principal::{Anybody, Support};

pub(super) async fn create_token(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(call): Body<CreateToken>,
) -> Result<Json<RawToken>> {
    log_in(&app, from, &call.user, &call.password).await
}

pub(super) async fn change_password(
    State(app): State<App>,
    from: Address,
    by: Support,
    Body(call): Body<ChangePassword>,
) -> Result<Json<Empty>> {
    account::change_password(&app, from, &by, &call.0).await?;
    Ok(Json(Empty {}))
}

/// Operations are alike: the caller, the call, one expression.
macro_rules! operations {
    ($($name:ident($app:ident, $by:ident, $call:ident: $type:ty) -> $reply:ty { $operation:expr })*) => {$(
        pub(super) async fn $name(
            State($app): State<App>,
            $by: Support,
            Body($call): Body<$type>,
        ) -> Result<Json<$reply>> {
            let ($app, $by) = (&$app, &$by);
            $operation.await.map(|reply| Json(reply.into()))
        }
    )*};
}

pub(super) async fn renew_token(
    State(app): State<App>,
    by: Support,
    Body(_): Body<RenewToken>,
) -> Result<Json<RawToken>> {
    renew(&app, &by).await
}

operations! {
    create_tenant(app, by, _call: CreateTenant) -> CreatedTenant { tenant::create(app, by) }
    create_tenant_alias(app, by, call: CreateTenantAlias) -> Empty { tenant::create_alias(app, by, call) }
    delete_tenant(app, by, call: DeleteTenant) -> Deleted { tenant::delete(app, by, call) }
    list_tenants(app, _by, call: ListTenants) -> Page<dev::Tenant> { tenant::list(app, None, &call.paging) }
    set_tenant_quotas(app, by, call: SetTenantQuotas) -> Empty { quota::set(app, by, call) }
    get_tenant_quotas(app, by, call: GetTenantQuotas) -> TenantQuotas { quota::get(app, by, &call.tenant) }
    list_usage(app, by, call: ListUsage) -> Page<UsageRecord> {
        quota::list_usage(app, by, &call.tenant, &call.paging)
    }
    create_project(app, by, call: CreateProject) -> CreatedProject {
        project::create(app, by, dev::CreateProject { tenant: call.tenant })
    }
    create_project_alias(app, by, call: CreateProjectAlias) -> Empty {
        project::create_alias(app, by, dev::CreateProjectAlias {
            tenant: call.tenant,
            project_id: call.project_id,
            alias: call.alias,
        })
    }
    delete_project(app, by, call: DeleteProject) -> Deleted {
        project::delete(app, by, dev::DeleteProject { tenant: call.tenant, project: call.project })
    }
    list_projects(app, by, call: ListProjects) -> Page<dev::Project> {
        project::list(app, by, dev::ListProjects { tenant: call.tenant, paging: call.paging })
    }
    create_stage(app, by, call: CreateStage) -> dev::CreatedStage {
        stage::create(app, by, dev::CreateStage { tenant: call.tenant, project: call.project })
    }
    create_stage_alias(app, by, call: CreateStageAlias) -> Empty {
        stage::create_alias(app, by, dev::CreateStageAlias {
            tenant: call.tenant,
            stage_id: call.stage_id,
            alias: call.alias,
        })
    }
    delete_stage(app, by, call: DeleteStage) -> Deleted {
        stage::delete(app, by, dev::DeleteStage { tenant: call.tenant, project: call.project, stage: call.stage })
    }
    list_stages(app, by, call: ListStages) -> Page<dev::Stage> {
        stage::list(app, by, dev::ListStages { tenant: call.tenant, project: call.project, paging: call.paging })
    }
    create_developer(app, by, _call: CreateDeveloper) -> CreatedUser {
        account::create(app, Some(by), Role::Developer)
    }
    create_developer_alias(app, by, call: CreateDeveloperAlias) -> Empty {
        account::create_developer_alias(app, by, call)
    }
    reset_developer_password(app, by, call: ResetDeveloperPassword) -> CreatedUser {
        account::reset_password(app, by, call.user_id, Some(Role::Developer))
    }
    delete_developer(app, by, call: DeleteDeveloper) -> Deleted { account::delete_developer(app, by, call.user_id) }
    list_developers(app, _by, call: ListDevelopers) -> Page<User> {
        account::list(app, Some(Role::Developer), &call.paging)
    }
    create_tenant_permissions(app, by, call: CreateTenantPermissions) -> CreatedPermissions<TenantPermission> {
        permission::create(app, by, Wanted {
            tenant: &call.tenant,
            project: None,
            stage: None,
            user: call.user_id,
            permissions: call.permissions_to_create,
        }, TenantPermission::as_str)
    }
    delete_tenant_permissions(app, by, call: DeleteTenantPermissions) -> DeletedPermissions<TenantPermission> {
        permission::delete(app, by, Wanted {
            tenant: &call.tenant,
            project: None,
            stage: None,
            user: call.user_id,
            permissions: call.permissions_to_delete,
        }, TenantPermission::as_str)
    }
    create_project_permissions(app, by, call: CreateProjectPermissions) -> CreatedPermissions<ProjectPermission> {
        permission::create(app, by, Wanted {
            tenant: &call.tenant,
            project: Some(&call.project),
            stage: None,
            user: call.user_id,
            permissions: call.permissions_to_create,
        }, ProjectPermission::as_str)
    }
    delete_project_permissions(app, by, call: DeleteProjectPermissions) -> DeletedPermissions<ProjectPermission> {
        permission::delete(app, by, Wanted {
            tenant: &call.tenant,
            project: Some(&call.project),
            stage: None,
            user: call.user_id,
            permissions: call.permissions_to_delete,
        }, ProjectPermission::as_str)
    }
    create_stage_permissions(app, by, call: CreateStagePermissions) -> CreatedPermissions<StagePermission> {
        permission::create(app, by, Wanted {
            tenant: &call.tenant,
            project: Some(&call.project),
            stage: Some(&call.stage),
            user: call.user_id,
            permissions: call.permissions_to_create,
        }, StagePermission::as_str)
    }
    delete_stage_permissions(app, by, call: DeleteStagePermissions) -> DeletedPermissions<StagePermission> {
        permission::delete(app, by, Wanted {
            tenant: &call.tenant,
            project: Some(&call.project),
            stage: Some(&call.stage),
            user: call.user_id,
            permissions: call.permissions_to_delete,
        }, StagePermission::as_str)
    }
    list_permissions(app, by, call: ListPermissions) -> Page<dev::PermissionRow> {
        permission::list(app, by, dev::ListPermissions {
            tenant: call.tenant,
            project: call.project,
            stage: call.stage,
            paging: call.paging,
        })
    }
}
