//! `developer init`: from a fresh installation to a place for a game. What is there already is found, not made again.

use std::fmt::Display;

use omgservers_protocol::developer::{Alias, CreateVersion, Stage};
use omgservers_protocol::id::UserId;
use omgservers_protocol::support::{
    CreateProject, CreateProjectAlias, CreateStage, CreateStageAlias, CreateTenant, CreateTenantAlias, ListProjects,
    ListStages, TenantPermission,
};
use omgservers_protocol::text::Text;
use serde_json::json;

use super::{invite, support};
use crate::arguments::developer::Init;
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::input;
use crate::state::shell_word;

const ROLE: Role = Role::Support;

pub(super) async fn run(context: &mut Context, init: Init) -> Result {
    let config = init
        .from
        .as_deref()
        .map(|file| input::version_config(file, context.output))
        .transpose()?;
    let Init {
        tenant, project, stage, ..
    } = init;
    provide_tenant(context, &tenant).await?;
    provide_project(context, &tenant, &project).await?;
    let row = provide_stage(context, &tenant, &project, &stage).await?;
    let user = provide_developer(context).await?;
    invite::grant_tenant(context, user, &tenant, TenantPermission::ALL).await?;
    invite::grant_project(context, user, &tenant, &project).await?;
    invite::grant_stage(context, user, &tenant, &project, &stage).await?;
    context.state.set([
        ("TENANT", row.tenant_id.to_string()),
        ("PROJECT", row.project_id.to_string()),
        ("STAGE", row.id.to_string()),
    ])?;
    let version = match config {
        Some(config) => {
            let call = CreateVersion {
                tenant: tenant.clone(),
                project: project.clone(),
                config,
            };
            let created = context.send(Role::Developer, &call).await?;
            context.state.set([("VERSION", created.version_id.to_string())])?;
            Some(created.version_id)
        }
        None => None,
    };

    let value = json!({
        "tenant_id": row.tenant_id,
        "project_id": row.project_id,
        "stage_id": row.id,
        "user_id": user,
        "version_id": version,
    });
    context.output.result(&value, |_| {
        let mut lines = vec![
            format!("{tenant}/{project}/{stage} is ready for developer {user}."),
            String::new(),
            "While you write the game:".to_owned(),
            "  omgctl developer run ./my-server".to_owned(),
            "To deploy it:".to_owned(),
        ];
        let [tenant, project, stage] = [&tenant, &project, &stage].map(|name| shell_word(name.as_str()));
        match version {
            None => lines.push(format!(
                "  omgctl developer deploy {tenant} {project} {stage} --config version.json --image IMAGE"
            )),
            Some(version) => lines.extend([
                format!("  omgctl developer createImage {tenant} {project} {version} UNIVERSAL IMAGE"),
                format!("  omgctl developer deployVersion {tenant} {project} {stage} {version}"),
            ]),
        }
        lines.join("\n")
    });
    Ok(())
}

async fn provide_tenant(context: &mut Context, tenant: &Text) -> Result {
    let call = ListProjects {
        tenant: tenant.clone(),
        paging: Default::default(),
    };
    match context.send(ROLE, &call).await {
        Err(refused) if refused.status == Some(404) => {}
        answer => return answer.map(drop),
    }
    let created = context.send(ROLE, &CreateTenant {}).await?;
    let call = CreateTenantAlias {
        tenant_id: created.id,
        alias: tenant.clone(),
    };
    context.send(ROLE, &call).await?;
    context
        .output
        .note(format_args!("Tenant {} was created as {tenant}.", created.id));
    Ok(())
}

async fn provide_project(context: &mut Context, tenant: &Text, project: &Text) -> Result {
    let call = |paging| ListProjects {
        tenant: tenant.clone(),
        paging,
    };
    let projects = context.collect(ROLE, Default::default(), call).await?;
    if projects.iter().any(|row| is_called(row.id, &row.aliases, project)) {
        return Ok(());
    }
    let call = CreateProject { tenant: tenant.clone() };
    let created = context.send(ROLE, &call).await?;
    let call = CreateProjectAlias {
        tenant: tenant.clone(),
        project_id: created.project_id,
        alias: project.clone(),
    };
    context.send(ROLE, &call).await?;
    context
        .output
        .note(format_args!("Project {} was created as {project}.", created.project_id));
    Ok(())
}

/// The stage of that name; else the first one without a name gets it; else a new one.
async fn provide_stage(context: &mut Context, tenant: &Text, project: &Text, stage: &Text) -> Result<Stage> {
    let list = |paging| ListStages {
        tenant: tenant.clone(),
        project: project.clone(),
        paging,
    };
    let mut stages = context.collect(ROLE, Default::default(), list).await?;
    if let Some(at) = stages.iter().position(|row| is_called(row.id, &row.aliases, stage)) {
        return Ok(stages.swap_remove(at));
    }
    let nameless = stages
        .iter()
        .filter(|row| row.aliases.is_empty())
        .map(|row| row.id)
        .min();
    let stage_id = match nameless {
        Some(id) => id,
        None => {
            let call = CreateStage {
                tenant: tenant.clone(),
                project: project.clone(),
            };
            context.send(ROLE, &call).await?.stage_id
        }
    };
    let call = CreateStageAlias {
        tenant: tenant.clone(),
        stage_id,
        alias: stage.clone(),
    };
    context.send(ROLE, &call).await?;
    context
        .output
        .note(format_args!("Stage {stage_id} is called {stage} now."));
    let stages = context.collect(ROLE, Default::default(), list).await?;
    let found = stages.into_iter().find(|row| row.id == stage_id);
    found.ok_or_else(|| Failure::refused(format!("the stage {stage} went away at this moment")))
}

/// Whoever is logged in as developer and still known there; else a new one.
async fn provide_developer(context: &mut Context) -> Result<UserId> {
    let stored = ["USER", "PASSWORD"].map(|suffix| context.stored(Role::Developer, suffix));
    if let [Some(user), Some(_)] = stored {
        match context.log_in_again(Role::Developer).await {
            Ok(_) => return support::id_of(context, &user).await,
            Err(refused) if matches!(refused.status, Some(401 | 404)) => context.output.note(format_args!(
                "Developer {user} is not known there, or has another password."
            )),
            Err(failure) => return Err(failure),
        }
    }
    let developer = support::provide_developer(context).await?;
    context.output.note(format_args!(
        "Developer {} was created with the password {} and is logged in.",
        developer.user_id, developer.password
    ));
    Ok(developer.user_id)
}

pub(super) fn is_called(id: impl Display, aliases: &[Alias], name: &Text) -> bool {
    id.to_string() == name.as_str() || aliases.iter().any(|alias| alias.value == name.as_str())
}

/// An id where a name is expected.
pub(super) fn name_of(id: impl Display) -> Text {
    Text::new(id.to_string()).expect("an id is short")
}
