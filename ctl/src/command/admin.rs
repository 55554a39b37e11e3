//! What an admin does.

use omgservers_protocol::admin::GenerateId;

use crate::arguments::Admin;
use crate::context::{Context, Role};
use crate::failure::Result;
use crate::input;

pub(crate) async fn run(context: &mut Context, command: Admin) -> Result {
    match command {
        Admin::UseCredentials(credentials) => {
            let password = input::password(&credentials.password)?;
            let token = context.log_in(Role::Admin, credentials.user, password).await?;
            context.output.result(&token, |_| "Logged in as admin.".to_owned());
        }
        Admin::PrintCurrent => context.print_current(Role::Admin)?,
        Admin::CreateToken => {
            let token = context.log_in_again(Role::Admin).await?;
            context.output.result(&token, |_| "Logged in as admin.".to_owned());
        }
        Admin::GenerateId => {
            let generated = context.send(Role::Admin, &GenerateId {}).await?;
            context.state.set([("GENERATED_ID", generated.id.to_string())])?;
            context.output.result(&generated, |generated| generated.id.to_string());
        }
    }
    Ok(())
}
