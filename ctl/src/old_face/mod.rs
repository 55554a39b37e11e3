//! The face of the script that came before: its commands, lines and exit codes, for scripts that were written for it.
//! What it remembers is where it always was, so both faces work on the same state.

mod curl;
mod date;
mod table;
mod usage;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::curl::{Answer, Silence};
use self::table::{Argument, Does, Kind, Outcome, Question, ROWS, Row, Using};
use self::usage::usage;
use crate::arguments::Format;
use crate::command::environment::PUBLIC_URL;
use crate::context::Role;
use crate::output::Output;
use crate::request_log::{RequestLog, mask};
use crate::state::{DEFAULT_DIRECTORY, PREFIX, State};
use crate::{json, upload};

/// Whether this program was called by the script's name.
pub(crate) fn is_called_by(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.split('.').next() == Some("omgserversctl"))
}

/// The exit code.
pub(crate) async fn run(program: &str, arguments: &[String]) -> u8 {
    let directory = std::env::var_os(format!("{PREFIX}DIRECTORY")).filter(|directory| !directory.is_empty());
    let directory = directory.map_or(PathBuf::from(DEFAULT_DIRECTORY), PathBuf::from);
    let output = Output::new(Format::Text);
    let state = match State::open(&directory) {
        Ok(state) => state,
        Err(cause) => {
            output.note(format_args!("{cause:#}"));
            return 1;
        }
    };
    let mut face = OldFace {
        program,
        output,
        log: RequestLog::new(state.directory()),
        state,
    };
    match face.dispatch(arguments).await {
        Ok(()) => 0,
        Err(Exit(code)) => code,
    }
}

/// Everything was said; the process ends with this code.
struct Exit(u8);

type Done<T = ()> = Result<T, Exit>;

impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Self {
        Output::new(Format::Text).note(format_args!("{error:#}"));
        Self(1)
    }
}

struct OldFace<'a> {
    /// As it was called.
    program: &'a str,
    output: Output,
    state: State,
    log: RequestLog,
}

