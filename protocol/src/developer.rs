//! What a developer may ask: projects, stages, versions, images, deployments.

use serde::{Deserialize, Serialize};

use crate::audit::{AuditRecord, TenantQuotas, UsageRecord};
use crate::call::{Created, Deleted, Empty, Page, Paging, PasswordChange, RawToken, calls};
use crate::config::{DeploymentConfig, VersionConfig};
use crate::id::{
    AliasId, ApiKeyId, ClientId, DeploymentId, FilesArchiveId, ImageId, LobbyId, LocalRunId, MatchmakerId,
    PermissionId, ProjectId, RuntimeId, StageId, TenantId, UserId, VersionId,
};
use crate::support::CreatedProject;
use crate::text::{Secret, Text};

calls!("developer";
    CreateToken => RawToken, "create-token";
    RenewToken => RawToken, "renew-token";
    ChangePassword => Empty, "change-password";
    CreateApiKey => CreatedApiKey, "create-api-key";
    DeleteApiKey => Deleted, "delete-api-key";
    ListApiKeys => Page<ApiKey>, "list-api-keys";
    ListTenants => Page<Tenant>, "list-tenants";
    GetTenantQuotas => TenantQuotas, "get-tenant-quotas";
    ListUsage => Page<UsageRecord>, "list-usage";
    ListAuditRecords => Page<AuditRecord>, "list-audit-records";
    ListPermissions => Page<PermissionRow>, "list-permissions";
    GetTenantDetails => Details<TenantDetails>, "get-tenant-details";
    CreateProject => CreatedProject, "create-project";
    CreateProjectAlias => Empty, "create-project-alias";
    GetProjectDetails => Details<ProjectDetails>, "get-project-details";
    DeleteProject => Deleted, "delete-project";
    ListProjects => Page<Project>, "list-projects";
    CreateStage => CreatedStage, "create-stage";
    CreateStageAlias => Empty, "create-stage-alias";
    GetStageDetails => Details<StageDetails>, "get-stage-details";
    DeleteStage => Deleted, "delete-stage";
    ListStages => Page<Stage>, "list-stages";
    SetStageMaintenance => Empty, "set-stage-maintenance";
    SetStageVariable => Created, "set-stage-variable";
    DeleteStageVariable => Deleted, "delete-stage-variable";
    ListStageVariables => Page<StageVariable>, "list-stage-variables";
    StartLocalRun => StartedLocalRun, "start-local-run";
    InterchangeLocalRun => InterchangedLocalRun, "interchange-local-run";
    StopLocalRun => Deleted, "stop-local-run";
    CreateVersion => CreatedVersion, "create-version";
    GetVersionDetails => Details<VersionDetails>, "get-version-details";
    GetVersionConfig => ReadVersionConfig, "get-version-config";
    DeleteVersion => Deleted, "delete-version";
    ListVersions => Page<Version>, "list-versions";
    UploadFilesArchive => UploadedFilesArchive, "upload-files-archive";
    ListFilesArchives => Page<FilesArchive>, "list-files-archives";
    CreateImage => Created, "create-image";
    ListImages => Page<Image>, "list-images";
    DeployVersion => CreatedDeployment, "deploy-version";
    GetDeploymentDetails => Details<DeploymentDetails>, "get-deployment-details";
    GetDeploymentConfig => ReadDeploymentConfig, "get-deployment-config";
    DeleteDeployment => Deleted, "delete-deployment";
    ListDeployments => Page<Deployment>, "list-deployments";
    CreateLobbyRequest => Empty, "create-lobby-request";
    DeleteLobby => Deleted, "delete-lobby";
    ListLobbies => Page<VenueStatus>, "list-lobbies";
    CreateMatchmakerRequest => Empty, "create-matchmaker-request";
    DeleteMatchmaker => Deleted, "delete-matchmaker";
    ListMatches => Page<VenueStatus>, "list-matches";
    ListClients => Page<ClientStatus>, "list-clients";
);

