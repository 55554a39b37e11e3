//! What a developer does: projects, stages, versions, images, deployments.

use std::path::Path;

use bytes::Bytes;
use omgservers_protocol::config::DeploymentConfig;
use omgservers_protocol::developer::{
    CreateApiKey, CreateImage, CreateLobbyRequest, CreateMatchmakerRequest, CreateProject, CreateProjectAlias,
    CreateStage, CreateStageAlias, CreateVersion, DeleteApiKey, DeleteDeployment, DeleteLobby, DeleteMatchmaker,
    DeleteProject, DeleteStage, DeleteStageVariable, DeleteVersion, DeployVersion, GetDeploymentConfig,
    GetDeploymentDetails, GetProjectDetails, GetStageDetails, GetTenantDetails, GetTenantQuotas, GetVersionConfig,
    GetVersionDetails, ListApiKeys, ListAuditRecords, ListClients, ListDeployments, ListFilesArchives, ListImages,
    ListLobbies, ListMatches, ListPermissions, ListProjects, ListStageVariables, ListStages, ListTenants, ListUsage,
    ListVersions, SetStageMaintenance, SetStageVariable, UploadFilesArchive,
};
use serde_json::json;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::support::called;
use super::{deploy, init, login};
use crate::arguments::developer::{
    self, DeploymentCommand, Developer, KeyCommand, ProjectCommand, StageCommand, VersionCommand,
};
use crate::arguments::{Deletion, Deployment, Project, Stage, Tenant, Version};
use crate::context::{Context, KEY_PREFIX, Role};
use crate::failure::{Failure, Result};
use crate::{input, local_run, upload};

const ROLE: Role = Role::Developer;

/// The call that lists what belongs to a place: `listed!(context, listing, ListStages { tenant, project } of place)`
macro_rules! listed {
    ($context:ident, $listing:ident, $call:ident { $($field:ident),* } of $place:ident) => {{
        let call = |paging| $call { $($field: $place.$field.clone(),)* paging };
        $context.list(ROLE, &$listing, call).await
    }};
}

pub(crate) async fn run(context: &mut Context, command: Developer) -> Result {
    match command {
        Developer::Login(command) => login::run(context, ROLE, command).await,
        Developer::Init(init) => init::run(context, init).await,
        Developer::Deploy(arguments) => deploy::run(context, arguments).await,
        Developer::Run(run) => local_run::run(context, run).await,
        Developer::Key(command) => run_key(context, command).await,
        Developer::Project(command) => run_project(context, command).await,
        Developer::Stage(command) => run_stage(context, command).await,
        Developer::Version(command) => run_version(context, command).await,
        Developer::Deployment(command) => run_deployment(context, command).await,
    }
}

async fn run_key(context: &mut Context, command: KeyCommand) -> Result {
    match command {
        KeyCommand::CreateApiKey(key) => create_api_key(context, key).await,
        KeyCommand::UseApiKey { key } => {
            let key = input::secret(&key)?;
            if !key.as_str().starts_with(KEY_PREFIX) {
                let failure = Failure::usage(format!("that is not a key: keys begin with `{KEY_PREFIX}`"));
                return Err(failure.hint("`omgctl developer createApiKey` makes one and shows it once"));
            }
            context.store(ROLE, [("TOKEN", key.as_str().to_owned())])?;
            context
                .output
                .result(&json!({}), |_| "Acting by that key from now on.".to_owned());
            Ok(())
        }
        KeyCommand::DeleteApiKey { id } => context.delete(ROLE, &DeleteApiKey { id }, "key", id).await,
        KeyCommand::ListApiKeys(listing) => context.list(ROLE, &listing, |paging| ListApiKeys { paging }).await,
    }
}

async fn run_project(context: &mut Context, command: ProjectCommand) -> Result {
    match command {
        ProjectCommand::ListTenants(listing) => context.list(ROLE, &listing, |paging| ListTenants { paging }).await,
        ProjectCommand::GetTenantDetails(Tenant { tenant }) => context.ask(ROLE, &GetTenantDetails { tenant }).await,
        ProjectCommand::GetTenantQuotas(Tenant { tenant }) => context.ask(ROLE, &GetTenantQuotas { tenant }).await,
        ProjectCommand::ListUsage { of, listing } => listed!(context, listing, ListUsage { tenant } of of),
        ProjectCommand::ListAuditRecords { of, listing } => {
            listed!(context, listing, ListAuditRecords { tenant } of of)
        }
        ProjectCommand::ListPermissions(of) => {
            let call = |paging| ListPermissions {
                tenant: of.of.tenant.clone(),
                project: of.project.clone(),
                stage: of.stage.clone(),
                paging,
            };
            context.list(ROLE, &of.listing, call).await
        }
        ProjectCommand::CreateProject(Tenant { tenant }) => context.ask(ROLE, &CreateProject { tenant }).await,
        ProjectCommand::CreateProjectAlias { of, project_id, alias } => {
            let sentence = called("Project", project_id, &alias);
            let call = CreateProjectAlias {
                tenant: of.tenant,
                project_id,
                alias,
            };
            context.tell(ROLE, &call, |_| sentence).await
        }
        ProjectCommand::GetProjectDetails(Project { tenant, project }) => {
            context.ask(ROLE, &GetProjectDetails { tenant, project }).await
        }
        ProjectCommand::DeleteProject(Deletion { of, yes }) => {
            let Project { tenant, project } = of;
            input::confirm_by_name(yes, "project", &project)?;
            let call = DeleteProject { tenant, project };
            context.delete(ROLE, &call, "project", &call.project).await
        }
        ProjectCommand::ListProjects { of, listing } => listed!(context, listing, ListProjects { tenant } of of),
    }
}

