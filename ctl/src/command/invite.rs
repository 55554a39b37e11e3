//! `support inviteDeveloper`: a developer with everything that is needed to begin, and the letter to send.

use omgservers_protocol::id::UserId;
use omgservers_protocol::support::{
    CreateDeveloper, CreateDeveloperAlias, CreateProjectPermissions, CreateStagePermissions, CreateTenantPermissions,
    ListProjects, ListStages, ProjectPermission, StagePermission, TenantPermission,
};
use omgservers_protocol::text::Text;
use serde_json::json;

use super::init::name_of;
use crate::arguments::support::Invitation;
use crate::context::{Context, Role};
use crate::failure::Result;

const ROLE: Role = Role::Support;

pub(super) async fn run(context: &mut Context, invitation: Invitation) -> Result {
    let Invitation {
        of,
        project,
        stage,
        name,
    } = invitation;
    let tenant = of.tenant;
    // Looked at first, so that a wrong name leaves no developer behind.
    let places = places(context, &tenant, project, stage).await?;
    let developer = context.send(ROLE, &CreateDeveloper {}).await?;
    let user = developer.user_id;
    if let Some(alias) = &name {
        let call = CreateDeveloperAlias {
            user_id: user,
            alias: alias.clone(),
        };
        context.send(ROLE, &call).await?;
    }
    grant_tenant(context, user, &tenant).await?;
    for (project, stages) in &places {
        grant_project(context, user, &tenant, project).await?;
        for stage in stages {
            grant_stage(context, user, &tenant, project, stage).await?;
        }
    }

    let environment = context.state.get("ENVIRONMENT_NAME").unwrap_or("omgservers");
    let commands = [
        format!("omgctl environment useEnvironment {environment} {}", context.address()?),
        format!(
            "omgctl developer useCredentials {} -",
            name.map_or(user.to_string(), |name| name.to_string())
        ),
    ];
    let value = json!({"user_id": user, "password": developer.password, "commands": commands});
    context.output.result(&value, |_| {
        let lines = [
            format!("You may work on the games of {tenant}."),
            String::new(),
            format!("  User      {user}"),
            format!("  Password  {}", developer.password),
            String::new(),
            "Two commands log you in; the second asks for the password:".to_owned(),
            String::new(),
            format!("  {}", commands[0]),
            format!("  {}", commands[1]),
        ];
        lines.join("\n")
    });
    let count: usize = places.iter().map(|(_, stages)| stages.len()).sum();
    context.output.note(format_args!(
        "Send this to that person: the password is shown this once. Opened projects: {}, stages: {count}.",
        places.len()
    ));
    Ok(())
}

/// The given project and stage, or all that there are.
async fn places(
    context: &Context,
    tenant: &Text,
    project: Option<Text>,
    stage: Option<Text>,
) -> Result<Vec<(Text, Vec<Text>)>> {
    let projects = match project {
        Some(project) => vec![project],
        None => {
            let call = |paging| ListProjects {
                tenant: tenant.clone(),
                paging,
            };
            let projects = context.collect(ROLE, Default::default(), call).await?;
            projects.iter().map(|project| name_of(project.id)).collect()
        }
    };
    let mut places = Vec::new();
    for project in projects {
        let stages = match &stage {
            Some(stage) => vec![stage.clone()],
            None => {
                let call = |paging| ListStages {
                    tenant: tenant.clone(),
                    project: project.clone(),
                    paging,
                };
                let stages = context.collect(ROLE, Default::default(), call).await?;
                stages.iter().map(|stage| name_of(stage.id)).collect()
            }
        };
        places.push((project, stages));
    }
    Ok(places)
}

pub(super) async fn grant_tenant(context: &Context, user_id: UserId, tenant: &Text) -> Result {
    let call = CreateTenantPermissions {
        tenant: tenant.clone(),
        user_id,
        permissions_to_create: TenantPermission::ALL.to_vec(),
    };
    context.send(ROLE, &call).await.map(drop)
}

pub(super) async fn grant_project(context: &Context, user_id: UserId, tenant: &Text, project: &Text) -> Result {
    let call = CreateProjectPermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        user_id,
        permissions_to_create: ProjectPermission::ALL.to_vec(),
    };
    context.send(ROLE, &call).await.map(drop)
}

pub(super) async fn grant_stage(
    context: &Context,
    user_id: UserId,
    tenant: &Text,
    project: &Text,
    stage: &Text,
) -> Result {
    let call = CreateStagePermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        user_id,
        permissions_to_create: StagePermission::ALL.to_vec(),
    };
    context.send(ROLE, &call).await.map(drop)
}
