//! What a developer may ask: projects, stages, versions, images, deployments.

use serde::{Deserialize, Serialize};

use crate::call::{Deleted, Empty, RawToken, calls};
use crate::config::{DeploymentConfig, VersionConfig};
use crate::id::{
    AliasId, DeploymentId, ImageId, LobbyId, MatchmakerId, PermissionId, ProjectId, StageId, TenantId, UserId,
    VersionId,
};
use crate::support::CreatedProject;
use crate::text::Text;

calls!("developer";
    CreateToken => RawToken, "create-token";
    GetTenantDetails => Details<TenantDetails>, "get-tenant-details";
    CreateProject => CreatedProject, "create-project";
    CreateProjectAlias => Empty, "create-project-alias";
    GetProjectDetails => Details<ProjectDetails>, "get-project-details";
    DeleteProject => Deleted, "delete-project";
    CreateStage => CreatedStage, "create-stage";
    CreateStageAlias => Empty, "create-stage-alias";
    GetStageDetails => Details<StageDetails>, "get-stage-details";
    DeleteStage => Deleted, "delete-stage";
    CreateVersion => CreatedVersion, "create-version";
    GetVersionDetails => Details<VersionDetails>, "get-version-details";
    DeleteVersion => Deleted, "delete-version";
    CreateImage => Created, "create-image";
    DeployVersion => CreatedDeployment, "deploy-version";
    GetDeploymentDetails => Details<DeploymentDetails>, "get-deployment-details";
    DeleteDeployment => Deleted, "delete-deployment";
);

/// Logs in by id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateToken {
    pub user_id: UserId,
    pub password: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetTenantDetails {
    pub tenant: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateProject {
    pub tenant: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateProjectAlias {
    pub tenant: Text,
    pub project_id: ProjectId,
    pub alias: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetProjectDetails {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeleteProject {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateStage {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedStage {
    pub stage_id: StageId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateStageAlias {
    pub tenant: Text,
    pub stage_id: StageId,
    pub alias: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetStageDetails {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeleteStage {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateVersion {
    pub tenant: Text,
    pub project: Text,
    pub config: VersionConfig,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedVersion {
    pub version_id: VersionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetVersionDetails {
    pub tenant: Text,
    pub version_id: VersionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeleteVersion {
    pub tenant: Text,
    /// Old scripts say `version_id`.
    #[serde(alias = "version_id")]
    pub id: VersionId,
}

/// Names the image of a version: a reference that hosts can pull or hold already, or `file:///…tar` where enabled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateImage {
    pub tenant: Text,
    pub project: Text,
    pub version: VersionId,
    pub qualifier: ImageQualifier,
    pub image: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Created {
    pub created: bool,
}

/// Which runtimes an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ImageQualifier {
    Universal,
    Lobby,
    Match,
}

impl ImageQualifier {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Universal => "UNIVERSAL",
            Self::Lobby => "LOBBY",
            Self::Match => "MATCH",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeployVersion {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    pub version_id: VersionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<DeploymentConfig>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedDeployment {
    pub deployment_id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetDeploymentDetails {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeleteDeployment {
    pub tenant: Text,
    #[serde(alias = "deployment_id")]
    pub id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Details<D> {
    pub details: D,
}

/// A moment as `2025-01-23T10:20:30.123Z`; the fraction is left out when it is zero.
pub type Timestamp = String;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Alias {
    pub id: AliasId,
    pub created: Timestamp,
    pub qualifier: String,
    pub entity_id: String,
    pub value: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantDetails {
    pub tenant: Tenant,
    pub permissions: Vec<TenantPermissionRow>,
    pub projects: Vec<Project>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    pub created: Timestamp,
    pub aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantPermissionRow {
    pub id: PermissionId,
    pub tenant_id: TenantId,
    pub created: Timestamp,
    pub user_id: UserId,
    pub permission: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub created: Timestamp,
    pub aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProjectDetails {
    pub project: Project,
    pub permissions: Vec<ProjectPermissionRow>,
    pub stages: Vec<Stage>,
    pub versions: Vec<VersionOfProject>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProjectPermissionRow {
    pub id: PermissionId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub created: Timestamp,
    pub user_id: UserId,
    pub permission: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VersionOfProject {
    pub id: VersionId,
    pub created: Timestamp,
    pub project_id: ProjectId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    pub id: StageId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub created: Timestamp,
    pub aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StageDetails {
    pub stage: Stage,
    pub permissions: Vec<StagePermissionRow>,
    pub deployments: Vec<Deployment>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StagePermissionRow {
    pub id: PermissionId,
    pub tenant_id: TenantId,
    pub stage_id: StageId,
    pub created: Timestamp,
    pub user_id: UserId,
    pub permission: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deployment {
    pub id: DeploymentId,
    pub tenant_id: TenantId,
    pub stage_id: StageId,
    pub version_id: VersionId,
    pub created: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VersionDetails {
    pub version: Version,
    /// Always empty until there is a builder.
    pub build_requests: Vec<serde_json::Value>,
    pub images: Vec<Image>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Version {
    pub id: VersionId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub created: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Image {
    pub id: ImageId,
    pub tenant_id: TenantId,
    pub version_id: VersionId,
    pub created: Timestamp,
    pub qualifier: String,
    pub image_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeploymentDetails {
    pub deployment: Deployment,
    pub lobby_refs: Vec<LobbyRefRow>,
    pub matchmaker_refs: Vec<MatchmakerRefRow>,
    /// How it is doing. Old clients do not look at it.
    #[serde(default)]
    pub venues: Vec<VenueStatus>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LobbyRefRow {
    pub id: LobbyId,
    pub created: Timestamp,
    pub lobby_id: LobbyId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MatchmakerRefRow {
    pub id: MatchmakerId,
    pub created: Timestamp,
    pub matchmaker_id: MatchmakerId,
}

/// A lobby or a match of a deployment, with the state of its runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VenueStatus {
    pub id: LobbyId,
    pub qualifier: String,
    pub mode: Option<String>,
    pub state: String,
    pub runtime_id: crate::id::RuntimeId,
    pub players: u32,
    pub reason: Option<String>,
    pub created: Timestamp,
}
