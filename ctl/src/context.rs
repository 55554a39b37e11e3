//! What every command works with: the stored state, the way to the service, the way to the reader.

use std::fmt;
use std::path::Path;

use omgservers_protocol::call::{Deleted, RawToken};
use omgservers_protocol::client::Client;
use omgservers_protocol::text::Text;
use omgservers_protocol::{Call, admin, developer, support};

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::request_log::RequestLog;
use crate::state::State;

/// As whom a command speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Admin,
    Support,
    Developer,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admin => "admin",
            Self::Support => "support",
            Self::Developer => "developer",
        })
    }
}

impl Role {
    /// Such as `ADMIN_TOKEN`.
    fn variable(self, suffix: &str) -> String {
        format!("{self}_{suffix}").to_uppercase()
    }
}

pub(crate) struct Context {
    pub(crate) state: State,
    pub(crate) output: Output,
    log: RequestLog,
}

impl Context {
    pub(crate) fn open(directory: &Path, output: Output) -> Result<Self> {
        let state = State::open(directory)?;
        let log = RequestLog::new(state.directory());
        Ok(Self { state, output, log })
    }

    pub(crate) fn print_log(&self) -> Result {
        let log = self
            .log
            .read()
            .map_err(|cause| Failure::refused(format!("cannot read the log: {cause}")))?;
        self.output.bare(log);
        Ok(())
    }

    /// Asks as somebody who logged in before.
    pub(crate) async fn send<C: Call>(&self, role: Role, call: &C) -> Result<C::Reply> {
        let client = self.client()?;
        let token = self.state.get(&role.variable("TOKEN")).ok_or_else(|| {
            let login = match role {
                Role::Admin | Role::Support => format!("`omgctl {role} useCredentials USER PASSWORD`, or `omgctl environment useLocal`"),
                Role::Developer => "`omgctl developer useCredentials USER PASSWORD`; support makes one by `omgctl support createDeveloper`".to_owned(),
            };
            Failure::refused(format!("nobody is logged in as {role}")).hint(format!("log in by {login}"))
        })?;
        self.exchange(&client.with_token(token), Some(role), call).await
    }

    /// Logs in and remembers it.
    pub(crate) async fn log_in(&mut self, role: Role, user: Text, password: Text) -> Result<RawToken> {
        let client = self.client()?;
        let [user_variable, password_variable, token_variable] =
            ["USER", "PASSWORD", "TOKEN"].map(|suffix| role.variable(suffix));
        let credentials = [
            (user_variable.as_str(), user.to_string()),
            (password_variable.as_str(), password.to_string()),
        ];
        let token = match role {
            Role::Admin => {
                self.exchange(&client, None, &admin::CreateToken { user, password })
                    .await
            }
            Role::Support => {
                self.exchange(&client, None, &support::CreateToken { user, password })
                    .await
            }
            Role::Developer => {
                let user_id = user
                    .as_id()
                    .ok_or_else(|| Failure::usage(format!("`{user}` is not the id of a developer")))?;
                let call = developer::CreateToken {
                    user_id: user_id.into(),
                    password,
                };
                self.exchange(&client, None, &call).await
            }
        }?;
        self.state.set(credentials)?;
        self.state.set([(token_variable.as_str(), token.raw_token.clone())])?;
        Ok(token)
    }

    /// Logs in with what is remembered.
    pub(crate) async fn log_in_again(&mut self, role: Role) -> Result<RawToken> {
        let stored = |suffix| self.state.get(&role.variable(suffix)).and_then(Text::new);
        let (Some(user), Some(password)) = (stored("USER"), stored("PASSWORD")) else {
            let failure = Failure::refused(format!("no credentials of {role} are stored"));
            return Err(failure.hint(format!("`omgctl {role} useCredentials USER PASSWORD` stores them")));
        };
        self.log_in(role, user, password).await
    }

    /// Who is remembered, and whether there is a token.
    pub(crate) fn print_current(&self, role: Role) -> Result {
        let Some(user) = self.state.get(&role.variable("USER")) else {
            let failure = Failure::refused(format!("no credentials of {role} are stored"));
            return Err(failure.hint(format!("`omgctl {role} useCredentials USER PASSWORD` stores them")));
        };
        let token = self.state.get(&role.variable("TOKEN")).is_some();
        let value = serde_json::json!({"user": user, "token": token});
        self.output.result(&value, |_| {
            let token = if token {
                "a token is stored"
            } else {
                "no token is stored"
            };
            format!("The current {role} is {user}; {token}.")
        });
        Ok(())
    }

    /// Whether there was something to delete.
    pub(crate) fn print_deleted(&mut self, kind: &str, what: impl fmt::Display, reply: Deleted) -> Result {
        self.state.set([("DELETED", reply.deleted.to_string())])?;
        self.output.result(&reply, |reply| match reply.deleted {
            true => format!("The {kind} {what} was deleted."),
            false => format!("There was no {kind} {what} to delete."),
        });
        Ok(())
    }

    fn client(&self) -> Result<Client> {
        let Some(url) = self.state.get("SERVICE_URL") else {
            let failure = Failure::refused("no installation is chosen");
            return Err(failure.hint("`omgctl environment useLocal` for the one on this machine, or `omgctl environment useEnvironment NAME URL`"));
        };
        Client::new(url).map_err(|cause| Failure::of_call(cause, None, ""))
    }

    async fn exchange<C: Call>(&self, client: &Client, role: Option<Role>, call: &C) -> Result<C::Reply> {
        let answer = client.send(call).await;
        let recorded = match &answer {
            Ok(reply) => serde_json::to_value(reply).map_err(|cause| cause.to_string()),
            Err(cause) => Err(cause.to_string()),
        };
        self.log.add(&format!("{}{}", client.base(), C::ROUTE), call, recorded);
        answer.map_err(|cause| Failure::of_call(cause, role, C::ROUTE))
    }
}
