//! Settings of the two servers that clap alone cannot read: by the names of other versions, and secrets from files. Knows
//! no setting itself.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// The heading of options that are there so that an older installation's environment is not refused.
pub const WITHOUT_EFFECT: &str = "Accepted for compatibility, without effect";

/// What `--help` says at its end.
pub const AFTER_HELP: &str = "Every secret can be read from a file: add `_FILE` to its variable and name the file.";

/// A name of another version, and the variable that it stands for.
pub type Alias = (&'static str, &'static str);

/// The arguments of a program, preceded by what the environment says by the names of `aliases` and in files of secrets.
/// The variable itself and the command line win over both.
pub fn arguments(
    command: &Command,
    aliases: &[Alias],
    given: impl IntoIterator<Item = OsString>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<OsString>, String> {
    let mut given = given.into_iter();
    let mut arguments: Vec<OsString> = given.next().into_iter().collect();
    for argument in command.get_arguments() {
        let (Some(option), Some(name)) = (argument.get_long(), argument.get_env().and_then(|name| name.to_str()))
        else {
            continue;
        };
        let file = match argument.is_hide_env_values_set() {
            true => in_file(name, variable)?,
            false => None,
        };
        let other = || {
            let mut names = aliases.iter().filter(|(_, stands_for)| *stands_for == name);
            names.find_map(|(other, _)| variable(other))
        };
        let value = file.or_else(|| variable(name).is_none().then(other).flatten());
        arguments.extend(value.map(|value| OsString::from(format!("--{option}={value}"))));
    }
    arguments.extend(given);
    Ok(arguments)
}

/// A secret, from its variable or from the file that another one names.
pub fn secret(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    Ok(in_file(name, variable)?.or_else(|| variable(name)))
}

/// What stands in the file that the variable with `_FILE` names.
fn in_file(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    let file_name = format!("{name}_FILE");
    let Some(path) = variable(&file_name) else {
        return Ok(None);
    };
    match variable(name) {
        Some(_) => Err(format!("both {name} and {file_name} are set")),
        None => read(&file_name, &path).map(Some),
    }
}

/// A secret as people write it into files: with the end of its line.
fn read(name: &str, path: &str) -> Result<String, String> {
    let content = std::fs::read_to_string(path).map_err(|cause| format!("{name}: cannot read `{path}`: {cause}"))?;
    let secret = content.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(format!("{name}: `{path}` is empty"));
    }
    Ok(secret.to_owned())
}

/// Variables that were set to something of their own, although nobody looks at them.
pub fn without_effect(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let is_changed = |argument: &&clap::Arg| {
        let id = argument.get_id().as_str();
        let source = matches.value_source(id);
        let values = matches.get_raw(id).into_iter().flatten();
        matches!(source, Some(ValueSource::EnvVariable | ValueSource::CommandLine))
            && !values.eq(argument.get_default_values().iter().map(|value| value.as_os_str()))
    };
    command
        .get_arguments()
        .filter(|argument| argument.get_help_heading() == Some(WITHOUT_EFFECT))
        .filter(is_changed)
        .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};

    use super::*;

    #[derive(Parser, Debug, PartialEq)]
    #[command(args_override_self = true)]
    struct Settings {
        #[arg(long, env = "TEST_SETTING_LIMIT", default_value_t = 7)]
        limit: u32,
        #[arg(long, env = "TEST_SETTING_PASSWORD", hide_env_values = true)]
        password: Option<String>,
        #[arg(long, env = "TEST_SETTING_QUEUE", default_value = "events", help_heading = WITHOUT_EFFECT)]
        queue: String,
    }

    const ALIASES: [Alias; 2] = [
        ("OLD_LIMIT", "TEST_SETTING_LIMIT"),
        ("OLD_PASSWORD", "TEST_SETTING_PASSWORD"),
    ];

    fn load(given: &[&str], variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
        let command = Settings::command();
        let given = std::iter::once("program")
            .chain(given.iter().copied())
            .map(OsString::from);
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let arguments = arguments(&command, &ALIASES, given, &variable)?;
        let matches = command
            .clone()
            .try_get_matches_from(arguments)
            .map_err(|error| error.to_string())?;
        let settings = Settings::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        Ok((settings, without_effect(&command, &matches)))
    }

    #[test]
    fn names_of_other_versions_are_understood_unless_something_better_is_said() {
        assert_eq!(load(&[], &[]).unwrap().0.limit, 7);
        assert_eq!(load(&[], &[("OLD_LIMIT", "8")]).unwrap().0.limit, 8);
        assert_eq!(load(&["--limit", "9"], &[("OLD_LIMIT", "8")]).unwrap().0.limit, 9);
        // The variable itself is read by clap; here it only has to silence the other name.
        let both = [("OLD_LIMIT", "8"), ("TEST_SETTING_LIMIT", "9")];
        assert_eq!(load(&[], &both).unwrap().0.limit, 7);
        assert!(load(&[], &[("OLD_LIMIT", "many")]).unwrap_err().contains("--limit"));
    }

    #[test]
    fn a_secret_may_be_in_a_file_but_not_in_two_places() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let path = path.to_str().unwrap();
        let file = ("TEST_SETTING_PASSWORD_FILE", path);
        assert!(load(&[], &[file]).unwrap_err().contains(path));
        std::fs::write(path, "hunter2\n").unwrap();
        assert_eq!(load(&[], &[file]).unwrap().0.password.as_deref(), Some("hunter2"));
        let both = load(&[], &[file, ("TEST_SETTING_PASSWORD", "x")]).unwrap_err();
        assert!(
            both.contains("TEST_SETTING_PASSWORD_FILE") && !both.contains("hunter2"),
            "{both}"
        );
        std::fs::write(path, "\n").unwrap();
        assert!(load(&[], &[file]).unwrap_err().contains("empty"));
        assert_eq!(
            load(&[], &[("TEST_SETTING_LIMIT_FILE", path)]).unwrap().0.limit,
            7,
            "no secret"
        );
    }

    #[test]
    fn what_has_no_effect_is_named_only_if_it_was_changed() {
        assert!(load(&[], &[]).unwrap().1.is_empty());
        assert!(load(&["--queue", "events"], &[]).unwrap().1.is_empty());
        assert_eq!(load(&["--queue", "mine"], &[]).unwrap().1, ["TEST_SETTING_QUEUE"]);
    }
}
