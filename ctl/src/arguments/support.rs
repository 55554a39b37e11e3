//! What support does.

use clap::{Args, Subcommand};
use omgservers_protocol::audit::Quotas;
use omgservers_protocol::id::{ProjectId, StageId, TenantId};
use omgservers_protocol::support::{ProjectPermission, StagePermission, TenantPermission};
use omgservers_protocol::text::Text;

use super::word::{id, project_permission, stage_permission, tenant_permission, text};
use super::{Deletion, Listing, Login, Project, Stage, Tenant};

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Support {
    #[command(flatten)]
    Login(Login),
    /// Create a tenant
    CreateTenant,
    /// Give a tenant a name
    CreateTenantAlias {
        /// Id of the tenant
        #[arg(value_parser = id::<TenantId>)]
        tenant_id: TenantId,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Delete a tenant and everything in it
    DeleteTenant(Deletion<Tenant>),
    /// List tenants
    ListTenants(Listing),
    /// Limit what a tenant may have at a time; the limit of what is not given is lifted
    SetTenantQuotas {
        #[command(flatten)]
        of: Tenant,
        #[command(flatten)]
        quotas: Limits,
    },
    /// Show what a tenant may have, and what it has
    GetTenantQuotas(Tenant),
    /// List what a tenant used, day by day, the newest first
    ListUsage {
        #[command(flatten)]
        of: Tenant,
        #[command(flatten)]
        listing: Listing,
    },
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
    /// Delete a project and everything in it
    DeleteProject(Deletion<Project>),
    /// List the projects of a tenant
    ListProjects {
        #[command(flatten)]
        of: Tenant,
        #[command(flatten)]
        listing: Listing,
    },
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
    /// Delete a stage and its deployments
    DeleteStage(Deletion<Stage>),
    /// List the stages of a project
    ListStages {
        #[command(flatten)]
        of: Project,
        #[command(flatten)]
        listing: Listing,
    },
    /// Create a developer and log in as that developer
    CreateDeveloper,
    /// Give a developer a name to log in by
    CreateDeveloperAlias {
        #[command(flatten)]
        of: Developer,
        /// The new name
        #[arg(value_parser = text)]
        alias: Text,
    },
    /// Make a new password for a developer who lost theirs
    ResetDeveloperPassword(Developer),
    /// Delete a developer, whose tokens and keys end
    DeleteDeveloper(Developer),
    /// List developers
    ListDevelopers(Listing),
    /// Create a developer who may do everything in a tenant, or in one project, and print what to send to that person
    InviteDeveloper(Invitation),
    #[command(flatten)]
    Permission(PermissionCommand),
}

/// Who may do what.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum PermissionCommand {
    /// Allow a developer something with a tenant
    CreateTenantPermission(OnTenant),
    /// Take that back
    DeleteTenantPermission(OnTenant),
    /// Allow a developer something with a project
    CreateProjectPermission(OnProject),
    /// Take that back
    DeleteProjectPermission(OnProject),
    /// Allow a developer something with a stage
    CreateStagePermission(OnStage),
    /// Take that back
    DeleteStagePermission(OnStage),
    /// List who may do what with a tenant, or with one of its projects or stages
    ListPermissions(OnSomething),
}

#[derive(Args)]
pub(crate) struct Developer {
    /// Id or name of the developer
    #[arg(value_parser = text)]
    pub(crate) user: Text,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Limits {
    /// Lobbies and matches that run
    #[arg(long)]
    runtimes: Option<u32>,
    /// Their CPU limits together, hundredths of a core
    #[arg(long)]
    cpu: Option<u32>,
    /// Their memory limits together, megabytes
    #[arg(long)]
    memory: Option<u32>,
    /// Players who are connected
    #[arg(long)]
    players: Option<u32>,
    /// Lift all limits
    #[arg(long, conflicts_with_all = ["runtimes", "cpu", "memory", "players"])]
    unlimited: bool,
}

impl From<Limits> for Quotas {
    fn from(limits: Limits) -> Self {
        let Limits {
            runtimes,
            cpu,
            memory,
            players,
            unlimited: _,
        } = limits;
        Self {
            runtimes,
            cpu,
            memory,
            players,
        }
    }
}

#[derive(Args)]
pub(crate) struct Invitation {
    #[command(flatten)]
    pub(crate) of: Tenant,
    /// Only this project [default: all that there are]
    #[arg(long, value_parser = text)]
    pub(crate) project: Option<Text>,
    /// Only this stage of it [default: all that there are]
    #[arg(long, value_parser = text, requires = "project")]
    pub(crate) stage: Option<Text>,
    /// A name to log in by
    #[arg(long, value_name = "ALIAS", value_parser = text)]
    pub(crate) name: Option<Text>,
}

/// Of a tenant, a project or a stage, depending on how much is said.
#[derive(Args)]
pub(crate) struct OnSomething {
    #[command(flatten)]
    pub(crate) of: Tenant,
    /// Id or name of a project
    #[arg(value_parser = text)]
    pub(crate) project: Option<Text>,
    /// Id or name of a stage of it
    #[arg(value_parser = text)]
    pub(crate) stage: Option<Text>,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

macro_rules! on {
    ($name:ident, $place:ident, $permission:ident, $parser:ident) => {
        #[derive(Args)]
        pub(crate) struct $name {
            #[command(flatten)]
            pub(crate) of: $place,
            /// Id or name of the developer
            #[arg(value_parser = text)]
            pub(crate) user: Text,
            #[arg(required = true, value_name = "PERMISSION", value_parser = $parser, help = words($permission::ALL.iter().map(|word| word.as_str())))]
            pub(crate) permissions: Vec<$permission>,
        }
    };
}

on!(OnTenant, Tenant, TenantPermission, tenant_permission);
on!(OnProject, Project, ProjectPermission, project_permission);
on!(OnStage, Stage, StagePermission, stage_permission);

/// `A, B or C`
fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}
