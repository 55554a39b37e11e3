//! What support may ask: it looks after tenants and developers.

use serde::{Deserialize, Serialize};

use crate::admin::User;
use crate::audit::{Quotas, TenantQuotas, UsageRecord};
use crate::call::{Deleted, Empty, Page, Paging, PasswordChange, RawToken, calls};
use crate::developer::{CreatedStage, PermissionRow, Project, Stage, Tenant};
use crate::id::{ProjectId, StageId, TenantId, UserId};
use crate::text::{self, Text};

calls!("support";
    CreateToken => RawToken, "create-token";
    RenewToken => RawToken, "renew-token";
    ChangePassword => Empty, "change-password";
    CreateTenant => CreatedTenant, "create-tenant";
    CreateTenantAlias => Empty, "create-tenant-alias";
    DeleteTenant => Deleted, "delete-tenant";
    ListTenants => Page<Tenant>, "list-tenants";
    SetTenantQuotas => Empty, "set-tenant-quotas";
    GetTenantQuotas => TenantQuotas, "get-tenant-quotas";
    ListUsage => Page<UsageRecord>, "list-usage";
    CreateProject => CreatedProject, "create-project";
    CreateProjectAlias => Empty, "create-project-alias";
    DeleteProject => Deleted, "delete-project";
    ListProjects => Page<Project>, "list-projects";
    CreateStage => CreatedStage, "create-stage";
    CreateStageAlias => Empty, "create-stage-alias";
    DeleteStage => Deleted, "delete-stage";
    ListStages => Page<Stage>, "list-stages";
    CreateDeveloper => CreatedUser, "create-developer";
    CreateDeveloperAlias => Empty, "create-developer-alias";
    ResetDeveloperPassword => CreatedUser, "reset-developer-password";
    DeleteDeveloper => Deleted, "delete-developer";
    ListDevelopers => Page<User>, "list-developers";
    CreateTenantPermissions => CreatedPermissions<TenantPermission>, "create-tenant-permissions";
    DeleteTenantPermissions => DeletedPermissions<TenantPermission>, "delete-tenant-permissions";
    CreateProjectPermissions => CreatedPermissions<ProjectPermission>, "create-project-permissions";
    DeleteProjectPermissions => DeletedPermissions<ProjectPermission>, "delete-project-permissions";
    CreateStagePermissions => CreatedPermissions<StagePermission>, "create-stage-permissions";
    DeleteStagePermissions => DeletedPermissions<StagePermission>, "delete-stage-permissions";
    ListPermissions => Page<PermissionRow>, "list-permissions";
);

/// Logs in by id or alias.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    #[serde(deserialize_with = "text::any")]
    pub user: Text,
    pub password: Text,
}

/// A fresh token for one that is about to expire.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewToken {}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct ChangePassword(pub PasswordChange);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateTenant {}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedTenant {
    pub id: TenantId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateTenantAlias {
    pub tenant_id: TenantId,
    pub alias: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteTenant {
    pub tenant: Text,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListTenants {
    #[serde(flatten)]
    pub paging: Paging,
}

/// Replaces all quotas of a tenant. What runs already goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SetTenantQuotas {
    pub tenant: Text,
    pub quotas: Quotas,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GetTenantQuotas {
    pub tenant: Text,
}

/// The newest day first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListUsage {
    pub tenant: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateProject {
    pub tenant: Text,
}

/// A new project comes with its first stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedProject {
    pub project_id: ProjectId,
    pub stage_id: StageId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateProjectAlias {
    pub tenant: Text,
    pub project_id: ProjectId,
    pub alias: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteProject {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListProjects {
    pub tenant: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateStage {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateStageAlias {
    pub tenant: Text,
    pub stage_id: StageId,
    pub alias: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteStage {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListStages {
    pub tenant: Text,
    pub project: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateDeveloper {}

/// A user and the password that is shown this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedUser {
    pub user_id: UserId,
    pub password: String,
}

/// A name that the developer can log in by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateDeveloperAlias {
    #[serde(alias = "developer_user_id")]
    pub user_id: UserId,
    pub alias: Text,
}

/// A new generated password for a developer who lost theirs. Their tokens are refused from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResetDeveloperPassword {
    pub user_id: UserId,
}

/// Their tokens and keys are refused from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteDeveloper {
    pub user_id: UserId,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListDevelopers {
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateTenantPermissions {
    pub tenant: Text,
    pub user_id: UserId,
    pub permissions_to_create: Vec<TenantPermission>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteTenantPermissions {
    pub tenant: Text,
    pub user_id: UserId,
    pub permissions_to_delete: Vec<TenantPermission>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateProjectPermissions {
    pub tenant: Text,
    pub project: Text,
    pub user_id: UserId,
    pub permissions_to_create: Vec<ProjectPermission>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteProjectPermissions {
    pub tenant: Text,
    pub project: Text,
    pub user_id: UserId,
    pub permissions_to_delete: Vec<ProjectPermission>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateStagePermissions {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    pub user_id: UserId,
    pub permissions_to_create: Vec<StagePermission>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteStagePermissions {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    pub user_id: UserId,
    pub permissions_to_delete: Vec<StagePermission>,
}

/// Those that the user did not have before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedPermissions<P> {
    pub created_permissions: Vec<P>,
}

/// Those that the user had before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeletedPermissions<P> {
    pub deleted_permissions: Vec<P>,
}

/// Who may do what with a tenant, or with one of its projects or stages.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListPermissions {
    pub tenant: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Text>,
    /// A stage of that project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Text>,
    #[serde(flatten)]
    pub paging: Paging,
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident { $($permission:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $name {
            $($permission),*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$permission),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$permission => $text),*
                }
            }
        }
    )*};
}

permissions!(
    /// What a developer may do with a tenant.
    TenantPermission {
        ProjectManager = "PROJECT_MANAGER",
        TenantViewer = "TENANT_VIEWER",
    }
    /// What a developer may do with a project.
    ProjectPermission {
        StageManager = "STAGE_MANAGER",
        VersionManager = "VERSION_MANAGER",
        ProjectViewer = "PROJECT_VIEWER",
    }
    /// What a developer may do with a stage.
    StagePermission {
        DeploymentManager = "DEPLOYMENT_MANAGER",
        StageViewer = "STAGE_VIEWER",
    }
);
