//! What every command works with: the stored state, the way to the service, the way to the reader.

use std::fmt;
use std::path::Path;

use omgservers_protocol::call::{Deleted, Page, Paging, RawToken};
use omgservers_protocol::text::Text;
use omgservers_protocol::{Call, Qualifier, admin, developer, support};
use serde::Serialize;

use crate::arguments::Listing;
use crate::failure::{self, Failure, Result};
use crate::output::Output;
use crate::request_log::RequestLog;
use crate::show::Reply;
use crate::state::State;
use crate::table::Row;
use omgservers_protocol::client::{CallError, Client};

/// How keys of programs begin.
pub(crate) const KEY_PREFIX: &str = "omgk.";

/// As whom a command speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Admin,
    Support,
    Developer,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Support => "support",
            Self::Developer => "developer",
        }
    }

    /// Such as `ADMIN_TOKEN`.
    pub(crate) fn variable(self, suffix: &str) -> String {
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

    /// Asks, stores what scripts read later, and prints the reply.
    pub(crate) async fn ask<C>(&mut self, role: Role, call: &C) -> Result
    where
        C: Call,
        C::Reply: Reply,
    {
        let reply = self.send(role, call).await?;
        self.print(&reply)
    }

    pub(crate) fn print(&mut self, reply: &impl Reply) -> Result {
        let variables = reply.variables();
        if !variables.is_empty() {
            self.state.set(variables)?;
        }
        self.output.result(reply, Reply::text);
        Ok(())
    }

    /// Asks, and tells people the reply by a sentence.
    pub(crate) async fn tell<C: Call>(
        &mut self,
        role: Role,
        call: &C,
        sentence: impl FnOnce(&C::Reply) -> String,
    ) -> Result {
        let reply = self.send(role, call).await?;
        self.output.result(&reply, sentence);
        Ok(())
    }

    /// Asks for a deletion, and tells whether there was something to delete.
    pub(crate) async fn delete<C>(&mut self, role: Role, call: &C, kind: &str, what: impl fmt::Display) -> Result
    where
        C: Call<Reply = Deleted>,
    {
        let reply = self.send(role, call).await?;
        self.state.set([("DELETED", reply.deleted.to_string())])?;
        self.output.result(&reply, |reply| match reply.deleted {
            true => format!("The {kind} {what} was deleted."),
            false => format!("There was no {kind} {what} to delete."),
        });
        Ok(())
    }

    /// Prints a page of a list, or all of it.
    pub(crate) async fn list<C, R>(&mut self, role: Role, listing: &Listing, call: impl Fn(Paging) -> C) -> Result
    where
        C: Call<Reply = Page<R>>,
        R: Row + Serialize,
    {
        let page = if listing.all {
            let items = self.collect(role, listing.paging(), call).await?;
            Page {
                items,
                next_page_token: None,
            }
        } else {
            self.send(role, &call(listing.paging())).await?
        };
        self.print(&page)?;
        if let Some(token) = &page.next_page_token {
            self.output
                .note(format_args!("More follows: --page-token {token}, or --all."));
        }
        Ok(())
    }

    /// Everything from a page on.
    pub(crate) async fn collect<C, R>(
        &mut self,
        role: Role,
        mut paging: Paging,
        call: impl Fn(Paging) -> C,
    ) -> Result<Vec<R>>
    where
        C: Call<Reply = Page<R>>,
    {
        let mut items = Vec::new();
        loop {
            let page = self.send(role, &call(paging.clone())).await?;
            items.extend(page.items);
            match page.next_page_token {
                // Whoever says the same token again would never end.
                Some(token) if paging.page_token.as_ref() != Some(&token) => paging.page_token = Some(token),
                _ => return Ok(items),
            }
        }
    }

    /// Asks as somebody who logged in before.
    pub(crate) async fn send<C: Call>(&mut self, role: Role, call: &C) -> Result<C::Reply> {
        self.send_by(role, call, async |client| client.send(call).await).await
    }

    /// Asks in a way of its own. A token that has expired is replaced once, where user and password are known.
    pub(crate) async fn send_by<C: Call>(
        &mut self,
        role: Role,
        call: &C,
        ask: impl AsyncFn(&Client) -> std::result::Result<C::Reply, CallError>,
    ) -> Result<C::Reply> {
        let client = self.client_of(role)?;
        let answer = self.settle(&client, Some(role), call, ask(&client).await);
        match answer {
            Err(refused) if self.may_log_in_again(role, &refused, C::ROUTE) => {
                if let Err(failure) = self.log_in_again(role).await {
                    return Err(match failure.status {
                        Some(401 | 404) => refused.hint(format!(
                            "neither the stored token nor the stored password is accepted any more; \
                             `omgctl {role} useCredentials USER PASSWORD` logs in again"
                        )),
                        _ => refused,
                    });
                }
                let client = self.client_of(role)?;
                self.settle(&client, Some(role), call, ask(&client).await)
            }
            answer => answer,
        }
    }

    /// Whether it is the token that was refused: a deleted user has another qualifier, a wrong present password comes
    /// from a change of it, and whoever acts by a key has chosen not to act by password.
    fn may_log_in_again(&self, role: Role, refused: &Failure, route: &str) -> bool {
        refused.status == Some(401)
            && refused.qualifier == Some(Qualifier::WrongCredentials)
            && !route.ends_with("change-password")
            && !(role == Role::Developer && self.acts_by_key())
            && self.stored(role, "USER").is_some()
            && self.stored(role, "PASSWORD").is_some()
    }

    /// The way to the installation as somebody who logged in before.
    pub(crate) fn client_of(&self, role: Role) -> Result<Client> {
        let client = self.client()?;
        let token = self.state.get(&role.variable("TOKEN")).ok_or_else(|| {
            let login = match role {
                Role::Admin | Role::Support => format!("`omgctl {role} useCredentials USER PASSWORD`, or `omgctl environment useLocal`"),
                Role::Developer => "`omgctl developer useCredentials USER PASSWORD`; support makes one by `omgctl support createDeveloper`".to_owned(),
            };
            Failure::refused(format!("nobody is logged in as {role}")).hint(format!("log in by {login}"))
        })?;
        Ok(client.with_token(token))
    }

    /// Logs in and remembers it.
    pub(crate) async fn log_in(&mut self, role: Role, user: Text, password: Text) -> Result<RawToken> {
        let token = self.token_for(role, &user, &password).await?;
        self.remember(role, &user, &password, &token)?;
        Ok(token)
    }

    /// Logs in as somebody of this role and remembers it; whoever has another role is not remembered.
    pub(crate) async fn log_in_as(&mut self, role: Role, user: Text, password: Text) -> Result<RawToken> {
        let token = self.token_for(role, &user, &password).await?;
        let client = self.client()?.with_token(&token.raw_token);
        // Every password opens the door of every role; what is behind it opens to the right one only.
        let answer = match role {
            Role::Admin => self.exchange(&client, Some(role), &admin::RenewToken {}).await,
            Role::Support => self.exchange(&client, Some(role), &support::RenewToken {}).await,
            Role::Developer => self.exchange(&client, Some(role), &developer::RenewToken {}).await,
        };
        if answer.is_err_and(|refused| refused.status == Some(403)) {
            let failure = Failure::refused(format!("{user} is known there, but not as {role}"));
            return Err(failure.hint("`omgctl admin listUsers` tells everybody's role"));
        }
        self.remember(role, &user, &password, &token)?;
        Ok(token)
    }

    async fn token_for(&self, role: Role, user: &Text, password: &Text) -> Result<RawToken> {
        let client = self.client()?;
        let (user, password) = (user.clone(), password.clone());
        match role {
            Role::Admin => {
                let call = admin::CreateToken { user, password };
                self.exchange(&client, None, &call).await
            }
            Role::Support => {
                let call = support::CreateToken { user, password };
                self.exchange(&client, None, &call).await
            }
            Role::Developer => {
                let call = developer::CreateToken {
                    user_id: user,
                    password,
                };
                self.exchange(&client, None, &call).await
            }
        }
    }

    fn remember(&mut self, role: Role, user: &Text, password: &Text, token: &RawToken) -> Result {
        self.store(
            role,
            [
                ("USER", user.to_string()),
                ("PASSWORD", password.to_string()),
                ("TOKEN", token.raw_token.clone()),
            ],
        )
    }

    /// Logs in with what is remembered.
    pub(crate) async fn log_in_again(&mut self, role: Role) -> Result<RawToken> {
        let (Some(user), Some(password)) = (self.stored(role, "USER"), self.stored(role, "PASSWORD")) else {
            return Err(nobody(role));
        };
        self.log_in(role, user, password).await
    }

    /// A stored value of a role, such as its `USER`.
    pub(crate) fn stored(&self, role: Role, suffix: &str) -> Option<Text> {
        self.state.get(&role.variable(suffix)).and_then(Text::new)
    }

    /// Stores values of a role, such as its `TOKEN`.
    pub(crate) fn store<const N: usize>(&mut self, role: Role, values: [(&str, String); N]) -> Result {
        let names = values.each_ref().map(|(suffix, _)| role.variable(suffix));
        let changes = names.iter().map(String::as_str).zip(values.map(|(_, value)| value));
        Ok(self.state.set(changes)?)
    }

    /// Who is remembered, and whether there is a token.
    pub(crate) fn print_current(&self, role: Role) -> Result {
        let user = self.state.get(&role.variable("USER"));
        let token = self.state.get(&role.variable("TOKEN")).is_some();
        let key = role == Role::Developer && self.acts_by_key();
        if user.is_none() && !key {
            return Err(nobody(role));
        }
        let value = serde_json::json!({"user": user, "token": token, "api_key": key});
        self.output.result(&value, |_| {
            let token = match (token, key) {
                (_, true) => "a key is used instead of the password",
                (true, false) => "a token is stored",
                (false, false) => "no token is stored",
            };
            format!(
                "The current {role} is {}; {token}.",
                user.unwrap_or("whoever made the key")
            )
        });
        Ok(())
    }

    /// The address that was chosen.
    pub(crate) fn address(&self) -> Result<&str> {
        self.state.get("SERVICE_URL").ok_or_else(|| {
            Failure::refused("no installation is chosen")
                .hint("`omgctl environment useLocal` for the one on this machine, or `omgctl environment useEnvironment NAME URL`")
        })
    }

    fn client(&self) -> Result<Client> {
        Client::new(self.address()?).map_err(|cause| Failure::of_call(cause, None, ""))
    }

    /// Writes a request down and translates its failure.
    pub(crate) fn settle<C: Call>(
        &self,
        client: &Client,
        role: Option<Role>,
        call: &C,
        answer: std::result::Result<C::Reply, CallError>,
    ) -> Result<C::Reply> {
        let recorded = match &answer {
            Ok(reply) => serde_json::to_value(reply).map_err(|cause| cause.to_string()),
            Err(cause) => Err(cause.to_string()),
        };
        self.log.add(&format!("{}{}", client.base(), C::ROUTE), call, recorded);
        answer.map_err(|cause| {
            let status = cause.status();
            let failure = Failure::of_call(cause, role, C::ROUTE);
            match (status, role) {
                (Some(401), Some(role)) if failure.hint.is_none() => failure.hint(self.hint_to_log_in(role)),
                // The permission of its owner may be missing as well as a scope of the key.
                (Some(403), Some(Role::Developer)) if self.acts_by_key() && failure.message.contains("scope") => {
                    failure.hint(failure::hint_for_key(C::ROUTE))
                }
                _ => failure,
            }
        })
    }

    fn acts_by_key(&self) -> bool {
        let token = self.state.get(&Role::Developer.variable("TOKEN"));
        token.is_some_and(|token| token.starts_with(KEY_PREFIX))
    }

    /// What helps somebody whose token is refused.
    fn hint_to_log_in(&self, role: Role) -> String {
        let token = self.state.get(&role.variable("TOKEN")).unwrap_or_default();
        if role == Role::Developer && token.starts_with(KEY_PREFIX) {
            "the key has expired or was deleted: `omgctl developer useApiKey KEY` stores another one; \
             `omgctl developer createToken` goes back to user and password"
                .to_owned()
        } else if self.stored(role, "USER").is_some() && self.stored(role, "PASSWORD").is_some() {
            format!("the stored token is no longer accepted; `omgctl {role} createToken` gets a new one")
        } else {
            format!(
                "the stored token is no longer accepted; `omgctl {role} useCredentials USER PASSWORD` logs in again"
            )
        }
    }

    async fn exchange<C: Call>(&self, client: &Client, role: Option<Role>, call: &C) -> Result<C::Reply> {
        let answer = client.send(call).await;
        self.settle(client, role, call, answer)
    }
}

fn nobody(role: Role) -> Failure {
    let failure = Failure::refused(format!("no credentials of {role} are stored"));
    failure.hint(format!("`omgctl {role} useCredentials USER PASSWORD` stores them"))
}