async fn run_stage(context: &mut Context, command: StageCommand) -> Result {
    match command {
        StageCommand::CreateStage(Project { tenant, project }) => {
            context.ask(ROLE, &CreateStage { tenant, project }).await
        }
        StageCommand::CreateStageAlias { of, stage_id, alias } => {
            let sentence = called("Stage", stage_id, &alias);
            let call = CreateStageAlias {
                tenant: of.tenant,
                stage_id,
                alias,
            };
            context.tell(ROLE, &call, |_| sentence).await
        }
        StageCommand::GetStageDetails(Stage { tenant, project, stage }) => {
            context.ask(ROLE, &GetStageDetails { tenant, project, stage }).await
        }
        StageCommand::DeleteStage(Deletion { of, yes }) => {
            let Stage { tenant, project, stage } = of;
            input::confirm_by_name(yes, "stage", &stage)?;
            let call = DeleteStage { tenant, project, stage };
            context.delete(ROLE, &call, "stage", &call.stage).await
        }
        StageCommand::ListStages { of, listing } => listed!(context, listing, ListStages { tenant, project } of of),
        StageCommand::SetStageMaintenance { of, message } => maintain(context, of, Some(message)).await,
        StageCommand::ClearStageMaintenance(of) => maintain(context, of, None).await,
        StageCommand::SetStageVariable {
            of,
            name,
            value,
            secret,
        } => {
            let Stage { tenant, project, stage } = of;
            let call = SetStageVariable {
                tenant,
                project,
                stage,
                name,
                value: input::secret(&value)?,
                secret,
            };
            let sentence = |created: bool| {
                let how = if created { "is set" } else { "was changed" };
                format!("The variable {} of stage {} {how}.", call.name, call.stage)
            };
            context.tell(ROLE, &call, |reply| sentence(reply.created)).await
        }
        StageCommand::DeleteStageVariable { of, name } => {
            let Stage { tenant, project, stage } = of;
            let call = DeleteStageVariable {
                tenant,
                project,
                stage,
                name,
            };
            context.delete(ROLE, &call, "variable", &call.name).await
        }
        StageCommand::ListStageVariables { of, listing } => {
            listed!(context, listing, ListStageVariables { tenant, project, stage } of of)
        }
    }
}

