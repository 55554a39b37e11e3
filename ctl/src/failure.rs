//! Why a command did not do what was asked: one line for the reader, perhaps a hint, and the exit code.

use omgservers_protocol::Qualifier;
use omgservers_protocol::client::CallError;

use crate::context::Role;

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// The command was understood, and the answer was no.
const REFUSED: u8 = 1;
/// The command made no sense, or nobody answered.
const UNANSWERED: u8 = 2;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            exit: REFUSED,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: UNANSWERED,
            ..Self::refused(message)
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What a failed call means to whoever made it as `role` (nobody when it was a login).
    pub(crate) fn of_call(error: CallError, role: Option<Role>, route: &str) -> Self {
        let (status, qualifier, message) = match error {
            CallError::Refused {
                status,
                qualifier,
                message,
            } => (status, qualifier, message),
            CallError::Unreachable { url, cause } => {
                return Self::usage(format!("`{url}` did not answer: {cause}")).hint(START_HINT);
            }
        };
        let message = if message.is_empty() {
            format!("the service answered {status} {}", name(qualifier))
        } else {
            format!("{message} ({})", name(qualifier))
        };
        match status {
            502..=504 => Self::usage(message).hint(START_HINT),
            _ => Self {
                hint: hint_for(status, qualifier, role, route),
                ..Self::refused(message)
            },
        }
    }
}

const START_HINT: &str = "is it running? `omgctl up` or `./dev up` starts an installation on this machine, \
     `omgctl environment useEnvironment NAME URL` chooses another one";

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::refused(format!("{error:#}"))
    }
}

/// As it is written on the wire.
fn name(qualifier: Qualifier) -> String {
    match serde_json::to_value(qualifier) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{qualifier:?}"),
    }
}

fn hint_for(status: u16, qualifier: Qualifier, role: Option<Role>, route: &str) -> Option<String> {
    let hint = match (status, qualifier, role) {
        (401, _, None) => "check user and password".to_owned(),
        (401, _, Some(role)) => {
            format!("the stored token is no longer accepted; `omgctl {role} createToken` gets a new one")
        }
        (403, Qualifier::PermissionNotFound, Some(Role::Developer)) => {
            let (permission, entity) = permission_for(route)?;
            let grant = match entity {
                "tenant" => {
                    format!("; support grants it: `omgctl support createTenantPermission TENANT USER {permission}`")
                }
                _ => format!("; whoever created the {entity} has it"),
            };
            format!("this needs the permission {permission} on the {entity}{grant}")
        }
        (403, _, Some(role)) => format!("is the stored token one of {role}? `omgctl {role} printCurrent` tells"),
        (404, Qualifier::ObjectNotFound, None) => {
            "admin and support are known by their names, developers by their ids".to_owned()
        }
        (404, Qualifier::ParentNotFound, _) => "what it should belong to is missing or deleted".to_owned(),
        (404, _, Some(Role::Developer)) if route.ends_with("get-tenant-details") => {
            "names and ids are both understood; support names a tenant by `omgctl support createTenantAlias`".to_owned()
        }
        (404, _, Some(Role::Developer)) => {
            "`omgctl developer getTenantDetails TENANT` and `getProjectDetails TENANT PROJECT` show what is there"
                .to_owned()
        }
        (409, Qualifier::WrongVersionState, _) => {
            "name one by `omgctl developer createImage TENANT PROJECT VERSION UNIVERSAL IMAGE`".to_owned()
        }
        (400, Qualifier::DbConstraintViolated, _) if route.ends_with("-alias") => "choose another name".to_owned(),
        _ => return None,
    };
    Some(hint)
}

/// Which permission an operation of a developer needs, and on what.
fn permission_for(route: &str) -> Option<(&'static str, &'static str)> {
    Some(match route.rsplit('/').next()? {
        "get-tenant-details" => ("TENANT_VIEWER", "tenant"),
        "create-project" | "create-project-alias" | "delete-project" => ("PROJECT_MANAGER", "tenant"),
        "create-stage" | "create-stage-alias" | "delete-stage" => ("STAGE_MANAGER", "project"),
        "create-version" | "create-image" | "delete-version" => ("VERSION_MANAGER", "project"),
        "deploy-version" | "delete-deployment" => ("DEPLOYMENT_MANAGER", "stage"),
        operation if operation.starts_with("get-") => ("PROJECT_VIEWER", "project"),
        _ => return None,
    })
}
