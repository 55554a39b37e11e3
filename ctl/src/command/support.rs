//! What support does: tenants, developers and what they may do.

use std::fmt::Display;

use omgservers_protocol::admin::User;
use omgservers_protocol::call::Paging;
use omgservers_protocol::id::UserId;
use omgservers_protocol::support::{
    CreateDeveloper, CreateDeveloperAlias, CreateProject, CreateProjectAlias, CreateProjectPermissions, CreateStage,
    CreateStageAlias, CreateStagePermissions, CreateTenant, CreateTenantAlias, CreateTenantPermissions, CreatedUser,
    DeleteDeveloper, DeleteProject, DeleteProjectPermissions, DeleteStage, DeleteStagePermissions, DeleteTenant,
    DeleteTenantPermissions, GetTenantQuotas, ListDevelopers, ListPermissions, ListProjects, ListStages, ListTenants,
    ListUsage, ResetDeveloperPassword, SetTenantQuotas,
};
use omgservers_protocol::text::Text;

use super::{invite, login};
use crate::arguments::support::{PermissionCommand, Support};
use crate::arguments::{Deletion, Project, Stage, Tenant};
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::input;
use crate::state::shell_word;

const ROLE: Role = Role::Support;

pub(crate) async fn run(context: &mut Context, command: Support) -> Result {
    match command {
        Support::Login(command) => login::run(context, ROLE, command).await,
        Support::CreateTenant => context.ask(ROLE, &CreateTenant {}).await,
        Support::CreateTenantAlias { tenant_id, alias } => {
            let sentence = called("Tenant", tenant_id, &alias);
            context
                .tell(ROLE, &CreateTenantAlias { tenant_id, alias }, |_| sentence)
                .await
        }
        Support::DeleteTenant(Deletion { of, yes }) => {
            input::confirm_by_name(yes, "tenant", &of.tenant)?;
            let call = DeleteTenant { tenant: of.tenant };
            context.delete(ROLE, &call, "tenant", &call.tenant).await
        }
        Support::ListTenants(listing) => context.list(ROLE, &listing, |paging| ListTenants { paging }).await,
        Support::SetTenantQuotas { of, quotas } => {
            let call = SetTenantQuotas {
                tenant: of.tenant.clone(),
                quotas: quotas.into(),
            };
            context.send(ROLE, &call).await?;
            context.ask(ROLE, &GetTenantQuotas { tenant: of.tenant }).await
        }
        Support::GetTenantQuotas(Tenant { tenant }) => context.ask(ROLE, &GetTenantQuotas { tenant }).await,
        Support::ListUsage { of, listing } => {
            let call = |paging| ListUsage {
                tenant: of.tenant.clone(),
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        Support::CreateProject(Tenant { tenant }) => context.ask(ROLE, &CreateProject { tenant }).await,
        Support::CreateProjectAlias { of, project_id, alias } => {
            let sentence = called("Project", project_id, &alias);
            let call = CreateProjectAlias {
                tenant: of.tenant,
                project_id,
                alias,
            };
            context.tell(ROLE, &call, |_| sentence).await
        }
        Support::DeleteProject(Deletion { of, yes }) => {
            let Project { tenant, project } = of;
            input::confirm_by_name(yes, "project", &project)?;
            let call = DeleteProject { tenant, project };
            context.delete(ROLE, &call, "project", &call.project).await
        }
        Support::ListProjects { of, listing } => {
            let call = |paging| ListProjects {
                tenant: of.tenant.clone(),
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        Support::CreateStage(Project { tenant, project }) => context.ask(ROLE, &CreateStage { tenant, project }).await,
        Support::CreateStageAlias { of, stage_id, alias } => {
            let sentence = called("Stage", stage_id, &alias);
            let call = CreateStageAlias {
                tenant: of.tenant,
                stage_id,
                alias,
            };
            context.tell(ROLE, &call, |_| sentence).await
        }
        Support::DeleteStage(Deletion { of, yes }) => {
            let Stage { tenant, project, stage } = of;
            input::confirm_by_name(yes, "stage", &stage)?;
            let call = DeleteStage { tenant, project, stage };
            context.delete(ROLE, &call, "stage", &call.stage).await
        }
        Support::ListStages { of, listing } => {
            let call = |paging| ListStages {
                tenant: of.tenant.clone(),
                project: of.project.clone(),
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        Support::CreateDeveloper => create_developer(context).await,
        Support::CreateDeveloperAlias { of, alias } => {
            let sentence = called("Developer", &of.user, &alias);
            let call = CreateDeveloperAlias {
                user_id: id_of(context, &of.user).await?,
                alias,
            };
            context.tell(ROLE, &call, |_| sentence).await
        }
        Support::ResetDeveloperPassword(of) => {
            let user_id = id_of(context, &of.user).await?;
            let call = ResetDeveloperPassword { user_id };
            context.tell(ROLE, &call, new_password).await
        }
        Support::DeleteDeveloper(of) => {
            let user_id = id_of(context, &of.user).await?;
            let call = DeleteDeveloper { user_id };
            context.delete(ROLE, &call, "developer", of.user).await
        }
        Support::ListDevelopers(listing) => context.list(ROLE, &listing, |paging| ListDevelopers { paging }).await,
        Support::InviteDeveloper(invitation) => invite::run(context, invitation).await,
        Support::Permission(command) => run_permission(context, command).await,
    }
}

/// Calls that grant and revoke differ in their names only: on what, which call, which fields name the place.
macro_rules! permission {
    (create, $context:ident, $on:ident, $place:literal, $call:ident { $($field:ident),* }) => {{
        let (words, place) = ($on.permissions.clone(), format!($place, $($field = $on.of.$field),*));
        let call = $call {
            $($field: $on.of.$field,)*
            user_id: id_of($context, &$on.user).await?,
            permissions_to_create: $on.permissions,
        };
        let sentence = |reply: &<$call as omgservers_protocol::Call>::Reply| {
            let has = reply.created_permissions.iter().map(|word| word.as_str());
            changed(words.iter().map(|word| word.as_str()), has, |word, is_new| match is_new {
                true => format!("Developer {} has {word} on {place} now.", $on.user),
                false => format!("Developer {} has {word} on {place} already, or it is deleted.", $on.user),
            })
        };
        $context.tell(ROLE, &call, sentence).await
    }};
    (delete, $context:ident, $on:ident, $place:literal, $call:ident { $($field:ident),* }) => {{
        let (words, place) = ($on.permissions.clone(), format!($place, $($field = $on.of.$field),*));
        let call = $call {
            $($field: $on.of.$field,)*
            user_id: id_of($context, &$on.user).await?,
            permissions_to_delete: $on.permissions,
        };
        let sentence = |reply: &<$call as omgservers_protocol::Call>::Reply| {
            let had = reply.deleted_permissions.iter().map(|word| word.as_str());
            changed(words.iter().map(|word| word.as_str()), had, |word, is_new| match is_new {
                true => format!("Developer {} has {word} on {place} no longer.", $on.user),
                false => format!("Developer {} did not have {word} on {place}.", $on.user),
            })
        };
        $context.tell(ROLE, &call, sentence).await
    }};
}

async fn run_permission(context: &mut Context, command: PermissionCommand) -> Result {
    match command {
        PermissionCommand::CreateTenantPermission(on) => {
            permission!(
                create,
                context,
                on,
                "tenant {tenant}",
                CreateTenantPermissions { tenant }
            )
        }
        PermissionCommand::DeleteTenantPermission(on) => {
            permission!(
                delete,
                context,
                on,
                "tenant {tenant}",
                DeleteTenantPermissions { tenant }
            )
        }
        PermissionCommand::CreateProjectPermission(on) => {
            permission!(
                create,
                context,
                on,
                "project {project} of tenant {tenant}",
                CreateProjectPermissions { tenant, project }
            )
        }
        PermissionCommand::DeleteProjectPermission(on) => {
            permission!(
                delete,
                context,
                on,
                "project {project} of tenant {tenant}",
                DeleteProjectPermissions { tenant, project }
            )
        }
        PermissionCommand::CreateStagePermission(on) => {
            permission!(
                create,
                context,
                on,
                "stage {stage} of project {project} of tenant {tenant}",
                CreateStagePermissions { tenant, project, stage }
            )
        }
        PermissionCommand::DeleteStagePermission(on) => {
            permission!(
                delete,
                context,
                on,
                "stage {stage} of project {project} of tenant {tenant}",
                DeleteStagePermissions { tenant, project, stage }
            )
        }
        PermissionCommand::ListPermissions(of) => {
            let call = |paging| ListPermissions {
                tenant: of.of.tenant.clone(),
                project: of.project.clone(),
                stage: of.stage.clone(),
                paging,
            };
            context.list(ROLE, &of.listing, call).await
        }
    }
}

/// A line for every word that was asked for: whether something changed by it.
fn changed<'a>(
    asked: impl Iterator<Item = &'a str>,
    done: impl Iterator<Item = &'a str> + Clone,
    line: impl Fn(&str, bool) -> String,
) -> String {
    let lines: Vec<_> = asked
        .map(|word| line(word, done.clone().any(|done| done == word)))
        .collect();
    lines.join("\n")
}

/// The service knows developers by their ids only, people know them by their names too.
pub(super) async fn id_of(context: &mut Context, user: &Text) -> Result<UserId> {
    if let Some(id) = user.as_id() {
        return Ok(UserId(id));
    }
    let paging = Paging {
        page_size: Some(500),
        page_token: None,
    };
    let developers = context
        .collect(ROLE, paging, |paging| ListDevelopers { paging })
        .await?;
    let is_it = |row: &&User| !row.deleted && row.aliases.iter().any(|alias| alias == user.as_str());
    let found = developers.iter().find(is_it).map(|row| row.id);
    found.ok_or_else(|| {
        Failure::refused(format!("there is no developer called {user}"))
            .hint("`omgctl support listDevelopers --all` shows who is there")
    })
}

pub(super) fn called(kind: &str, id: impl Display, alias: &Text) -> String {
    format!("{kind} {id} is also called {alias}.")
}

pub(super) fn new_password(user: &CreatedUser) -> String {
    format!("The password of {} is {} from now on.", user.user_id, user.password)
}

/// Creates a developer and logs in as that developer.
pub(super) async fn provide_developer(context: &mut Context) -> Result<CreatedUser> {
    let developer = context.send(ROLE, &CreateDeveloper {}).await?;
    let text = |value: String| {
        Text::new(value).ok_or_else(|| Failure::usage("the service sent a password that is no password"))
    };
    let (user, password) = (text(developer.user_id.to_string())?, text(developer.password.clone())?);
    context.log_in(Role::Developer, user, password).await?;
    Ok(developer)
}

async fn create_developer(context: &mut Context) -> Result {
    let before = context.stored(Role::Developer, "USER");
    let developer = provide_developer(context).await?;
    context.output.result(&developer, |developer| {
        format!(
            "Developer {} was created with the password {}",
            developer.user_id, developer.password
        )
    });
    context
        .output
        .note("The password is shown this once. Logged in as that developer.");
    if let Some(before) = before.filter(|before| before.as_str() != developer.user_id.to_string()) {
        context.output.warning(format_args!(
            "this replaces the stored login of developer {before}: `omgctl developer useCredentials {} -` goes back to it",
            shell_word(before.as_str())
        ));
    }
    Ok(())
}
