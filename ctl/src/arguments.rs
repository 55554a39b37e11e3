//! What may be written on the command line. Names are those of the old script; kebab-case spellings work too.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use omgservers_protocol::developer::ImageQualifier;
use omgservers_protocol::id::{DeploymentId, ProjectId, StageId, TenantId, UserId, VersionId};
use omgservers_protocol::support::TenantPermission;
use omgservers_protocol::text::{TEXT_CONSTRAINT, Text};

use crate::up::{Down, Up};

/// The command line of OMGSERVERS
///
/// Exit codes: 0 done, 1 refused, 2 wrong usage or no answer.
#[derive(Parser)]
#[command(name = "omgctl", version, arg_required_else_help = true, max_term_width = 120)]
pub(crate) struct Arguments {
    /// How results are printed: for people, or as JSON [default: text]
    #[arg(long = "output", value_name = "FORMAT", value_enum)]
    format: Option<Format>,

    /// Where addresses, credentials and the log of requests are kept
    #[arg(
        long,
        value_name = "DIR",
        env = "OMGSERVERSCTL_DIRECTORY",
        hide_env_values = true,
        default_value = ".omgserversctl"
    )]
    pub(crate) directory: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// What was asked for, before or after the group's name.
    pub(crate) fn format(&self) -> Format {
        let inner = match &self.command {
            Command::Environment(group) => group.format,
            Command::Admin(group) => group.format,
            Command::Support(group) => group.format,
            Command::Developer(group) => group.format,
            Command::Up(group) => group.format,
            Command::Down(group) => group.format,
            Command::Image(_) | Command::Logs => None,
        };
        inner.or(self.format).unwrap_or(Format::Text)
    }
}

/// Sentences and tables for people, or the reply of the service.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Which installation is talked to
    Environment(Group<Environment>),
    /// What an admin does
    Admin(Group<Admin>),
    /// What support does: tenants and developers
    Support(Group<Support>),
    /// What a developer does: projects, stages, versions, deployments
    Developer(Group<Developer>),
    /// Images of game servers
    #[command(subcommand)]
    Image(Image),
    /// Run a whole installation on this machine
    Up(Box<WithFormat<Up>>),
    /// Stop what `up` runs
    Down(WithFormat<Down>),
    /// Print the requests made so far, without secrets
    Logs,
}

/// A group of commands. `--output` belongs to the groups and not to the root, because `image pack` has its own.
#[derive(Args)]
pub(crate) struct Group<C: Subcommand> {
    /// How results are printed: for people, or as JSON [default: text]
    #[arg(long = "output", value_name = "FORMAT", value_enum, global = true)]
    format: Option<Format>,
    #[command(subcommand)]
    pub(crate) command: C,
}