/// Logs in by id, or by the alias that support gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    #[serde(alias = "user")]
    pub user_id: Text,
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

/// A key for a program that acts for the caller: it may do what the caller may, within its scopes and its tenant or project.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateApiKey {
    pub tenant: Text,
    /// Nothing said: the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Text>,
    /// For people.
    pub name: Text,
    pub scopes: Vec<Scope>,
    /// From when on it is refused, such as `2026-12-31T00:00:00Z`; at most two years away.
    pub expires: Timestamp,
}

/// What a key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Scope {
    /// To look: details, lists, configs.
    Read,
    /// Versions, their archives and images.
    Build,
    /// Deployments, variables, maintenance.
    Deploy,
    /// Projects and stages.
    Manage,
}

impl Scope {
    pub const ALL: &'static [Self] = &[Self::Read, Self::Build, Self::Deploy, Self::Manage];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Build => "BUILD",
            Self::Deploy => "DEPLOY",
            Self::Manage => "MANAGE",
        }
    }
}

/// The key is shown this once. It is sent like a token: `Authorization: Bearer <api_key>`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedApiKey {
    pub id: ApiKeyId,
    pub api_key: Secret,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteApiKey {
    pub id: ApiKeyId,
}

/// The caller's own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListApiKeys {
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub name: String,
    pub tenant_id: TenantId,
    pub project_id: Option<ProjectId>,
    pub scopes: Vec<Scope>,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// Those in which the caller may do something.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListTenants {
    #[serde(flatten)]
    pub paging: Paging,
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

/// What was changed in the tenant, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListAuditRecords {
    pub tenant: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

/// Who may do what with the tenant, or with one of its projects or stages.
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

