//! What everybody does who has a password, whatever the role.

use omgservers_protocol::call::{Empty, PasswordChange, RawToken};
use omgservers_protocol::{admin, developer, support};

use crate::arguments::Login;
use crate::context::{Context, Role};
use crate::failure::Result;
use crate::input;

pub(super) async fn run(context: &mut Context, role: Role, command: Login) -> Result {
    match command {
        Login::UseCredentials { user, password } => {
            let password = input::password(&password)?;
            let token = context.log_in_as(role, user, password).await?;
            print(context, role, &token);
        }
        Login::PrintCurrent => context.print_current(role)?,
        Login::CreateToken => {
            let token = context.log_in_again(role).await?;
            print(context, role, &token);
        }
        Login::RenewToken => {
            let token = renew(context, role).await?;
            context.store(role, [("TOKEN", token.raw_token.clone())])?;
            context
                .output
                .result(&token, |_| format!("The token of {role} was renewed."));
        }
        Login::ChangePassword { password, new_password } => {
            let change = PasswordChange {
                password: input::password(&password)?,
                new_password: input::password(&new_password)?,
            };
            let new = change.new_password.clone();
            let done = change_password(context, role, change).await?;
            // The stored token ended with the old password.
            if let Some(user) = context.stored(role, "USER") {
                context.log_in(role, user, new).await?;
            }
            context
                .output
                .result(&done, |_| format!("The password of {role} was changed."));
        }
    }
    Ok(())
}

fn print(context: &Context, role: Role, token: &RawToken) {
    context.output.result(token, |_| format!("Logged in as {role}."));
}

async fn renew(context: &mut Context, role: Role) -> Result<RawToken> {
    match role {
        Role::Admin => context.send(role, &admin::RenewToken {}).await,
        Role::Support => context.send(role, &support::RenewToken {}).await,
        Role::Developer => context.send(role, &developer::RenewToken {}).await,
    }
}

async fn change_password(context: &mut Context, role: Role, change: PasswordChange) -> Result<Empty> {
    match role {
        Role::Admin => context.send(role, &admin::ChangePassword(change)).await,
        Role::Support => context.send(role, &support::ChangePassword(change)).await,
        Role::Developer => context.send(role, &developer::ChangePassword(change)).await,
    }
}
