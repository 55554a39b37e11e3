//! Settings of the two servers that clap alone cannot read: by the names of other versions, and secrets from files. What
//! is refused is named by the variable that it came from. Knows no setting itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// The heading of options that are there so that an older installation's environment is not refused.
pub const WITHOUT_EFFECT: &str = "Accepted for compatibility, without effect";

/// What `--help` says at its end.
pub const AFTER_HELP: &str = "Every secret can be read from a file: add `_FILE` to its variable and name the file.";

/// A name of another version, and the variable that it stands for.
pub type Alias = (&'static str, &'static str);

/// The variables of a process. An empty one counts as unset, except where nothing is a value.
#[derive(Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Variables of others that are not text are left out, ours are refused.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, String> {
        let mut known = BTreeMap::new();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => _ = known.insert(name, value),
                Err(_) if name.starts_with("OMGSERVERS_") => return Err(format!("{name} is not valid UTF-8")),
                Err(_) => {}
            }
        }
        Ok(Self(known))
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?;
        (!value.is_empty()).then_some(value)
    }

    /// A secret, from its variable or from the file that another one names.
    pub fn secret(&self, name: &str) -> Result<Option<String>, String> {
        let file_name = format!("{name}_FILE");
        match (self.get(name), self.get(&file_name)) {
            (Some(_), Some(_)) => Err(format!("both {name} and {file_name} are set")),
            (value, None) => Ok(value.map(str::to_owned)),
            (None, Some(path)) => read(&file_name, path).map(Some),
        }
    }

    /// The variables whose names begin so, and their values.
    pub fn starting_with(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        let set = self.0.iter().filter(|(_, value)| !value.is_empty());
        set.filter(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The numbers of variables `<prefix><i>__<part>`, of which there may be many: each from `first` on. Each group is a
    /// prefix and its parts; the first one gives things their names.
    pub fn numbers(&self, groups: &[(&str, &[&str])], first: u32) -> Result<Range<u32>, String> {
        let mut known = BTreeMap::new();
        for (prefix, parts) in groups {
            for (name, _) in self.starting_with(prefix) {
                let number = name[prefix.len()..].split_once("__").and_then(|(digits, part)| {
                    let number: u32 = digits.parse().ok()?;
                    (number >= first && number.to_string() == digits && parts.contains(&part)).then_some(number)
                });
                let number = number.ok_or_else(|| {
                    let parts = parts.join(", ");
                    format!("{name} is not known: it may be `{prefix}<i>__`, i from {first}, and then {parts}")
                })?;
                known.insert(number, name);
            }
        }
        let mut next = first;
        for (number, name) in known {
            if number != next {
                let (prefix, parts) = groups[0];
                return Err(format!("{name} is set but {prefix}{next}__{} is not", parts[0]));
            }
            next += 1;
        }
        Ok(first..next)
    }

    /// What is said about an option, by its variable or else by one of another version; and which one that is.
    fn find<'a>(&self, argument: &'a Arg, aliases: &'a [Alias]) -> Result<Option<(&'a str, String)>, String> {
        let Some(name) = argument.get_env().and_then(|name| name.to_str()) else {
            return Ok(None);
        };
        let may_be_empty = argument.get_num_args().is_some_and(|number| number.min_values() == 0);
        let others = aliases.iter().filter(|(_, stands_for)| *stands_for == name);
        for name in std::iter::once(name).chain(others.map(|(other, _)| *other)) {
            let value = match argument.is_hide_env_values_set() {
                true => self.secret(name)?,
                false if may_be_empty => self.0.get(name).cloned(),
                false => self.get(name).map(str::to_owned),
            };
            if let Some(value) = value {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }
}

/// Reads the command line, and from the environment what that leaves open. Answers `--help` and `--version` itself.
pub fn matches(
    command: &Command,
    aliases: &[Alias],
    given: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<ArgMatches, String> {
    let given: Vec<OsString> = given.into_iter().collect();
    // First, so that no bad value is in the way of help.
    if let Err(said) = command.clone().try_get_matches_from(&given)
        && !said.use_stderr()
    {
        said.exit();
    }
    let mut arguments: Vec<OsString> = given.iter().take(1).cloned().collect();
    let mut variables = BTreeMap::new();
    for argument in command.get_arguments() {
        let Some(option) = argument.get_long().map(|option| format!("--{option}")) else {
            continue;
        };
        let is_it = |given: &OsString| given.to_str().and_then(|given| given.split('=').next()) == Some(&option);
        if given.iter().any(is_it) {
            continue;
        }
        if let Some((name, value)) = environment.find(argument, aliases)? {
            arguments.push(format!("{option}={value}").into());
            variables.insert(option, name);
        }
    }
    arguments.extend(given.into_iter().skip(1));
    let without_environment = command.clone().mut_args(|argument| argument.env(Resettable::Reset));
    without_environment
        .try_get_matches_from(arguments)
        .map_err(|error| explain(command, &error, &variables))
}

/// What is wrong, by the names of the variables where they are meant.
fn explain(command: &Command, error: &clap::Error, variables: &BTreeMap<String, &str>) -> String {
    let option = |shown: &str| shown.split([' ', '=']).next().unwrap_or_default().to_owned();
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => {
            let missing: Vec<String> = missing.iter().map(|shown| option(shown)).collect();
            let is_missing = |argument: &&Arg| {
                let long = argument.get_long().map(|long| format!("--{long}"));
                long.is_some_and(|long| missing.contains(&long))
            };
            let names = command.get_arguments().filter(is_missing);
            let names: Vec<_> = names.filter_map(|argument| argument.get_env()?.to_str()).collect();
            format!("not set: {}", names.join(", "))
        }
        (_, Some(ContextValue::String(shown))) if variables.contains_key(&option(shown)) => {
            let reason = text.split("\n\n").next().unwrap_or_default();
            format!("{}: {reason}", variables[&option(shown)])
        }
        _ => text.to_owned(),
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
        #[arg(long, env = "TEST_SETTING_SITES", default_value = "*", num_args = 0..=1, default_missing_value = "")]
        sites: String,
        #[arg(long, env = "TEST_SETTING_USER")]
        user: String,
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
        let variables = [("TEST_SETTING_USER", "me")].iter().chain(variables);
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let matches = matches(&command, &ALIASES, given, &Environment::new(variables)?)?;
        let settings = Settings::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        Ok((settings, without_effect(&command, &matches)))
    }

    #[test]
    fn names_of_other_versions_are_understood_unless_something_better_is_said() {
        assert_eq!(load(&[], &[]).unwrap().0.limit, 7);
        assert_eq!(load(&[], &[("OLD_LIMIT", "8")]).unwrap().0.limit, 8);
        assert_eq!(load(&["--limit", "9"], &[("OLD_LIMIT", "8")]).unwrap().0.limit, 9);
        let both = [("OLD_LIMIT", "8"), ("TEST_SETTING_LIMIT", "9")];
        assert_eq!(load(&[], &both).unwrap().0.limit, 9);
        assert_eq!(load(&["--limit=6"], &both).unwrap().0.limit, 6);
    }

    #[test]
    fn a_bad_value_is_named_by_where_it_came_from() {
        let refused = |given: &[&str], variables: &[(&str, &str)]| load(given, variables).unwrap_err();
        let heard = refused(&[], &[("OLD_LIMIT", "many")]);
        assert!(heard.starts_with("OLD_LIMIT: ") && heard.contains("many"), "{heard}");
        let heard = refused(&[], &[("TEST_SETTING_LIMIT", "many"), ("OLD_LIMIT", "8")]);
        assert!(heard.starts_with("TEST_SETTING_LIMIT: "), "{heard}");
        let heard = refused(&["--limit", "many"], &[("OLD_LIMIT", "8")]);
        assert!(heard.contains("--limit") && !heard.contains("OLD_LIMIT"), "{heard}");
        assert!(load(&["--limit=8"], &[("OLD_LIMIT", "many")]).is_ok());
        assert_eq!(refused(&[], &[("TEST_SETTING_USER", "")]), "not set: TEST_SETTING_USER");
        assert!(refused(&["--loud"], &[]).contains("--loud"));

        use std::os::unix::ffi::OsStringExt as _;
        let no_text = OsString::from_vec(vec![0xff]);
        let environment = |name: &str| Environment::new([(name.into(), no_text.clone())]);
        assert!(environment("OMGSERVERS_X").unwrap_err().contains("OMGSERVERS_X"));
        assert!(environment("OTHER").unwrap().get("OTHER").is_none());
    }

    #[test]
    fn an_empty_variable_is_none_unless_nothing_is_a_value() {
        let empty = [
            ("TEST_SETTING_LIMIT", ""),
            ("OLD_LIMIT", "8"),
            ("TEST_SETTING_PASSWORD", ""),
            ("TEST_SETTING_PASSWORD_FILE", ""),
            ("TEST_SETTING_QUEUE", ""),
            ("TEST_SETTING_SITES", ""),
        ];
        let (settings, without_effect) = load(&[], &empty).unwrap();
        assert_eq!((settings.limit, settings.password.as_deref()), (8, None));
        assert_eq!((settings.queue.as_str(), settings.sites.as_str()), ("events", ""));
        assert!(without_effect.is_empty());
        assert_eq!(load(&[], &[]).unwrap().0.sites, "*");
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
    fn numbered_variables_have_no_gaps_and_no_parts_that_nobody_knows() {
        let numbers = |names: &[&str]| {
            let variables = names.iter().map(|name| (name.into(), "x".into()));
            let environment = Environment::new(variables.chain([("A_7__URI".into(), "".into())])).unwrap();
            environment.numbers(&[("A_", &["URI", "SIZE"]), ("LATER_", &["URI"])], 1)
        };
        assert_eq!(numbers(&[]), Ok(1..1));
        assert_eq!(
            numbers(&["A_1__URI", "A_1__SIZE", "LATER_2__URI", "B_5__URI"]),
            Ok(1..3)
        );
        let gap = numbers(&["A_1__URI", "A_3__SIZE"]).unwrap_err();
        assert_eq!(gap, "A_3__SIZE is set but A_2__URI is not");
        for bad in [
            "A_0__URI",
            "A_01__URI",
            "A_+1__URI",
            "A_1_URI",
            "A_1__UR",
            "A_x__URI",
            "LATER_1__SIZE",
        ] {
            let heard = numbers(&["A_1__URI", bad]).unwrap_err();
            assert!(heard.starts_with(bad), "{heard}");
        }
    }

    #[test]
    fn what_has_no_effect_is_named_only_if_it_was_changed() {
        assert!(load(&[], &[]).unwrap().1.is_empty());
        assert!(load(&["--queue", "events"], &[]).unwrap().1.is_empty());
        assert_eq!(load(&["--queue", "mine"], &[]).unwrap().1, ["TEST_SETTING_QUEUE"]);
    }
}