impl OldFace<'_> {
    async fn dispatch(&mut self, arguments: &[String]) -> Done {
        let word = |at: usize| arguments.get(at).map_or("", String::as_str);
        let (group, name) = (word(0), word(1));
        match group {
            "help" => self.print_usage(&arguments[1..].join(" ")),
            "logs" => {
                let log = self.log.read().map_err(anyhow::Error::from)?;
                self.output.bare(log);
            }
            group if ROWS.iter().any(|row| row.group == group) => {
                match ROWS.iter().find(|row| row.group == group && row.name == name) {
                    Some(row) => self.run(row, arguments.get(2..).unwrap_or_default()).await?,
                    None => self.print_usage(group),
                }
            }
            _ => self.print_usage(""),
        }
        Ok(())
    }

    fn print_usage(&self, topic: &str) {
        self.output.line(usage(self.program, topic));
    }

    async fn run(&mut self, row: &Row, values: &[String]) -> Done {
        let chooses = matches!(
            row.does,
            Does::Reset | Does::UseEnvironment | Does::UsePublic | Does::UseLocal
        );
        if !chooses && self.state.get("ENVIRONMENT_NAME").is_none() {
            let now = date::now();
            self.output
                .line(format_args!("{now} unknown ERROR: Environment was not configured"));
            return Err(Exit(1));
        }
        // Surplus ones are not looked at, missing and empty ones are the same.
        let given: Vec<_> = row.arguments.iter().zip(values.iter().map(String::as_str)).collect();
        if given.len() < row.arguments.len() || given.iter().any(|(_, value)| value.is_empty()) {
            self.print_usage(&row.path());
            return Err(Exit(1));
        }
        let value = |at: usize| given.get(at).map_or("", |(_, value)| *value);
        match &row.does {
            Does::Reset => self.state.reset()?,
            Does::PrintVariables => self.print_variables(),
            Does::PrintVariable => self.print_variable(value(0))?,
            Does::UseEnvironment => self.use_environment(value(0), value(1))?,
            Does::UsePublic => self.use_environment("public", PUBLIC_URL)?,
            Does::UseLocal => {
                self.use_environment("local", "http://localhost:8080")?;
                for role in [Role::Admin, Role::Support] {
                    self.use_credentials(role, role.name(), role.name()).await?;
                }
            }
            Does::UseCredentials(role) => self.use_credentials(*role, value(0), value(1)).await?,
            Does::PrintCurrent(role) => self.print_current(*role)?,
            Does::CreateToken(role) => self.create_token(*role).await?,
            Does::Ask(question) => self.ask(question, &given).await?,
            Does::Upload => self.upload(&given).await?,
        }
        Ok(())
    }

    fn print_variables(&self) {
        let inherited = std::env::var_os(format!("{PREFIX}DIRECTORY"));
        if let Some(directory) = inherited.as_ref().and_then(|value| value.to_str()) {
            self.output.line(format_args!("{PREFIX}DIRECTORY={directory}"));
        }
        for (name, value) in self.state.all() {
            self.output.line(format_args!("{PREFIX}{name}={value}"));
        }
    }

    fn print_variable(&self, name: &str) -> Done {
        match self.state.get(name) {
            Some(value) => self.output.bare(value),
            None => {
                return self.fail(format_args!("Variable was not found, VARIABLE_NAME={PREFIX}{name}"));
            }
        }
        Ok(())
    }

    fn use_environment(&mut self, name: &str, url: &str) -> Done {
        self.state
            .set([("ENVIRONMENT_NAME", name.to_owned()), ("SERVICE_URL", url.to_owned())])?;
        self.say(format_args!("Environment was set, NAME={name}, SERVICE_URL={url}"));
        Ok(())
    }

    async fn use_credentials(&mut self, role: Role, user: &str, password: &str) -> Done {
        let (user_variable, password_variable) = (role.variable("USER"), role.variable("PASSWORD"));
        self.state.set([
            (user_variable.as_str(), user.to_owned()),
            (password_variable.as_str(), password.to_owned()),
        ])?;
        self.say(format_args!(
            "{} credentials were set, {user_variable}={user}",
            capital(role)
        ));
        self.create_token(role).await
    }

    fn print_current(&self, role: Role) -> Done {
        let Some((user, _)) = self.credentials(role) else {
            let missing = if role == Role::Admin { "set" } else { "found" };
            return self.fail(format_args!("Current {role} was not {missing}"));
        };
        let token = match self.state.get(&role.variable("TOKEN")) {
            Some(_) => "(token exists)",
            None => "(without token)",
        };
        self.say(format_args!(
            "Current {role} was found, {}={user}, {token}",
            role.variable("USER")
        ));
        Ok(())
    }

    async fn create_token(&mut self, role: Role) -> Done {
        let Some((user, password)) = self.credentials(role) else {
            return self.fail(format_args!("Current {role} credentials were not found"));
        };
        // Developers were only known by their ids.
        let field = if role == Role::Developer { "user_id" } else { "user" };
        if role != Role::Developer {
            self.say(format_args!("Using {role}, {}={user}", role.variable("USER")));
        }
        let body = object(&[(field, quoted(&user)), ("password", quoted(&password))]);
        let name = reply_name(role, "create-token", &[&user]);
        let reply = self.request(role, "create-token", None, body, &name).await?;
        let name = if role == Role::Admin {
            "ADMIN_TOKEN"
        } else {
            "RAW_TOKEN"
        };
        let token = self.received(&reply, "raw_token", name)?;
        self.state.set([(role.variable("TOKEN").as_str(), token)])?;
        self.say(format_args!("{} token was created", capital(role)));
        Ok(())
    }

    fn credentials(&self, role: Role) -> Option<(String, String)> {
        let stored = |suffix| self.state.get(&role.variable(suffix)).map(str::to_owned);
        Some((stored("USER")?, stored("PASSWORD")?))
    }

    async fn ask(&mut self, question: &Question, given: &[(&Argument, &str)]) -> Done {
        for (argument, value) in given {
            let is_told = match question.using {
                Using::All => true,
                Using::NoProject => argument.shown != "project",
                Using::Nothing => false,
            };
            if is_told {
                self.say_using(argument, value);
            }
        }
        let mut fields = Vec::new();
        for (argument, value) in given {
            let sent = match argument.kind {
                Kind::Text => quoted(value),
                Kind::Word => format!("[{}]", quoted(value)),
                Kind::Document => self.document(value)?,
            };
            fields.push((argument.field, sent));
        }
        let token = match &question.outcome {
            Outcome::Bare(_) => self
                .state
                .get(&question.role.variable("TOKEN"))
                .unwrap_or_default()
                .to_owned(),
            _ => self.token(question.role)?,
        };
        let (role, operation) = (question.role, question.operation);
        // A text to be hashed is a secret, and a document has no name that says anything.
        let named = given
            .iter()
            .filter(|(argument, _)| argument.kind == Kind::Text && argument.field != "value");
        let named: Vec<_> = named.map(|(_, value)| *value).collect();
        let name = reply_name(role, operation, &named);
        let reply = self
            .request(role, operation, Some(&token), object(&fields), &name)
            .await?;
        self.conclude(question, given, &reply).await
    }

    /// Says what came of it, and stores what scripts read.
    async fn conclude(&mut self, question: &Question, given: &[(&Argument, &str)], reply: &str) -> Done {
        match &question.outcome {
            Outcome::Created(sentence, variables) => {
                let mut line = (*sentence).to_owned();
                for produced in *variables {
                    let value = self.received(reply, produced.field, produced.variable)?;
                    line += &format!(", {}={value}", produced.variable);
                    self.state.set([(produced.variable, value)])?;
                }
                self.say(line);
            }
            Outcome::Said(sentence) => self.say(sentence),
            Outcome::Bare(sentence) => self.output.line(sentence),
            Outcome::Deleted(kind, tells) => {
                let deleted = self.received(reply, "deleted", "DELETED")?;
                let how = if deleted == "true" {
                    "was deleted"
                } else {
                    "was not deleted"
                };
                let what = given.iter().filter(|(argument, _)| tells.contains(&argument.variable));
                let what: String = what
                    .map(|(argument, value)| format!(", {}={value}", argument.variable))
                    .collect();
                self.state.set([("DELETED", deleted)])?;
                self.say(format_args!("{kind} {how}{what}"));
            }
            Outcome::Permissions(sentence, name, field) => {
                let reply: Value = serde_json::from_str(reply).unwrap_or_default();
                self.say(format_args!("{sentence}, {name}={}", reply[*field]));
            }
            Outcome::Details => self.output.line(json::pretty(reply)),
            Outcome::Pinged => {
                let successful = self.received(reply, "successful", "SUCCESSFUL")?;
                let how = if successful == "true" {
                    "was pinged"
                } else {
                    "was not pinged"
                };
                self.state.set([("SUCCESSFUL", successful)])?;
                let from = self.received(reply, "from_server", "FROM_SERVER")?;
                let uri = given.first().map_or("", |(_, uri)| *uri);
                self.say(format_args!(
                    "Docker host {how}, FROM_SERVER={from}, DOCKER_DAEMON_URI={uri}"
                ));
            }
            Outcome::NewDeveloper => {
                let user = self.received(reply, "user_id", "USER")?;
                self.state.set([("DEVELOPER_USER", user.clone())])?;
                let password = self.received(reply, "password", "PASSWORD")?;
                self.state.set([("DEVELOPER_PASSWORD", password.clone())])?;
                self.say(format_args!(
                    "Developer was created, DEVELOPER_USER={user}, DEVELOPER_PASSWORD={password}"
                ));
                self.create_token(Role::Developer).await?;
            }
        }
        Ok(())
    }

    async fn upload(&mut self, given: &[(&Argument, &str)]) -> Done {
        for (argument, value) in given {
            self.say_using(argument, value);
        }
        let token = self.token(Role::Developer)?;
        let [(_, tenant), (_, version), (_, folder)] = given else {
            unreachable!("the table has three arguments");
        };
        let archive = upload::pack(Path::new(folder), self.state.directory()).map_err(|failure| {
            self.output.note(failure.message);
            Exit(1)
        })?;
        self.keep("versions", &format!("version_{tenant}_{version}.zip"), &archive)
            .map_err(anyhow::Error::from)?;
        let operation = "upload-files-archive";
        let url = self.url(Role::Developer, operation);
        let answer = curl::upload(&url, &token, tenant, version, archive).await;
        let name = reply_name(Role::Developer, operation, &[tenant, version]);
        let reply = self.settle(&url, "", &name, answer)?;
        let id = self.received(&reply, "files_archive_id", "FILES_ARCHIVE")?;
        self.say(format_args!("Files archive was uploaded, FILES_ARCHIVE={id}"));
        self.state.set([("FILES_ARCHIVE", id)])?;
        Ok(())
    }

    fn token(&self, role: Role) -> Done<String> {
        match self.state.get(&role.variable("TOKEN")) {
            Some(token) => Ok(token.to_owned()),
            None => self.fail(format_args!("Current {role} token was not found")),
        }
    }

    /// A JSON document as it is in its file; `jq` read it, so what is no JSON is refused in its way.
    fn document(&self, path: &str) -> Done<String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == ErrorKind::InvalidData => String::from("\u{fffd}"),
            Err(_) => return self.fail(format_args!("Config file was not found, CONFIG_PATH={path}")),
        };
        if matches!(text.trim(), "" | "null") {
            self.output.line("ERROR: Version config is empty");
            return Err(Exit(1));
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(_) => Ok(text.trim().to_owned()),
            Err(wrong) => {
                self.output.note(format_args!("parse error: {wrong}"));
                Err(Exit(2))
            }
        }
    }

    async fn request(
        &self,
        role: Role,
        operation: &str,
        token: Option<&str>,
        body: String,
        name: &str,
    ) -> Done<String> {
        let url = self.url(role, operation);
        let request = format!("{}\n", without_secrets(&body));
        let answer = curl::post(&url, token, body).await;
        self.settle(&url, &request, name, answer)
    }

    /// Writes a request down and says why it failed, if it did.
    fn settle(&self, url: &str, request: &str, name: &str, answer: Result<Answer, Silence>) -> Done<String> {
        match answer {
            Ok(answer) => {
                // Nobody needs it for this command to go on.
                let _ = self.keep("temp", name, answer.body.as_bytes());
                let response = without_secrets(&answer.body);
                self.log.add_lines(&format!("\n{url}\n{request}{response}\n"));
                if answer.status < 400 {
                    return Ok(answer.body);
                }
                let code = answer.status;
                self.say(format_args!("ERROR: Operation was failed, HTTP_CODE={code}, {url}"));
                let log = self.log.read().unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                for line in &lines[lines.len().saturating_sub(2)..] {
                    self.output.line(line);
                }
                Err(Exit(1))
            }
            Err(silence) => {
                self.log.add_lines(&format!("\n{url}\n{request}"));
                self.output.note(&silence.message);
                Err(Exit(silence.exit))
            }
        }
    }

    /// Puts a file into a folder of the state.
    fn keep(&self, folder: &str, name: &str, content: &[u8]) -> std::io::Result<()> {
        crate::state::create_state_directory(self.state.directory())?;
        let folder = self.state.directory().join(folder);
        crate::state::create_private_directory(&folder)?;
        crate::state::write_private_file(&folder.join(name.replace('/', "_")), content)
    }

    /// A field of a reply; without it the command ends.
    fn received(&self, reply: &str, field: &str, name: &str) -> Done<String> {
        let reply: Value = serde_json::from_str(reply).unwrap_or_default();
        match &reply[field] {
            Value::String(text) if !text.is_empty() => Ok(text.clone()),
            Value::Null | Value::String(_) => {
                self.output.line(format_args!("ERROR: {name} was not received"));
                Err(Exit(1))
            }
            other => Ok(other.to_string()),
        }
    }

    fn service_url(&self) -> &str {
        self.state.get("SERVICE_URL").unwrap_or_default()
    }

    fn url(&self, role: Role, operation: &str) -> String {
        format!(
            "{}/service/v1/entrypoint/{role}/request/{operation}",
            self.service_url()
        )
    }

    fn say_using(&self, argument: &Argument, value: &str) {
        let words = argument.shown.replace('_', " ");
        self.say(format_args!("Using {words}, {}={value}", argument.variable));
    }

    /// A line with the date and the environment before it.
    fn say(&self, sentence: impl std::fmt::Display) {
        let environment = self.state.get("ENVIRONMENT_NAME").unwrap_or_default();
        self.output
            .line(format_args!("{} {environment} {sentence}", date::now()));
    }

    fn fail<T>(&self, why: impl std::fmt::Display) -> Done<T> {
        self.say(format_args!("ERROR: {why}"));
        Err(Exit(1))
    }
}

