//! `support inviteDeveloper`: a developer with everything that is needed to begin, and the letter to send.

use std::fmt::Display;

use omgservers_protocol::id::UserId;
use omgservers_protocol::support::{
    CreateDeveloper, CreateDeveloperAlias, CreateProjectPermissions, CreateStagePermissions, CreateTenantPermissions,
    DeleteDeveloper, ListProjects, ListStages, ProjectPermission, StagePermission, TenantPermission,
};
use omgservers_protocol::text::Text;
use serde_json::json;

use super::init::{is_called, name_of};
use crate::arguments::support::Invitation;
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};

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
    if let Err(failure) = equip(context, user, name.as_ref(), &tenant, &places).await {
        match context.send(ROLE, &DeleteDeveloper { user_id: user }).await {
            Ok(_) => context
                .output
                .note(format_args!("Developer {user}, made for this, is deleted again.")),
            Err(_) => context.output.warning(format_args!(
                "developer {user}, made for this, is left over: `omgctl support deleteDeveloper {user}`"
            )),
        }
        return Err(failure);
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

/// Projects with their stages.
type Places = [(Text, Vec<Text>)];

/// The given project and stage, or all that there are.
async fn places(
    context: &Context,
    tenant: &Text,
    project: Option<Text>,
    stage: Option<Text>,
) -> Result<Vec<(Text, Vec<Text>)>> {
    let call = |paging| ListProjects {
        tenant: tenant.clone(),
        paging,
    };
    let projects = context.collect(ROLE, Default::default(), call).await?;
    let projects = match project {
        Some(project) if projects.iter().any(|row| is_called(row.id, &row.aliases, &project)) => vec![project],
        Some(project) => return Err(missing("project", &project, format_args!("tenant {tenant}"))),
        None => projects.iter().map(|project| name_of(project.id)).collect(),
    };
    let mut places = Vec::new();
    for project in projects {
        let call = |paging| ListStages {
            tenant: tenant.clone(),
            project: project.clone(),
            paging,
        };
        let stages = context.collect(ROLE, Default::default(), call).await?;
        let stages = match &stage {
            Some(stage) if stages.iter().any(|row| is_called(row.id, &row.aliases, stage)) => vec![stage.clone()],
            Some(stage) => return Err(missing("stage", stage, format_args!("project {project}"))),
            None => stages.iter().map(|stage| name_of(stage.id)).collect(),
        };
        places.push((project, stages));
    }
    Ok(places)
}

fn missing(kind: &str, name: &Text, parent: impl Display) -> Failure {
    Failure::refused(format!("there is no {kind} {name} in {parent}")).hint(
        "`omgctl support listProjects TENANT --all` and `listStages TENANT PROJECT --all` show what is there"
            .to_owned(),
    )
}

/// Gives a new developer a name and every permission.
async fn equip(context: &Context, user: UserId, name: Option<&Text>, tenant: &Text, places: &Places) -> Result {
    if let Some(alias) = name {
        let call = CreateDeveloperAlias {
            user_id: user,
            alias: alias.clone(),
        };
        context.send(ROLE, &call).await?;
    }
    // Somebody new has nothing yet, so what was not granted is not to be had.
    let check = |granted: bool, place: &dyn Display| match granted {
        true => Ok(()),
        false => Err(Failure::refused(format!("{place} gives no permissions: it is deleted"))),
    };
    check(
        grant_tenant(context, user, tenant).await?,
        &format_args!("tenant {tenant}"),
    )?;
    for (project, stages) in places {
        check(
            grant_project(context, user, tenant, project).await?,
            &format_args!("project {project}"),
        )?;
        for stage in stages {
            check(
                grant_stage(context, user, tenant, project, stage).await?,
                &format_args!("stage {stage}"),
            )?;
        }
    }
    Ok(())
}

/// Grants everything on a tenant, and says whether all of it is new.
pub(super) async fn grant_tenant(context: &Context, user_id: UserId, tenant: &Text) -> Result<bool> {
    let call = CreateTenantPermissions {
        tenant: tenant.clone(),
        user_id,
        permissions_to_create: TenantPermission::ALL.to_vec(),
    };
    let created = context.send(ROLE, &call).await?.created_permissions;
    Ok(created.len() == TenantPermission::ALL.len())
}

/// Likewise on a project.
pub(super) async fn grant_project(context: &Context, user_id: UserId, tenant: &Text, project: &Text) -> Result<bool> {
    let call = CreateProjectPermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        user_id,
        permissions_to_create: ProjectPermission::ALL.to_vec(),
    };
    let created = context.send(ROLE, &call).await?.created_permissions;
    Ok(created.len() == ProjectPermission::ALL.len())
}

/// Likewise on a stage.
pub(super) async fn grant_stage(
    context: &Context,
    user_id: UserId,
    tenant: &Text,
    project: &Text,
    stage: &Text,
) -> Result<bool> {
    let call = CreateStagePermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        user_id,
        permissions_to_create: StagePermission::ALL.to_vec(),
    };
    let created = context.send(ROLE, &call).await?.created_permissions;
    Ok(created.len() == StagePermission::ALL.len())
}