async fn run_version(context: &mut Context, command: VersionCommand) -> Result {
    match command {
        VersionCommand::CreateVersion { of, config } => {
            let call = CreateVersion {
                tenant: of.tenant,
                project: of.project,
                config: input::version_config(config.path(), context.output)?,
            };
            context.ask(ROLE, &call).await
        }
        VersionCommand::UploadFilesArchive {
            of,
            files_directory_path,
        } => {
            let call = UploadFilesArchive {
                tenant: of.tenant,
                version_id: of.version,
            };
            let archive = Bytes::from(upload::pack(&files_directory_path, context.state.directory())?);
            let send = async |client: &_| upload::send(client, &call, archive.clone()).await;
            let uploaded = context.send_by(ROLE, &call, send).await?;
            context.print(&uploaded)
        }
        VersionCommand::ListFilesArchives { of, listing } => {
            let call = |paging| ListFilesArchives {
                tenant: of.tenant.clone(),
                version_id: of.version,
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        VersionCommand::CreateImage {
            of,
            version,
            qualifier,
            image,
        } => {
            check_image(&image)?;
            let call = CreateImage {
                tenant: of.tenant,
                project: of.project,
                version,
                qualifier,
                image,
            };
            let sentence = |created: bool| match created {
                true => format!("Version {version} runs the image {}.", call.image),
                false => format!("Version {version} has an image of this kind already."),
            };
            context.tell(ROLE, &call, |reply| sentence(reply.created)).await
        }
        VersionCommand::ListImages { of, listing } => {
            let call = |paging| ListImages {
                tenant: of.tenant.clone(),
                version_id: of.version,
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        VersionCommand::GetVersionDetails(Version { tenant, version }) => {
            let version_id = version;
            context.ask(ROLE, &GetVersionDetails { tenant, version_id }).await
        }
        VersionCommand::GetVersionConfig(Version { tenant, version }) => {
            let version_id = version;
            context.ask(ROLE, &GetVersionConfig { tenant, version_id }).await
        }
        VersionCommand::DeleteVersion(Version { tenant, version }) => {
            let call = DeleteVersion { tenant, id: version };
            context.delete(ROLE, &call, "version", version).await
        }
        VersionCommand::ListVersions { of, listing } => {
            listed!(context, listing, ListVersions { tenant, project } of of)
        }
    }
}

async fn run_deployment(context: &mut Context, command: DeploymentCommand) -> Result {
    match command {
        DeploymentCommand::DeployVersion { of, version, config } => {
            let config: Option<DeploymentConfig> =
                config.map(|file| input::config(&file, context.output)).transpose()?;
            let Stage { tenant, project, stage } = of;
            let call = DeployVersion {
                tenant,
                project,
                stage,
                version_id: version,
                config,
            };
            context.ask(ROLE, &call).await
        }
        DeploymentCommand::GetDeploymentDetails(Deployment { tenant, deployment }) => {
            let deployment_id = deployment;
            context.ask(ROLE, &GetDeploymentDetails { tenant, deployment_id }).await
        }
        DeploymentCommand::GetDeploymentConfig(Deployment { tenant, deployment }) => {
            let deployment_id = deployment;
            context.ask(ROLE, &GetDeploymentConfig { tenant, deployment_id }).await
        }
        DeploymentCommand::DeleteDeployment(Deployment { tenant, deployment }) => {
            let call = DeleteDeployment { tenant, id: deployment };
            context.delete(ROLE, &call, "deployment", deployment).await
        }
        DeploymentCommand::ListDeployments { of, history, listing } => {
            let call = |paging| ListDeployments {
                tenant: of.tenant.clone(),
                project: of.project.clone(),
                stage: of.stage.clone(),
                history,
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        DeploymentCommand::CreateLobbyRequest(Deployment { tenant, deployment }) => {
            let deployment_id = deployment;
            let call = CreateLobbyRequest { tenant, deployment_id };
            let sentence = format!("One more lobby of deployment {deployment} is on its way.");
            context.tell(ROLE, &call, |_| sentence).await
        }
        DeploymentCommand::DeleteLobby { lobby } => {
            let call = DeleteLobby { lobby_id: lobby };
            context.delete(ROLE, &call, "lobby", lobby).await
        }
        DeploymentCommand::ListLobbies { of, listing } => {
            let call = |paging| ListLobbies {
                tenant: of.tenant.clone(),
                deployment_id: of.deployment,
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        DeploymentCommand::CreateMatchmakerRequest(Deployment { tenant, deployment }) => {
            let deployment_id = deployment;
            let call = CreateMatchmakerRequest { tenant, deployment_id };
            let sentence = format!("A matchmaker of deployment {deployment} is on its way.");
            context.tell(ROLE, &call, |_| sentence).await
        }
        DeploymentCommand::DeleteMatchmaker { matchmaker } => {
            let call = DeleteMatchmaker {
                matchmaker_id: matchmaker,
            };
            context.delete(ROLE, &call, "matchmaker", matchmaker).await
        }
        DeploymentCommand::ListMatches { of, listing } => {
            let call = |paging| ListMatches {
                tenant: of.tenant.clone(),
                deployment_id: of.deployment,
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        DeploymentCommand::ListClients { of, listing } => {
            let call = |paging| ListClients {
                tenant: of.tenant.clone(),
                deployment_id: of.deployment,
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
    }
}

/// An archive needs its scheme: without it a path is taken for the name of an image, which nobody finds later.
pub(super) fn check_image(image: &str) -> Result {
    let is_path = image.ends_with(".tar") || image.starts_with(['/', '.']) || Path::new(image).is_file();
    if image.contains("://") || !is_path {
        return Ok(());
    }
    let path = std::path::absolute(image).unwrap_or_else(|_| image.into());
    let failure = Failure::usage(format!("`{image}` is a file and not the name of an image"));
    Err(failure.hint(format!(
        "an archive on the machine of the service is file://{}",
        path.display()
    )))
}

async fn create_api_key(context: &mut Context, key: developer::CreateApiKey) -> Result {
    let in_days = || {
        let expires = OffsetDateTime::now_utc() + Duration::days(key.days.into());
        let expires = expires.replace_nanosecond(0).unwrap_or(expires);
        expires
            .format(&Rfc3339)
            .map_err(|cause| Failure::usage(format!("no such day: {cause}")))
    };
    let call = CreateApiKey {
        tenant: key.of.tenant,
        project: key.project,
        name: key.name,
        scopes: key.scopes,
        expires: key.expires.map_or_else(in_days, Ok)?,
    };
    let created = context.send(ROLE, &call).await?;
    context.output.result(&created, |created| {
        format!(
            "Key {} was created, good until {}: {}",
            created.id,
            call.expires,
            created.api_key.as_str()
        )
    });
    context
        .output
        .note("It is shown this once. A program acts by it after `omgctl developer useApiKey KEY`.");
    Ok(())
}

async fn maintain(context: &mut Context, of: Stage, message: Option<String>) -> Result {
    let sentence = match &message {
        Some(_) => format!("Stage {} is closed for new players.", of.stage),
        None => format!("Stage {} is open.", of.stage),
    };
    let Stage { tenant, project, stage } = of;
    let call = SetStageMaintenance {
        tenant,
        project,
        stage,
        message,
    };
    context.tell(ROLE, &call, |_| sentence).await
}