/// One command with `--output`.
#[derive(Args)]
pub(crate) struct WithFormat<C: Args> {
    /// How results are printed: for people, or as JSON [default: text]
    #[arg(long = "output", value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    pub(crate) command: C,
}

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Environment {
    /// Forget everything that is stored
    Reset,
    /// Print what is stored, secrets included
    #[command(alias = "print-current")]
    PrintCurrent,
    /// Print one value and nothing else, for scripts
    #[command(alias = "print-variable")]
    PrintVariable {
        /// Such as TENANT or DEVELOPER_TOKEN
        variable: String,
    },
    /// Talk to an installation by its address
    #[command(name = "useEnvironment", alias = "use-environment")]
    Use {
        /// What to call it
        name: String,
        /// Such as http://localhost:8080
        service_url: String,
    },
    /// Talk to the installation that `omgctl up` runs here, as admin and support
    #[command(alias = "use-local")]
    UseLocal {
        /// Its public port
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
}

/// Who somebody is.
#[derive(Args)]
pub(crate) struct Credentials {
    /// Id or alias
    #[arg(value_parser = text)]
    pub(crate) user: Text,
    /// `-` reads it from stdin
    pub(crate) password: String,
}

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Admin {
    /// Log in and store the credentials
    #[command(alias = "use-credentials")]
    UseCredentials(Credentials),
    /// Print who is logged in
    #[command(alias = "print-current")]
    PrintCurrent,
    /// Log in again with the stored credentials
    #[command(alias = "create-token")]
    CreateToken,
    /// Take a new id from the installation's generator
    #[command(alias = "generate-id")]
    GenerateId,
}

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Support {
    /// Log in and store the credentials
    #[command(alias = "use-credentials")]
    UseCredentials(Credentials),
    /// Print who is logged in
    #[command(alias = "print-current")]
    PrintCurrent,
    /// Log in again with the stored credentials
    #[command(alias = "create-token")]
    CreateToken,
    /// Create a tenant
    #[command(alias = "create-tenant")]
    CreateTenant,
    /// Give a tenant a name
    #[command(alias = "create-tenant-alias")]
    CreateTenantAlias {
        /// Id of the tenant
        #[arg(value_parser = id::<TenantId>)]
        tenant_id: TenantId,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Delete a tenant and everything in it
    #[command(alias = "delete-tenant")]
    DeleteTenant {
        /// Id or name of the tenant
        #[arg(value_parser = text)]
        tenant: Text,
    },
    /// Create a developer and log in as that developer
    #[command(alias = "create-developer")]
    CreateDeveloper,
    /// Allow a developer something with a tenant
    #[command(alias = "create-tenant-permission")]
    CreateTenantPermission {
        /// Id or name of the tenant
        #[arg(value_parser = text)]
        tenant: Text,
        /// Id of the developer
        #[arg(value_parser = id::<UserId>)]
        user: UserId,
        /// PROJECT_MANAGER or TENANT_VIEWER
        #[arg(value_parser = tenant_permission)]
        permission: TenantPermission,
    },
}

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Developer {
    /// Log in and store the credentials
    #[command(alias = "use-credentials")]
    UseCredentials {
        /// Id of the developer
        #[arg(value_parser = id::<UserId>)]
        user: UserId,
        /// `-` reads it from stdin
        password: String,
    },
    /// Print who is logged in
    #[command(alias = "print-current")]
    PrintCurrent,
    /// Log in again with the stored credentials
    #[command(alias = "create-token")]
    CreateToken,
    /// Show a tenant with its projects
    #[command(alias = "get-tenant-details")]
    GetTenantDetails {
        /// Id or name of the tenant
        #[arg(value_parser = text)]
        tenant: Text,
    },
    /// Create a project with its first stage
    #[command(alias = "create-project")]
    CreateProject {
        /// Id or name of the tenant
        #[arg(value_parser = text)]
        tenant: Text,
    },
    /// Give a project a name
    #[command(alias = "create-project-alias")]
    CreateProjectAlias {
        /// Id or name of the tenant
        #[arg(value_parser = text)]
        tenant: Text,
        /// Id of the project
        #[arg(value_parser = id::<ProjectId>)]
        project_id: ProjectId,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Show a project with its stages and versions
    #[command(alias = "get-project-details")]
    GetProjectDetails(Project),
    /// Delete a project and everything in it
    #[command(alias = "delete-project")]
    DeleteProject(Project),
    /// Create a stage
    #[command(alias = "create-stage")]
    CreateStage(Project),
    /// Give a stage a name
    #[command(alias = "create-stage-alias")]
    CreateStageAlias {
        /// Id or name of the tenant
        #[arg(value_parser = text)]
        tenant: Text,
        /// Id of the stage
        #[arg(value_parser = id::<StageId>)]
        stage_id: StageId,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Show a stage with its deployments
    #[command(alias = "get-stage-details")]
    GetStageDetails(Stage),
    /// Delete a stage and its deployments
    #[command(alias = "delete-stage")]
    DeleteStage(Stage),
    /// Create a version from its config
    #[command(alias = "create-version")]
    CreateVersion {
        #[command(flatten)]
        project: Project,
        /// A JSON file; `-` reads it from stdin
        config_path: PathBuf,
    },
    /// Say which image a version runs
    #[command(alias = "create-image")]
    CreateImage {
        #[command(flatten)]
        project: Project,
        /// Id of the version
        #[arg(value_parser = id::<VersionId>)]
        version: VersionId,
        /// UNIVERSAL, LOBBY or MATCH
        #[arg(value_parser = image_qualifier)]
        qualifier: ImageQualifier,
        /// A reference that hosts can pull or hold already, or file:///…tar where the installation allows it
        image: String,
    },
    /// Show a version with its images
    #[command(alias = "get-version-details")]
    GetVersionDetails(Version),
    /// Delete a version
    #[command(alias = "delete-version")]
    DeleteVersion(Version),
    /// Run a version on a stage
    #[command(alias = "deploy-version")]
    DeployVersion {
        #[command(flatten)]
        stage: Stage,
        /// Id of the version
        #[arg(value_parser = id::<VersionId>)]
        version: VersionId,
        /// How the deployment is run, a JSON file; `-` reads it from stdin
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Show how a deployment is doing
    #[command(alias = "get-deployment-details")]
    GetDeploymentDetails(Deployment),
    /// End a deployment
    #[command(alias = "delete-deployment")]
    DeleteDeployment(Deployment),
}

#[derive(Args)]
pub(crate) struct Project {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id or name of the project
    #[arg(value_parser = text)]
    pub(crate) project: Text,
}

#[derive(Args)]
pub(crate) struct Stage {
    #[command(flatten)]
    pub(crate) project: Project,
    /// Id or name of the stage
    #[arg(value_parser = text)]
    pub(crate) stage: Text,
}

#[derive(Args)]
pub(crate) struct Version {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id of the version
    #[arg(value_parser = id::<VersionId>)]
    pub(crate) version: VersionId,
}

#[derive(Args)]
pub(crate) struct Deployment {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id of the deployment
    #[arg(value_parser = id::<DeploymentId>)]
    pub(crate) deployment: DeploymentId,
}

#[derive(Subcommand)]
pub(crate) enum Image {
    /// Put one static program into an otherwise empty image, without an engine
    ///
    /// The archive is what `docker load` reads and what createImage takes as file:///…tar. The same program gives the
    /// same bytes.
    Pack {
        /// The program, linked statically
        #[arg(long, value_name = "PATH")]
        binary: PathBuf,
        /// Name of the image, such as shooter:dev
        #[arg(long, value_name = "NAME")]
        tag: String,
        /// Where the archive goes
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        /// Path of the program in the image [default: / and its file name]
        #[arg(long, value_name = "PATH")]
        entrypoint: Option<String>,
        /// An environment variable of the image
        #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<String>,
    },
}

fn text(argument: &str) -> Result<Text, String> {
    Text::new(argument).ok_or_else(|| TEXT_CONSTRAINT.to_owned())
}

fn id<I: From<i64>>(argument: &str) -> Result<I, String> {
    let id: i64 = argument.parse().map_err(|_| "an id is a whole number".to_owned())?;
    Ok(I::from(id))
}

/// `PROJECT_MANAGER` and `project-manager` are the same word.
fn word<T: Copy>(argument: &str, words: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let wanted = argument.replace('-', "_").to_uppercase();
    let found = words.iter().find(|word| name(**word) == wanted);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|word| name(*word)).collect();
        format!("one of {}", names.join(", "))
    })
}

fn tenant_permission(argument: &str) -> Result<TenantPermission, String> {
    let words = [TenantPermission::ProjectManager, TenantPermission::TenantViewer];
    word(argument, &words, TenantPermission::as_str)
}

fn image_qualifier(argument: &str) -> Result<ImageQualifier, String> {
    let words = [ImageQualifier::Universal, ImageQualifier::Lobby, ImageQualifier::Match];
    word(argument, &words, ImageQualifier::as_str)
}

fn variable(argument: &str) -> Result<String, String> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(argument.to_owned()),
        _ => Err("NAME=VALUE is expected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_camel_case_command_has_its_kebab_case_spelling() {
        for group in Arguments::command().get_subcommands() {
            for command in group.get_subcommands() {
                let name = command.get_name();
                let kebab: String = name.chars().fold(String::new(), |mut kebab, c| {
                    if c.is_uppercase() {
                        kebab.push('-');
                    }
                    kebab.extend(c.to_lowercase());
                    kebab
                });
                let spelled = kebab == name || command.get_all_aliases().any(|alias| alias == kebab);
                assert!(spelled, "{} {name} has no alias {kebab}", group.get_name());
            }
        }
    }

    #[test]
    fn words_are_understood_in_both_spellings() {
        assert_eq!(
            tenant_permission("PROJECT_MANAGER"),
            Ok(TenantPermission::ProjectManager)
        );
        assert_eq!(tenant_permission("tenant-viewer"), Ok(TenantPermission::TenantViewer));
        assert!(tenant_permission("OWNER").unwrap_err().contains("PROJECT_MANAGER"));
        assert_eq!(image_qualifier("universal"), Ok(ImageQualifier::Universal));
    }
}
