//! What a developer does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use omgservers_protocol::developer::{ImageQualifier, Scope, Timestamp};
use omgservers_protocol::id::{ApiKeyId, LobbyId, MatchmakerId, ProjectId, StageId, VersionId};
use omgservers_protocol::text::Text;

use super::support::OnSomething;
use super::word::{id, image_qualifier, scope, text};
use super::{Deletion, Deployment, Listing, Login, Project, Stage, Tenant, Version};
use crate::first_lobby::WITHIN;

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Developer {
    #[command(flatten)]
    Login(Login),
    /// Make tenant, project, stage and developer as far as they are missing, with the stored login of support
    Init(Init),
    /// Run a game on a stage: create a version with its image, deploy it, and wait for the first lobby
    Deploy(Deploy),
    /// Run a program of this machine as the game servers of a stage, and again whenever it changes
    ///
    /// It gets your environment and the variables of the stage, but not the stage's secrets: set them in your environment.
    Run(Run),
    #[command(flatten)]
    Key(KeyCommand),
    #[command(flatten)]
    Project(ProjectCommand),
    #[command(flatten)]
    Stage(StageCommand),
    #[command(flatten)]
    Version(VersionCommand),
    #[command(flatten)]
    Deployment(DeploymentCommand),
}

/// Keys of programs.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum KeyCommand {
    /// Create a key for a program that acts for you
    CreateApiKey(CreateApiKey),
    /// Act by a key from now on
    UseApiKey {
        /// `-` reads it from stdin
        key: String,
    },
    /// End a key
    DeleteApiKey {
        /// Id of the key
        #[arg(value_parser = id::<ApiKeyId>)]
        id: ApiKeyId,
    },
    /// List your keys
    ListApiKeys(Listing),
}