/// A permission that a user has on a tenant, project or stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PermissionRow {
    pub id: PermissionId,
    pub created: Timestamp,
    pub user_id: UserId,
    /// By which the developer logs in, if there is one.
    #[serde(default)]
    pub user_alias: Option<String>,
    pub permission: String,
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
pub struct ListStages {
    pub tenant: Text,
    pub project: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

/// Closes a stage for new players and matches, who read the message, or opens it again. What is played goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SetStageMaintenance {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    /// For players, at most 500 characters. `null`: open again.
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Maintenance {
    pub message: String,
    pub since: Timestamp,
}

/// An environment variable of the stage's runtimes. It counts for those that start from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SetStageVariable {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    /// Letters, digits and `_`; not `OMGSERVERS_…`.
    pub name: Text,
    /// At most 8 KiB.
    pub value: Secret,
    /// A secret is stored encrypted and never read back.
    #[serde(default)]
    pub secret: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteStageVariable {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    pub name: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListStageVariables {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StageVariable {
    pub name: String,
    /// `null` when it is a secret.
    pub value: Option<String>,
    pub secret: bool,
    pub modified: Timestamp,
}

/// From now on the stage's runtimes run where the caller is, as long as the caller keeps asking.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StartLocalRun {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StartedLocalRun {
    pub run_id: LocalRunId,
}

/// Says what runs here and asks what should.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterchangeLocalRun {
    pub tenant: Text,
    pub run_id: LocalRunId,
    /// What runs.
    #[serde(default)]
    pub running: Vec<LocalStart>,
    /// What ended by itself since the last call.
    #[serde(default)]
    pub ended: Vec<LocalEnd>,
    /// The program has changed: everything is to be started anew.
    #[serde(default)]
    pub restart: bool,
    /// The reply is held so long, at most 20 000, until something else should run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// One start of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LocalStart {
    pub runtime_id: RuntimeId,
    pub generation: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LocalEnd {
    pub runtime_id: RuntimeId,
    pub generation: i64,
    /// Such as `exited with code 1`.
    pub detail: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterchangedLocalRun {
    /// Everything that should run. What is not in it should end.
    pub runtimes: Vec<LocalRuntime>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LocalRuntime {
    pub runtime_id: RuntimeId,
    pub generation: i64,
    /// `LOBBY` or `MATCH`.
    pub qualifier: String,
    /// The environment of a start that is new; it carries the runtime's password and is told once.
    pub environment: Option<std::collections::BTreeMap<String, Secret>>,
}

/// The stage's runtimes go back to the hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StopLocalRun {
    pub tenant: Text,
    pub run_id: LocalRunId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GetTenantDetails {
    pub tenant: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateProject {
    pub tenant: Text,
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
pub struct GetProjectDetails {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteProject {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateStage {
    pub tenant: Text,
    pub project: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedStage {
    pub stage_id: StageId,
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
pub struct GetStageDetails {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
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
pub struct CreateVersion {
    pub tenant: Text,
    pub project: Text,
    pub config: VersionConfig,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedVersion {
    pub version_id: VersionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GetVersionDetails {
    pub tenant: Text,
    pub version_id: VersionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GetVersionConfig {
    pub tenant: Text,
    pub version_id: VersionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadVersionConfig {
    pub config: VersionConfig,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListVersions {
    pub tenant: Text,
    pub project: Text,
    #[serde(flatten)]
    pub paging: Paging,
}

/// Not JSON but a form (multipart/form-data) with these two fields and the archive as the file part `version.zip`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadFilesArchive {
    pub tenant: Text,
    #[serde(rename = "tenantVersionId")]
    pub version_id: VersionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadedFilesArchive {
    pub files_archive_id: FilesArchiveId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListFilesArchives {
    pub tenant: Text,
    pub version_id: VersionId,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FilesArchive {
    pub id: FilesArchiveId,
    pub tenant_id: TenantId,
    pub version_id: VersionId,
    pub created: Timestamp,
    /// Of the archive as it was uploaded.
    pub bytes: i64,
    pub files: i32,
    pub sha256: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListImages {
    pub tenant: Text,
    pub version_id: VersionId,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteVersion {
    pub tenant: Text,
    /// Old scripts say `version_id`.
    #[serde(alias = "version_id")]
    pub id: VersionId,
}

/// Names the image of a version: a reference that hosts can pull or hold already, or `file:///…tar` where enabled.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateImage {
    pub tenant: Text,
    pub project: Text,
    pub version: VersionId,
    pub qualifier: ImageQualifier,
    pub image: String,
}

/// Which runtimes an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeployVersion {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    pub version_id: VersionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<DeploymentConfig>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedDeployment {
    pub deployment_id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GetDeploymentDetails {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteDeployment {
    pub tenant: Text,
    #[serde(alias = "deployment_id")]
    pub id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GetDeploymentConfig {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadDeploymentConfig {
    pub config: DeploymentConfig,
}

/// Those of a stage that are alive, or also those before them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListDeployments {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
    /// With those that are deleted and not forgotten yet.
    #[serde(default)]
    pub history: bool,
    #[serde(flatten)]
    pub paging: Paging,
}

/// One more lobby, now. It goes again when nobody comes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateLobbyRequest {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteLobby {
    pub lobby_id: LobbyId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListLobbies {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
    #[serde(flatten)]
    pub paging: Paging,
}

/// A deployment has one matchmaker: this makes a new one for a deployment whose matchmaker was deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateMatchmakerRequest {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
}

/// Ends its matches; their players go back to a lobby.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteMatchmaker {
    pub matchmaker_id: MatchmakerId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListMatches {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
    #[serde(flatten)]
    pub paging: Paging,
}

/// Who plays now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListClients {
    pub tenant: Text,
    pub deployment_id: DeploymentId,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Details<D> {
    pub details: D,
}

impl<D> From<D> for Details<D> {
    fn from(details: D) -> Self {
        Self { details }
    }
}

/// A moment as `2025-01-23T10:20:30.123Z`; the fraction is left out when it is zero.
pub type Timestamp = String;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alias {
    pub id: AliasId,
    pub created: Timestamp,
    pub qualifier: String,
    pub entity_id: String,
    pub value: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantDetails {
    pub tenant: Tenant,
    pub permissions: Vec<TenantPermissionRow>,
    pub projects: Vec<Project>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tenant {
    pub id: TenantId,
    pub created: Timestamp,
    pub aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantPermissionRow {
    pub id: PermissionId,
    pub tenant_id: TenantId,
    pub created: Timestamp,
    pub user_id: UserId,
    pub permission: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub created: Timestamp,
    pub aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProjectDetails {
    pub project: Project,
    pub permissions: Vec<ProjectPermissionRow>,
    pub stages: Vec<Stage>,
    pub versions: Vec<VersionOfProject>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProjectPermissionRow {
    pub id: PermissionId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub created: Timestamp,
    pub user_id: UserId,
    pub permission: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionOfProject {
    pub id: VersionId,
    pub created: Timestamp,
    pub project_id: ProjectId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stage {
    pub id: StageId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub created: Timestamp,
    pub aliases: Vec<Alias>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StageDetails {
    pub stage: Stage,
    pub permissions: Vec<StagePermissionRow>,
    pub deployments: Vec<Deployment>,
    /// Set while the stage is closed for new players. Old clients do not look at it.
    #[serde(default)]
    pub maintenance: Option<Maintenance>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StagePermissionRow {
    pub id: PermissionId,
    pub tenant_id: TenantId,
    pub stage_id: StageId,
    pub created: Timestamp,
    pub user_id: UserId,
    pub permission: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deployment {
    pub id: DeploymentId,
    pub tenant_id: TenantId,
    pub stage_id: StageId,
    pub version_id: VersionId,
    pub created: Timestamp,
    /// When it was deleted, or a newer one took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionDetails {
    pub version: Version,
    /// Always empty until there is a builder.
    pub build_requests: Vec<serde_json::Value>,
    pub images: Vec<Image>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Version {
    pub id: VersionId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub created: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Image {
    pub id: ImageId,
    pub tenant_id: TenantId,
    pub version_id: VersionId,
    pub created: Timestamp,
    pub qualifier: String,
    pub image_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeploymentDetails {
    pub deployment: Deployment,
    pub lobby_refs: Vec<LobbyRefRow>,
    pub matchmaker_refs: Vec<MatchmakerRefRow>,
    /// How it is doing. Old clients do not look at it.
    #[serde(default)]
    pub venues: Vec<VenueStatus>,
    /// Why nothing new is started for a while, if that is so.
    #[serde(default)]
    pub failure: Option<DeploymentFailure>,
}

/// What happened to the last lobbies and matches of a deployment that did not start, or not for long.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeploymentFailure {
    pub reason: String,
    /// How many failed one after the other.
    pub failures: u32,
    /// When the next one is tried.
    pub retry_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LobbyRefRow {
    pub id: LobbyId,
    pub created: Timestamp,
    pub lobby_id: LobbyId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MatchmakerRefRow {
    pub id: MatchmakerId,
    pub created: Timestamp,
    pub matchmaker_id: MatchmakerId,
}

/// A lobby or a match of a deployment, with the state of its runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VenueStatus {
    pub id: LobbyId,
    pub qualifier: String,
    pub mode: Option<String>,
    pub state: String,
    pub runtime_id: RuntimeId,
    pub players: u32,
    pub reason: Option<String>,
    pub created: Timestamp,
}

/// A player in a deployment: where, and what for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClientStatus {
    pub client_id: ClientId,
    pub user_id: UserId,
    /// The lobby or match. Without one the player waits for a lobby.
    pub venue_id: Option<LobbyId>,
    /// Of the venue: `LOBBY` or `MATCH`.
    pub qualifier: Option<String>,
    /// Of the match.
    pub mode: Option<String>,
    /// Within the match.
    pub group: Option<String>,
    /// The mode that the player waits for a match of.
    pub wanted_mode: Option<String>,
}
