//! What support may ask: it looks after tenants and developers.

use serde::{Deserialize, Serialize};

use crate::call::{Deleted, Empty, RawToken, calls};
use crate::id::{ProjectId, StageId, TenantId, UserId};
use crate::text::Text;

calls!("support";
    CreateToken => RawToken, "create-token";
    CreateTenant => CreatedTenant, "create-tenant";
    CreateTenantAlias => Empty, "create-tenant-alias";
    DeleteTenant => Deleted, "delete-tenant";
    CreateDeveloper => CreatedUser, "create-developer";
    CreateTenantPermissions => CreatedPermissions<TenantPermission>, "create-tenant-permissions";
);

/// Logs in by id or alias.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateToken {
    pub user: Text,
    pub password: Text,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CreateTenant {}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedTenant {
    pub id: TenantId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateTenantAlias {
    pub tenant_id: TenantId,
    pub alias: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeleteTenant {
    pub tenant: Text,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CreateDeveloper {}

/// A user and the password that is shown this once.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedUser {
    pub user_id: UserId,
    pub password: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateTenantPermissions {
    pub tenant: Text,
    pub user_id: UserId,
    pub permissions_to_create: Vec<TenantPermission>,
}

/// Those that the user did not have before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedPermissions<P> {
    pub created_permissions: Vec<P>,
}

/// What a developer may do with a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TenantPermission {
    ProjectManager,
    TenantViewer,
}

impl TenantPermission {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProjectManager => "PROJECT_MANAGER",
            Self::TenantViewer => "TENANT_VIEWER",
        }
    }
}

/// A new project comes with its first stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedProject {
    pub project_id: ProjectId,
    pub stage_id: StageId,
}
