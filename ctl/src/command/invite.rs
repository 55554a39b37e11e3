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
use crate::state::shell_word;

const ROLE: Role = Role::Support;

pub(super) async fn run(context: &mut Context, invitation: Invitation) -> Result {
    let Invitation {
        of,
        project,
        stage,
        name,
    } = invitation;
    let tenant = of.tenant;
    // Whoever is asked for one project does not manage the others.
    let on_tenant = match &project {
        Some(_) => &[TenantPermission::TenantViewer][..],
        None => TenantPermission::ALL,
    };
    // Looked at first, so that a wrong name leaves no developer behind.
    let places = places(context, &tenant, project, stage).await?;
    let developer = context.send(ROLE, &CreateDeveloper {}).await?;
    let user = developer.user_id;
    if let Err(failure) = equip(context, user, name.as_ref(), &tenant, on_tenant, &places).await {
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
    let address = context.address()?;
    let login = name.map_or(user.to_string(), |name| name.to_string());
    let commands = [
        format!(
            "omgctl environment useEnvironment {} {}",
            shell_word(environment),
            shell_word(address)
        ),
        format!("omgctl developer useCredentials {} -", shell_word(&login)),
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
    if is_of_this_machine(address) {
        context.output.warning(format_args!(
            "{address} leads only to this machine; elsewhere the first command needs the address by which it is reached"
        ));
    }
    Ok(())
}

fn is_of_this_machine(address: &str) -> bool {
    let host = reqwest::Url::parse(address).ok();
    let host = host.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    let ip: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || host.ends_with(".localhost") || ip.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

/// Projects with their stages.
type Places = [(Text, Vec<Text>)];

/// The given project and stage, or all that there are.
async fn places(
    context: &mut Context,
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

/// Gives a new developer a name, these permissions on the tenant and every one on the places.
async fn equip(
    context: &mut Context,
    user: UserId,
    name: Option<&Text>,
    tenant: &Text,
    on_tenant: &[TenantPermission],
    places: &Places,
) -> Result {
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
        grant_tenant(context, user, tenant, on_tenant).await?,
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

/// Grants permissions on a tenant, and says whether all of them are new.
pub(super) async fn grant_tenant(
    context: &mut Context,
    user_id: UserId,
    tenant: &Text,
    permissions: &[TenantPermission],
) -> Result<bool> {
    let call = CreateTenantPermissions {
        tenant: tenant.clone(),
        user_id,
        permissions_to_create: permissions.to_vec(),
    };
    let created = context.send(ROLE, &call).await?.created_permissions;
    Ok(created.len() == permissions.len())
}

/// Grants everything on a project, likewise.
pub(super) async fn grant_project(
    context: &mut Context,
    user_id: UserId,
    tenant: &Text,
    project: &Text,
) -> Result<bool> {
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
    context: &mut Context,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_no_use_to_others() {
        for own in [
            "http://localhost:8080",
            "http://127.0.0.2",
            "http://[::1]:8080",
            "http://0.0.0.0:8080",
        ] {
            assert!(is_of_this_machine(own), "{own}");
        }
        for public in [
            "https://games.test",
            "http://10.0.0.7:8080",
            "http://localhost.games.test",
        ] {
            assert!(!is_of_this_machine(public), "{public}");
        }
    }
}
