//! The environment of `old-runtime`; no other file reads it.

use crate::Variant;
use crate::runtime::{Credentials, Exit};

/// A variable the SDK needs is missing.
const ENVIRONMENT_EXIT_CODE: i32 = 1;
/// A variable of the emulator itself has a value it does not know.
const USAGE_EXIT_CODE: i32 = 2;

/// Which runtimes open a dispatcher connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// All.
    Always,
    /// Matches only, as the real game does it.
    Match,
    /// None.
    Never,
}

/// Everything that `old-runtime` is told.
#[derive(Clone)]
pub struct Settings {
    /// The platform's variables.
    pub credentials: Credentials,
    /// `OLD_RUNTIME_VARIANT`: `ref` or `097a1e2` (default).
    pub variant: Variant,
    /// `OLD_RUNTIME_LINK`: `always`, `match` (default) or `never`. The old variant always links.
    pub link: Link,
}

impl Settings {
    /// Reads the environment of this process.
    pub fn from_environment() -> Result<Self, Exit> {
        #[expect(clippy::disallowed_methods, reason = "this is the file that reads the environment")]
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads variables from wherever they are.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Exit> {
        let needed = |name: &str| {
            variable(name).ok_or_else(|| Exit {
                code: ENVIRONMENT_EXIT_CODE,
                reason: format!("environment variable is nil, variable={name}"),
            })
        };
        let unknown = |name: &str, value: &str| Exit {
            code: USAGE_EXIT_CODE,
            reason: format!("`{value}` is not a value of {name}"),
        };
        let credentials = Credentials {
            service_url: needed("OMGSERVERS_SERVICE_URL")?,
            runtime_id: needed("OMGSERVERS_RUNTIME_ID")?,
            password: needed("OMGSERVERS_PASSWORD")?,
            runtime_qualifier: needed("OMGSERVERS_RUNTIME_QUALIFIER")?,
        };
        let variant = match variable("OLD_RUNTIME_VARIANT").as_deref() {
            None | Some("097a1e2") => Variant::Sdk097a1e2,
            Some("ref") => Variant::Ref,
            Some(other) => return Err(unknown("OLD_RUNTIME_VARIANT", other)),
        };
        let link = match variable("OLD_RUNTIME_LINK").as_deref() {
            Some("always") => Link::Always,
            None | Some("match") => Link::Match,
            Some("never") => Link::Never,
            Some(other) => return Err(unknown("OLD_RUNTIME_LINK", other)),
        };
        Ok(Settings {
            credentials,
            variant,
            link,
        })
    }

    /// Whether this runtime asks for a dispatcher connection.
    pub fn is_linked(&self) -> bool {
        match self.link {
            Link::Always => true,
            Link::Match => self.credentials.runtime_qualifier == "MATCH",
            Link::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: [&str; 4] = [
        "OMGSERVERS_SERVICE_URL",
        "OMGSERVERS_RUNTIME_ID",
        "OMGSERVERS_PASSWORD",
        "OMGSERVERS_RUNTIME_QUALIFIER",
    ];

    fn read(changes: &[(&str, Option<&str>)]) -> Result<Settings, Exit> {
        Settings::read(|name| match changes.iter().find(|(changed, _)| *changed == name) {
            Some((_, value)) => value.map(str::to_owned),
            None => NEEDED.contains(&name).then(|| "MATCH".to_owned()),
        })
    }

    #[test]
    fn each_missing_variable_is_exit_code_one() {
        for name in NEEDED {
            let exit = read(&[(name, None)]).err().unwrap();
            assert_eq!(exit.code, 1);
            assert!(exit.reason.ends_with(name), "{}", exit.reason);
        }
    }

    #[test]
    fn only_matches_link_by_default() {
        let settings = read(&[]).ok().unwrap();
        assert_eq!(settings.variant, Variant::Sdk097a1e2);
        assert!(settings.is_linked());
        let lobby = ("OMGSERVERS_RUNTIME_QUALIFIER", Some("LOBBY"));
        assert!(!read(&[lobby]).ok().unwrap().is_linked());
        assert!(
            read(&[lobby, ("OLD_RUNTIME_LINK", Some("always"))])
                .ok()
                .unwrap()
                .is_linked()
        );
        assert!(!read(&[("OLD_RUNTIME_LINK", Some("never"))]).ok().unwrap().is_linked());
    }

    #[test]
    fn unknown_values_are_refused_by_name() {
        for name in ["OLD_RUNTIME_LINK", "OLD_RUNTIME_VARIANT"] {
            let exit = read(&[(name, Some("perhaps"))]).err().unwrap();
            assert_eq!(
                (exit.code, exit.reason),
                (2, format!("`perhaps` is not a value of {name}"))
            );
        }
    }
}