/// Tenants and projects.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum ProjectCommand {
    /// List the tenants in which you may do something
    ListTenants(Listing),
    /// Show a tenant with its projects
    GetTenantDetails(Tenant),
    /// Show what a tenant may have, and what it has
    GetTenantQuotas(Tenant),
    /// List what a tenant used, day by day, the newest first
    ListUsage {
        #[command(flatten)]
        of: Tenant,
        #[command(flatten)]
        listing: Listing,
    },
    /// List who changed what in a tenant, the newest first
    ListAuditRecords {
        #[command(flatten)]
        of: Tenant,
        #[command(flatten)]
        listing: Listing,
    },
    /// List who may do what with a tenant, or with one of its projects or stages
    ListPermissions(OnSomething),
    /// Create a project with its first stage
    CreateProject(Tenant),
    /// Give a project a name
    CreateProjectAlias {
        #[command(flatten)]
        of: Tenant,
        /// Id of the project
        #[arg(value_parser = id::<ProjectId>)]
        project_id: ProjectId,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Show a project with its stages and versions
    GetProjectDetails(Project),
    /// Delete a project and everything in it
    DeleteProject(Deletion<Project>),
    /// List the projects of a tenant
    ListProjects {
        #[command(flatten)]
        of: Tenant,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Stages.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum StageCommand {
    /// Create a further stage
    CreateStage(Project),
    /// Give a stage a name
    CreateStageAlias {
        #[command(flatten)]
        of: Tenant,
        /// Id of the stage
        #[arg(value_parser = id::<StageId>)]
        stage_id: StageId,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Show a stage with its deployments
    GetStageDetails(Stage),
    /// Delete a stage and its deployments
    DeleteStage(Deletion<Stage>),
    /// List the stages of a project
    ListStages {
        #[command(flatten)]
        of: Project,
        #[command(flatten)]
        listing: Listing,
    },
    /// Close a stage for new players and matches; what is played goes on
    SetStageMaintenance {
        #[command(flatten)]
        of: Stage,
        /// What players read
        message: String,
    },
    /// Open it again
    ClearStageMaintenance(Stage),
    /// Set an environment variable of a stage's game servers, for those that start from now on
    SetStageVariable {
        #[command(flatten)]
        of: Stage,
        /// Letters, digits and _
        #[arg(value_parser = text)]
        name: Text,
        /// `-` reads it from stdin, to its end
        value: String,
        /// Never show it again
        #[arg(long)]
        secret: bool,
    },
    /// Delete such a variable
    DeleteStageVariable {
        #[command(flatten)]
        of: Stage,
        /// Its name
        #[arg(value_parser = text)]
        name: Text,
    },
    /// List such variables
    ListStageVariables {
        #[command(flatten)]
        of: Stage,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Versions with their files and images.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum VersionCommand {
    /// Create a version from its config
    CreateVersion {
        #[command(flatten)]
        of: Project,
        #[command(flatten)]
        config: Config,
    },
    /// Send the files of a folder that a version's image is to be built from
    ///
    /// All files below the folder are sent, except those that its .dockerignore names, links that lead out of it, and what
    /// omgctl and Git keep for themselves.
    UploadFilesArchive {
        #[command(flatten)]
        of: Version,
        /// The folder
        files_directory_path: PathBuf,
    },
    /// List what was sent for a version
    ListFilesArchives {
        #[command(flatten)]
        of: Version,
        #[command(flatten)]
        listing: Listing,
    },
    /// Say which image a version runs
    CreateImage {
        #[command(flatten)]
        of: Project,
        /// Id of the version
        #[arg(value_parser = id::<VersionId>)]
        version: VersionId,
        /// UNIVERSAL, LOBBY or MATCH
        #[arg(value_parser = image_qualifier)]
        qualifier: ImageQualifier,
        /// A reference that hosts can pull or hold already, or file:///…tar where the installation allows it
        image: String,
    },
    /// List the images of a version
    ListImages {
        #[command(flatten)]
        of: Version,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a version with its images
    GetVersionDetails(Version),
    /// Print the config of a version
    GetVersionConfig(Version),
    /// Delete a version
    DeleteVersion(Version),
    /// List the versions of a project
    ListVersions {
        #[command(flatten)]
        of: Project,
        #[command(flatten)]
        listing: Listing,
    },
}

/// Deployments with their lobbies and matches.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum DeploymentCommand {
    /// Run a version on a stage
    DeployVersion {
        #[command(flatten)]
        of: Stage,
        /// Id of the version
        #[arg(value_parser = id::<VersionId>)]
        version: VersionId,
        /// How the deployment is run, a JSON file; `-` reads it from stdin
        #[arg(long, visible_alias = "from", value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Show how a deployment is doing
    GetDeploymentDetails(Deployment),
    /// Print how a deployment is run
    GetDeploymentConfig(Deployment),
    /// End a deployment
    DeleteDeployment(Deployment),
    /// List the deployments of a stage
    ListDeployments {
        #[command(flatten)]
        of: Stage,
        /// Also those that were deleted or replaced, until they are forgotten
        #[arg(long)]
        history: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Start one more lobby now
    CreateLobbyRequest(Deployment),
    /// End a lobby
    DeleteLobby {
        /// Id of the lobby
        #[arg(value_parser = id::<LobbyId>)]
        lobby: LobbyId,
    },
    /// List the lobbies of a deployment
    ListLobbies {
        #[command(flatten)]
        of: Deployment,
        #[command(flatten)]
        listing: Listing,
    },
    /// Make a matchmaker for a deployment whose matchmaker was deleted
    CreateMatchmakerRequest(Deployment),
    /// End a matchmaker and its matches
    DeleteMatchmaker {
        /// Id of the matchmaker
        #[arg(value_parser = id::<MatchmakerId>)]
        matchmaker: MatchmakerId,
    },
    /// List the matches of a deployment
    ListMatches {
        #[command(flatten)]
        of: Deployment,
        #[command(flatten)]
        listing: Listing,
    },
    /// List who plays in a deployment, and where
    ListClients {
        #[command(flatten)]
        of: Deployment,
        #[command(flatten)]
        listing: Listing,
    },
}

/// The config of a version, in the place where it always was or by its option.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Config {
    /// A JSON file; `-` reads it from stdin
    config_path: Option<PathBuf>,
    /// The same
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl Config {
    pub(crate) fn path(&self) -> &Path {
        let path = self.config_path.as_deref().or(self.from.as_deref());
        path.expect("one of them is required")
    }
}

#[derive(Args)]
pub(crate) struct Init {
    /// The tenant's name
    #[arg(value_name = "TENANT", value_parser = text)]
    pub(crate) tenant: Text,
    /// The project's name
    #[arg(value_name = "PROJECT", value_parser = text)]
    pub(crate) project: Text,
    /// The stage's name
    #[arg(long, value_name = "NAME", default_value = "prod", value_parser = text)]
    pub(crate) stage: Text,
    /// Create a version too, from this JSON file; `-` reads it from stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Deploy {
    #[command(flatten)]
    pub(crate) of: Stage,
    /// Config of the version, a JSON file; `-` reads it from stdin
    #[arg(long, visible_alias = "from", value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// A reference that hosts can pull or hold already, or file:///…tar where the installation allows it
    #[arg(long)]
    pub(crate) image: String,
    /// How the deployment is run, a JSON file; `-` reads it from stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) deployment_config: Option<PathBuf>,
    /// How long the first lobby may take
    #[arg(long, value_name = "SECONDS", default_value_t = WITHIN.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) wait: u64,
    /// Do not wait for the first lobby
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
}

/// Arguments of the program stand behind `--`, so that one word before it is the program and four are a stage and the
/// program.
#[derive(Args)]
#[command(override_usage = "omgctl developer run [OPTIONS] [TENANT PROJECT STAGE] <PROGRAM> [-- <ARGUMENTS>...]")]
pub(crate) struct Run {
    /// The program; before it tenant, project and stage, by id or name, unless they are those that are stored
    #[arg(required = true, num_args = 1..=4, value_name = "PROGRAM")]
    pub(crate) words: Vec<OsString>,
    /// Deploy a new version with this config, a JSON file; `-` reads it from stdin
    #[arg(long, visible_alias = "from", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct CreateApiKey {
    #[command(flatten)]
    pub(crate) of: Tenant,
    /// What to call it
    #[arg(value_parser = text)]
    pub(crate) name: Text,
    /// READ, BUILD, DEPLOY or MANAGE; any number of them
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',', value_parser = scope)]
    pub(crate) scopes: Vec<Scope>,
    /// Only this project [default: the whole tenant]
    #[arg(long, value_parser = text)]
    pub(crate) project: Option<Text>,
    /// For how many days it is good, at most two years
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=731))]
    pub(crate) days: u16,
    /// Until when it is good, such as 2026-12-31T00:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "days")]
    pub(crate) expires: Option<Timestamp>,
}