/// `Admin`
fn capital(role: Role) -> String {
    let name = role.name();
    name[..1].to_uppercase() + &name[1..]
}

/// The file of the last reply to a command.
fn reply_name(role: Role, operation: &str, arguments: &[&str]) -> String {
    let arguments: String = arguments.iter().map(|argument| format!("_{argument}")).collect();
    format!("{role}-{operation}{arguments}.json")
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Fields with their values in JSON, in this order.
fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{}: {value}", quoted(name)))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// On one line, as it is, unless something in it is secret.
fn without_secrets(body: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return body.to_owned();
    };
    let mut masked = value.clone();
    mask(&mut masked);
    if masked == value {
        body.replace(['\n', '\r'], " ")
    } else {
        masked.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_script_is_known_with_its_path_and_ending() {
        for name in ["omgserversctl", "./omgserversctl.sh", "/usr/bin/omgserversctl"] {
            assert!(is_called_by(name), "{name}");
        }
        for name in ["omgctl", "/omgserversctl/omgctl", ""] {
            assert!(!is_called_by(name), "{name}");
        }
    }

    #[test]
    fn requests_keep_their_order_and_the_log_has_no_secrets() {
        let body = object(&[("user", quoted("a\"b")), ("config", "{\"z\": 1, \"a\": 2}".to_owned())]);
        assert_eq!(body, r#"{"user": "a\"b", "config": {"z": 1, "a": 2}}"#);
        assert_eq!(without_secrets(&body), body);
        assert_eq!(without_secrets(r#"{"raw_token":"x"}"#), r#"{"raw_token":"***"}"#);
    }
}
