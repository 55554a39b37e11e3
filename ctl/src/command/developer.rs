//! What a developer does: projects, stages, versions, images, deployments.

mod details;

use omgservers_protocol::developer::{
    CreateImage, CreateProject, CreateProjectAlias, CreateStage, CreateStageAlias, CreateVersion, DeleteDeployment,
    DeleteProject, DeleteStage, DeleteVersion, DeployVersion, GetDeploymentDetails, GetProjectDetails, GetStageDetails,
    GetTenantDetails, GetVersionDetails,
};
use omgservers_protocol::text::Text;

use omgservers_protocol::config::{DeploymentConfig, VersionConfig};

use crate::arguments::{Deployment, Developer, Project, Stage, Version};
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::input;

pub(crate) async fn run(context: &mut Context, command: Developer) -> Result {
    match command {
        Developer::UseCredentials { user, password } => {
            let password = input::password(&password)?;
            let user = Text::new(user.to_string()).expect("an id is short");
            let token = context.log_in(Role::Developer, user, password).await?;
            context.output.result(&token, |_| "Logged in as developer.".to_owned());
        }
        Developer::PrintCurrent => context.print_current(Role::Developer)?,
        Developer::CreateToken => {
            let token = context.log_in_again(Role::Developer).await?;
            context.output.result(&token, |_| "Logged in as developer.".to_owned());
        }
        Developer::GetTenantDetails { tenant } => {
            let reply = context.send(Role::Developer, &GetTenantDetails { tenant }).await?;
            context.output.result(&reply, |reply| details::tenant(&reply.details));
        }
        Developer::CreateProject { tenant } => {
            let created = context.send(Role::Developer, &CreateProject { tenant }).await?;
            let (project, stage) = (created.project_id, created.stage_id);
            context
                .state
                .set([("PROJECT", project.to_string()), ("STAGE", stage.to_string())])?;
            context.output.result(&created, |_| {
                format!("Project {project} was created with stage {stage}.")
            });
        }
        Developer::CreateProjectAlias {
            tenant,
            project_id,
            alias,
        } => {
            let name = alias.clone();
            let call = CreateProjectAlias {
                tenant,
                project_id,
                alias,
            };
            let done = context.send(Role::Developer, &call).await?;
            context
                .output
                .result(&done, |_| format!("Project {project_id} is also called {name}."));
        }
        Developer::GetProjectDetails(Project { tenant, project }) => {
            let reply = context
                .send(Role::Developer, &GetProjectDetails { tenant, project })
                .await?;
            context.output.result(&reply, |reply| details::project(&reply.details));
        }
        Developer::DeleteProject(Project { tenant, project }) => {
            let call = DeleteProject { tenant, project };
            let deleted = context.send(Role::Developer, &call).await?;
            context.print_deleted("project", &call.project, deleted)?;
        }
        Developer::CreateStage(Project { tenant, project }) => {
            let created = context.send(Role::Developer, &CreateStage { tenant, project }).await?;
            context.state.set([("STAGE", created.stage_id.to_string())])?;
            context
                .output
                .result(&created, |created| format!("Stage {} was created.", created.stage_id));
        }
        Developer::CreateStageAlias {
            tenant,
            stage_id,
            alias,
        } => {
            let name = alias.clone();
            let call = CreateStageAlias {
                tenant,
                stage_id,
                alias,
            };
            let done = context.send(Role::Developer, &call).await?;
            context
                .output
                .result(&done, |_| format!("Stage {stage_id} is also called {name}."));
        }
        Developer::GetStageDetails(stage) => {
            let Stage { project, stage } = stage;
            let call = GetStageDetails {
                tenant: project.tenant,
                project: project.project,
                stage,
            };
            let reply = context.send(Role::Developer, &call).await?;
            context.output.result(&reply, |reply| details::stage(&reply.details));
        }
        Developer::DeleteStage(Stage { project, stage }) => {
            let call = DeleteStage {
                tenant: project.tenant,
                project: project.project,
                stage,
            };
            let deleted = context.send(Role::Developer, &call).await?;
            context.print_deleted("stage", &call.stage, deleted)?;
        }
        Developer::CreateVersion { project, config_path } => {
            let config: VersionConfig = input::document(&config_path)?;
            config
                .check()
                .map_err(|wrong| Failure::usage(format!("`{}`: {wrong}", config_path.display())))?;
            let call = CreateVersion {
                tenant: project.tenant,
                project: project.project,
                config,
            };
            let created = context.send(Role::Developer, &call).await?;
            context.state.set([("VERSION", created.version_id.to_string())])?;
            context.output.result(&created, |created| {
                format!("Version {} was created.", created.version_id)
            });
        }
        Developer::CreateImage {
            project,
            version,
            qualifier,
            image,
        } => {
            let call = CreateImage {
                tenant: project.tenant,
                project: project.project,
                version,
                qualifier,
                image,
            };
            let created = context.send(Role::Developer, &call).await?;
            context.output.result(&created, |created| match created.created {
                true => format!("Version {version} runs the image {}.", call.image),
                false => format!("Version {version} has an image of this kind already."),
            });
        }
        Developer::GetVersionDetails(Version { tenant, version }) => {
            let call = GetVersionDetails {
                tenant,
                version_id: version,
            };
            let reply = context.send(Role::Developer, &call).await?;
            context.output.result(&reply, |reply| details::version(&reply.details));
        }
        Developer::DeleteVersion(Version { tenant, version }) => {
            let deleted = context
                .send(Role::Developer, &DeleteVersion { tenant, id: version })
                .await?;
            context.print_deleted("version", version, deleted)?;
        }
        Developer::DeployVersion { stage, version, config } => {
            let config: Option<DeploymentConfig> = config.as_deref().map(input::document).transpose()?;
            let Stage { project, stage } = stage;
            let call = DeployVersion {
                tenant: project.tenant,
                project: project.project,
                stage,
                version_id: version,
                config,
            };
            let created = context.send(Role::Developer, &call).await?;
            context.state.set([("DEPLOYMENT", created.deployment_id.to_string())])?;
            context.output.result(&created, |created| {
                format!("Deployment {} was created.", created.deployment_id)
            });
        }
        Developer::GetDeploymentDetails(Deployment { tenant, deployment }) => {
            let call = GetDeploymentDetails {
                tenant,
                deployment_id: deployment,
            };
            let reply = context.send(Role::Developer, &call).await?;
            context
                .output
                .result(&reply, |reply| details::deployment(&reply.details));
        }
        Developer::DeleteDeployment(Deployment { tenant, deployment }) => {
            let call = DeleteDeployment { tenant, id: deployment };
            let deleted = context.send(Role::Developer, &call).await?;
            context.print_deleted("deployment", deployment, deleted)?;
        }
    }
    Ok(())
}
