//! What an admin does: the installation and its operators.

use omgservers_protocol::admin::{
    BcryptHash, CalculateShard, GenerateId, ListAuditRecords, ListFailedJobs, ListHosts, ListInstances, ListShards,
    ListUsers, PingDockerHost, ResetPassword,
};
use omgservers_protocol::text::Text;

use super::login;
use crate::arguments::Admin;
use crate::context::{Context, Role};
use crate::failure::Result;
use crate::input;

const ROLE: Role = Role::Admin;

pub(crate) async fn run(context: &mut Context, command: Admin) -> Result {
    match command {
        Admin::Login(command) => login::run(context, ROLE, command).await,
        Admin::CalculateShard { shard_key } => {
            let shard_key = Text::any(shard_key);
            context.ask(ROLE, &CalculateShard { shard_key }).await
        }
        Admin::GenerateId => context.ask(ROLE, &GenerateId {}).await,
        Admin::BcryptHash { value } => {
            let value = input::secret(&value)?;
            context.ask(ROLE, &BcryptHash { value }).await
        }
        Admin::PingDockerHost { docker_daemon_uri } => context.ask(ROLE, &PingDockerHost { docker_daemon_uri }).await,
        Admin::ResetPassword { user } => {
            let sentence = |user: &_| super::support::new_password(user);
            context.tell(ROLE, &ResetPassword { user }, sentence).await
        }
        Admin::ListShards(listing) => context.list(ROLE, &listing, |paging| ListShards { paging }).await,
        Admin::ListInstances(listing) => context.list(ROLE, &listing, |paging| ListInstances { paging }).await,
        Admin::ListHosts(listing) => context.list(ROLE, &listing, |paging| ListHosts { paging }).await,
        Admin::ListFailedJobs(listing) => context.list(ROLE, &listing, |paging| ListFailedJobs { paging }).await,
        Admin::ListUsers { role, listing } => {
            let call = |paging| ListUsers {
                role: role.clone(),
                paging,
            };
            context.list(ROLE, &listing, call).await
        }
        Admin::ListAuditRecords(listing) => context.list(ROLE, &listing, |paging| ListAuditRecords { paging }).await,
    }
}
