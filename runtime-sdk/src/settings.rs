//! Where the service is and who this runtime is: read once, from the environment that the platform gives a container.

use std::time::Duration;

use omgservers_protocol::config::RuntimeQualifier;
use omgservers_protocol::id::RuntimeId;
use omgservers_protocol::text::Text;

use crate::Error;

/// How a [`crate::Runtime`] finds its platform.
///
/// ```
/// use omgservers_runtime_sdk::{RuntimeQualifier, Settings};
///
/// # fn main() -> Result<(), omgservers_runtime_sdk::Error> {
/// let settings = Settings::new("http://localhost:8080", 790, "secret", RuntimeQualifier::Match)?.without_link();
/// assert!(!format!("{settings:?}").contains("secret"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) service_url: String,
    pub(crate) runtime_id: RuntimeId,
    pub(crate) password: Text,
    pub(crate) qualifier: RuntimeQualifier,
    pub(crate) link: bool,
    pub(crate) signals: bool,
    pub(crate) connect_timeout: Duration,
}

const SERVICE_URL: &str = "OMGSERVERS_SERVICE_URL";
const RUNTIME_ID: &str = "OMGSERVERS_RUNTIME_ID";
const PASSWORD: &str = "OMGSERVERS_PASSWORD";
const QUALIFIER: &str = "OMGSERVERS_RUNTIME_QUALIFIER";
/// Another name of [`QUALIFIER`]; the platform sets both.
const QUALIFIER_ALIAS: &str = "OMGSERVERS_QUALIFIER";

impl Settings {
    /// Settings by hand, for tools and tests. A container uses [`Settings::from_environment`].
    pub fn new(
        service_url: &str,
        runtime_id: impl Into<RuntimeId>,
        password: &str,
        qualifier: RuntimeQualifier,
    ) -> Result<Self, Error> {
        if !service_url.starts_with("http://") && !service_url.starts_with("https://") {
            return Err(bad(SERVICE_URL, "must start with `http://` or `https://`"));
        }
        Ok(Self {
            service_url: service_url.trim_end_matches('/').to_owned(),
            runtime_id: runtime_id.into(),
            password: Text::new(password).ok_or_else(|| bad(PASSWORD, "must have 1 to 64 characters"))?,
            qualifier,
            link: true,
            signals: true,
            connect_timeout: Duration::from_secs(120),
        })
    }

    /// Reads `OMGSERVERS_SERVICE_URL`, `OMGSERVERS_RUNTIME_ID`, `OMGSERVERS_PASSWORD` and
    /// `OMGSERVERS_RUNTIME_QUALIFIER` (or `OMGSERVERS_QUALIFIER`). The error names the one that is missing or wrong.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place of the crate that reads settings"
    )]
    pub fn from_environment() -> Result<Self, Error> {
        Self::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let given = |name| variable(name).filter(|value| !value.is_empty());
        let needed = |name| given(name).ok_or(Error::MissingSetting { name });
        let service_url = needed(SERVICE_URL)?;
        let runtime_id: RuntimeId = needed(RUNTIME_ID)?
            .parse()
            .map_err(|_| bad(RUNTIME_ID, "must be a whole number"))?;
        let password = needed(PASSWORD)?;
        let qualifier = match given(QUALIFIER).or_else(|| given(QUALIFIER_ALIAS)).as_deref() {
            Some("LOBBY") => RuntimeQualifier::Lobby,
            Some("MATCH") => RuntimeQualifier::Match,
            Some(_) => return Err(bad(QUALIFIER, "must be `LOBBY` or `MATCH`")),
            None => return Err(Error::MissingSetting { name: QUALIFIER }),
        };
        Self::new(&service_url, runtime_id, &password, qualifier)
    }

    /// No link to the dispatcher: for games that need nothing but messages over the service.
    pub fn without_link(mut self) -> Self {
        self.link = false;
        self
    }

    /// SIGTERM and SIGINT are left alone; call [`crate::Runtime::stop`] from a handler of your own.
    pub fn without_signals(mut self) -> Self {
        self.signals = false;
        self
    }

    /// How long [`crate::Runtime::connect`] tries; two minutes unless set.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }
}

fn bad(name: &'static str, reason: &'static str) -> Error {
    Error::BadSetting { name, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: [(&str, &str); 4] = [
        (SERVICE_URL, "http://localhost:8080/"),
        (RUNTIME_ID, "245515657456648192"),
        (PASSWORD, "hunter2"),
        (QUALIFIER, "MATCH"),
    ];

    fn read(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Settings::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_of_a_container_is_understood() {
        let settings = read(&COMPLETE).unwrap();
        assert_eq!(settings.service_url, "http://localhost:8080");
        assert_eq!(settings.runtime_id, RuntimeId(245515657456648192));
        assert_eq!(settings.qualifier, RuntimeQualifier::Match);
        assert!(settings.link && settings.signals);
        let mut other = COMPLETE;
        other[3] = (QUALIFIER_ALIAS, "LOBBY");
        assert_eq!(read(&other).unwrap().qualifier, RuntimeQualifier::Lobby);
    }

    #[test]
    fn a_missing_or_wrong_setting_is_named() {
        for (index, (name, _)) in COMPLETE.into_iter().enumerate() {
            let mut incomplete = COMPLETE.to_vec();
            incomplete.remove(index);
            let error = read(&incomplete).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            for wrong in ["", "%"] {
                let mut variables = COMPLETE;
                variables[index].1 = wrong;
                if let Err(error) = read(&variables) {
                    assert!(error.to_string().contains(name), "{error}");
                } else {
                    assert_eq!((name, wrong), (PASSWORD, "%"));
                }
            }
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        assert!(!format!("{:?}", read(&COMPLETE).unwrap()).contains("hunter2"));
    }
}
