//! What may be written on the command line. Names are those of the old script; kebab-case spellings work too.

mod admin;
pub(crate) mod developer;
mod environment;
mod place;
pub(crate) mod support;
mod word;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use omgservers_protocol::text::Text;

pub(crate) use self::admin::Admin;
use self::developer::Developer;
pub(crate) use self::environment::Environment;
pub(crate) use self::place::{Deletion, Deployment, Listing, Project, Stage, Tenant, Version};
use self::support::Support;
use self::word::{text, variable};
use crate::state::DEFAULT_DIRECTORY;
use crate::up::{Down, Up};

/// The command line of OMGSERVERS
///
/// Exit codes: 0 done, 1 refused, 2 wrong usage or no answer.
#[derive(Parser)]
#[command(name = "omgctl", version, arg_required_else_help = true, max_term_width = 120)]
pub(crate) struct Arguments {
    /// How results are printed: for people, or as JSON [default: text]
    #[arg(long = "output", value_name = "FORMAT", value_enum)]
    format: Option<Format>,

    /// Where addresses, credentials and the log of requests are kept
    #[arg(
        long,
        value_name = "DIR",
        env = "OMGSERVERSCTL_DIRECTORY",
        hide_env_values = true,
        default_value = DEFAULT_DIRECTORY,
        value_parser = OsStringValueParser::new().map(directory)
    )]
    pub(crate) directory: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Those of this process; wrong ones end it.
    pub(crate) fn read() -> Self {
        let matches = Self::tree().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|wrong| wrong.exit())
    }

    /// All commands, in both spellings.
    pub(crate) fn tree() -> clap::Command {
        spell_both(Self::command())
    }

    /// What was asked for, before or after the group's name.
    pub(crate) fn format(&self) -> Format {
        let inner = match &self.command {
            Command::Environment(group) => group.format,
            Command::Admin(group) => group.format,
            Command::Support(group) => group.format,
            Command::Developer(group) => group.format,
            Command::Up(group) => group.format,
            Command::Down(group) => group.format,
            Command::Image(_) | Command::Logs | Command::Get { .. } | Command::Completions { .. } => None,
        };
        inner.or(self.format).unwrap_or(Format::Text)
    }
}

/// An empty one is as good as none.
fn directory(path: OsString) -> PathBuf {
    if path.is_empty() {
        DEFAULT_DIRECTORY.into()
    } else {
        path.into()
    }
}

/// `deployVersion` is understood as `deploy-version` too.
fn spell_both(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|below| {
        let below = spell_both(below);
        let kebab = kebab(below.get_name());
        if kebab == below.get_name() {
            below
        } else {
            below.alias(kebab)
        }
    })
}

fn kebab(name: &str) -> String {
    name.chars().fold(String::new(), |mut kebab, c| {
        if c.is_uppercase() {
            kebab.push('-');
        }
        kebab.extend(c.to_lowercase());
        kebab
    })
}

/// Sentences and tables for people, or the reply of the service.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Which installation is talked to
    Environment(Group<Environment>),
    /// What an admin does: the installation and its operators
    Admin(Group<Admin>),
    /// What support does: tenants, developers and what they may do
    Support(Group<Support>),
    /// What a developer does: projects, stages, versions, deployments
    Developer(Box<Group<Developer>>),
    /// Images of game servers
    #[command(subcommand)]
    Image(Image),
    /// Run a whole installation on this machine
    Up(Box<WithFormat<Up>>),
    /// Stop what `up` runs
    Down(WithFormat<Down>),
    /// Print one stored value and nothing else, as environment printVariable does
    Get {
        /// Such as TENANT or DEVELOPER_TOKEN; tenant and tenant_id mean the same
        variable: String,
    },
    /// Print the requests made so far, without secrets
    Logs,
    /// Print what makes a shell complete these commands
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// A group of commands. `--output` belongs to the groups and not to the root, because `image pack` has its own.
#[derive(Args)]
pub(crate) struct Group<C: Subcommand> {
    /// How results are printed: for people, or as JSON [default: text]
    #[arg(long = "output", value_name = "FORMAT", value_enum, global = true)]
    format: Option<Format>,
    #[command(subcommand)]
    pub(crate) command: C,
}

/// One command with `--output`.
#[derive(Args)]
pub(crate) struct WithFormat<C: Args> {
    /// How results are printed: for people, or as JSON [default: text]
    #[arg(long = "output", value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    pub(crate) command: C,
}

/// What everybody does who has a password.
#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Login {
    /// Log in and store the credentials
    UseCredentials {
        /// Id or alias
        #[arg(value_parser = text)]
        user: Text,
        /// `-` reads it from stdin
        password: String,
    },
    /// Print who is logged in
    PrintCurrent,
    /// Log in again with the stored credentials
    CreateToken,
    /// Exchange the stored token for a fresh one, without the password
    RenewToken,
    /// Choose another password; what was logged in with the old one is logged out
    ChangePassword {
        /// The present one; `-` reads it from stdin
        password: String,
        /// `-` reads it from stdin
        new_password: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum Image {
    /// Put one static program into an otherwise empty image, without an engine
    ///
    /// The archive is what `docker load` reads and what createImage takes as file:///…tar. The same program gives the
    /// same bytes.
    Pack {
        /// The program, linked statically
        #[arg(long, value_name = "PATH")]
        binary: PathBuf,
        /// Name of the image, such as shooter:dev
        #[arg(long, value_name = "NAME")]
        tag: String,
        /// Where the archive goes
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        /// Path of the program in the image [default: / and its file name]
        #[arg(long, value_name = "PATH")]
        entrypoint: Option<String>,
        /// An environment variable of the image
        #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        Arguments::tree().debug_assert();
    }

    #[test]
    fn every_camel_case_command_has_its_kebab_case_spelling() {
        let spelled = |line: &str| Arguments::try_parse_from(line.split_whitespace());
        assert!(spelled("omgctl support createTenant").is_ok());
        let matches = Arguments::tree().try_get_matches_from("omgctl support create-tenant".split_whitespace());
        assert!(Arguments::from_arg_matches(&matches.unwrap()).is_ok());
        for group in Arguments::tree().get_subcommands() {
            for command in group.get_subcommands() {
                let (name, kebab) = (command.get_name(), kebab(command.get_name()));
                let spelled = kebab == name || command.get_all_aliases().any(|alias| alias == kebab);
                assert!(spelled, "{} {name} has no alias {kebab}", group.get_name());
            }
        }
    }

    /// Commands whose output is checked elsewhere, because they run until they are told to stop.
    const WITHOUT_SNAPSHOT: [&str; 1] = ["up"];

    #[test]
    fn every_command_has_a_snapshot() {
        let said = crate::snapshots("omgctl");
        let mut missing = Vec::new();
        let mut left = vec![(String::new(), Arguments::tree())];
        while let Some((path, command)) = left.pop() {
            let below: Vec<_> = command
                .get_subcommands()
                .filter(|below| below.get_name() != "help")
                .map(|below| (format!("{path} {}", below.get_name()).trim().to_owned(), below.clone()))
                .collect();
            let wanted = kebab(&path);
            let is_it = |line: &String| {
                let command = line.split_whitespace().take(path.split(' ').count());
                kebab(&command.collect::<Vec<_>>().join(" ")) == wanted && !line.contains("--help")
            };
            let is_there = said.iter().any(is_it);
            if below.is_empty() && !is_there && !WITHOUT_SNAPSHOT.contains(&path.as_str()) {
                missing.push(path);
            }
            left.extend(below);
        }
        assert!(missing.is_empty(), "no snapshot shows {missing:#?}");
    }
}
