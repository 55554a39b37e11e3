//! What support does: tenants, developers and what they may do.

use omgservers_protocol::support::{
    CreateDeveloper, CreateTenant, CreateTenantAlias, CreateTenantPermissions, DeleteTenant,
};
use omgservers_protocol::text::Text;

use crate::arguments::Support;
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::input;

pub(crate) async fn run(context: &mut Context, command: Support) -> Result {
    match command {
        Support::UseCredentials(credentials) => {
            let password = input::password(&credentials.password)?;
            let token = context.log_in(Role::Support, credentials.user, password).await?;
            context.output.result(&token, |_| "Logged in as support.".to_owned());
        }
        Support::PrintCurrent => context.print_current(Role::Support)?,
        Support::CreateToken => {
            let token = context.log_in_again(Role::Support).await?;
            context.output.result(&token, |_| "Logged in as support.".to_owned());
        }
        Support::CreateTenant => {
            let tenant = context.send(Role::Support, &CreateTenant {}).await?;
            context.state.set([("TENANT", tenant.id.to_string())])?;
            context
                .output
                .result(&tenant, |tenant| format!("Tenant {} was created.", tenant.id));
        }
        Support::CreateTenantAlias { tenant_id, alias } => {
            let name = alias.clone();
            let done = context
                .send(Role::Support, &CreateTenantAlias { tenant_id, alias })
                .await?;
            context
                .output
                .result(&done, |_| format!("Tenant {tenant_id} is also called {name}."));
        }
        Support::DeleteTenant { tenant } => {
            let call = DeleteTenant { tenant };
            let deleted = context.send(Role::Support, &call).await?;
            context.print_deleted("tenant", &call.tenant, deleted)?;
        }
        Support::CreateDeveloper => create_developer(context).await?,
        Support::CreateTenantPermission {
            tenant,
            user,
            permission,
        } => {
            let call = CreateTenantPermissions {
                tenant,
                user_id: user,
                permissions_to_create: vec![permission],
            };
            let created = context.send(Role::Support, &call).await?;
            context.output.result(&created, |created| {
                let (tenant, permission) = (&call.tenant, permission.as_str());
                if created.created_permissions.is_empty() {
                    format!("Developer {user} has {permission} on tenant {tenant} already, or the tenant is deleted.")
                } else {
                    format!("Developer {user} has {permission} on tenant {tenant} now.")
                }
            });
        }
    }
    Ok(())
}

async fn create_developer(context: &mut Context) -> Result {
    let developer = context.send(Role::Support, &CreateDeveloper {}).await?;
    let text = |value: String| {
        Text::new(value).ok_or_else(|| Failure::usage("the service sent a password that is no password"))
    };
    let (user, password) = (text(developer.user_id.to_string())?, text(developer.password.clone())?);
    context.log_in(Role::Developer, user, password).await?;
    context.output.result(&developer, |developer| {
        format!(
            "Developer {} was created with the password {}",
            developer.user_id, developer.password
        )
    });
    context
        .output
        .note("The password is shown this once. Logged in as that developer.");
    Ok(())
}
