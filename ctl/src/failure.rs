//! Why a command did not do what was asked: one line for the reader, perhaps a hint, and the exit code.

use omgservers_protocol::Qualifier;
use omgservers_protocol::developer::Scope;

use crate::context::Role;
use omgservers_protocol::client::CallError;

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
    /// Of the service's answer, when that was the reason.
    pub(crate) status: Option<u16>,
    pub(crate) qualifier: Option<Qualifier>,
}

impl Failure {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            exit: REFUSED,
            message: message.into(),
            hint: None,
            status: None,
            qualifier: None,
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

    /// Nobody answered who could.
    fn silence(error: &CallError) -> Self {
        Self {
            status: error.status(),
            ..Self::usage(error.to_string())
        }
    }

    /// Nobody answered, or somebody who could not: it may be different in a moment.
    pub(crate) fn is_silence(&self) -> bool {
        self.exit == UNANSWERED || self.status.is_some_and(|status| status >= 500)
    }

    /// What a failed call means to whoever made it as `role` (nobody when it was a login).
    pub(crate) fn of_call(error: CallError, role: Option<Role>, route: &str) -> Self {
        let (status, qualifier, message) = match error {
            CallError::Refused {
                status,
                qualifier,
                message,
            } => (status, qualifier, message),
            CallError::Foreign { status: 502..=504, .. } => return Self::silence(&error).hint(START_HINT),
            CallError::Moved { ref base, .. } => {
                let hint = format!("use that address: `omgctl environment useEnvironment NAME {base}`");
                return Self::silence(&error).hint(hint);
            }
            CallError::Foreign { .. } => return Self::silence(&error).hint(ADDRESS_HINT),
            CallError::Unreachable { ref url, ref cause } => {
                // What rustls says of a peer that does not speak TLS.
                let is_plain = url.starts_with("https://") && cause.contains("corrupt message");
                return Self::silence(&error).hint(if is_plain { ADDRESS_HINT } else { START_HINT });
            }
        };
        let hint = hint_for(status, qualifier, &message, role, route);
        let message = if message.is_empty() {
            format!("the service answered {status}")
        } else {
            message
        };
        let failure = match status {
            502..=504 => Self::usage(message).hint(START_HINT),
            _ => Self {
                hint,
                ..Self::refused(message)
            },
        };
        Self {
            status: Some(status),
            qualifier: Some(qualifier),
            ..failure
        }
    }
}

const START_HINT: &str = "is it running? `omgctl up` or `./dev up` starts an installation on this machine, \
     `omgctl environment useEnvironment NAME URL` chooses another one";

const ADDRESS_HINT: &str = "this does not look like the address of OMGSERVERS; it is scheme, host and port only, such as \
     http://localhost:8080: `omgctl environment useEnvironment NAME URL` stores another one";

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::refused(format!("{error:#}"))
    }
}

/// As it is written on the wire.
pub(crate) fn name(qualifier: Qualifier) -> String {
    match serde_json::to_value(qualifier) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{qualifier:?}"),
    }
}

fn hint_for(status: u16, qualifier: Qualifier, message: &str, role: Option<Role>, route: &str) -> Option<String> {
    let hint = match (status, qualifier, role) {
        (404, Qualifier::ObjectNotFound, _) if message == "no such operation" => ADDRESS_HINT.to_owned(),
        (401, Qualifier::UserNotFound, Some(role)) => {
            format!("`omgctl {role} useCredentials USER PASSWORD` logs in as another one")
        }
        (401, Qualifier::WrongCredentials, Some(role))
            if route.ends_with("change-password") && message.contains("password") =>
        {
            let lost = match role {
                Role::Developer => "`omgctl support resetDeveloperPassword USER`",
                Role::Admin | Role::Support => "`omgctl admin resetPassword USER`",
            };
            format!("the first word is the present password, the second the new one; a lost one is replaced by {lost}")
        }
        (401, _, None) => "check user and password".to_owned(),
        (403, Qualifier::PermissionNotFound, Some(role)) if message.contains("for the role") => {
            format!("the stored login is not one of {role}; `omgctl {role} useCredentials USER PASSWORD` stores one")
        }
        (403, Qualifier::PermissionNotFound, Some(Role::Developer)) => {
            let (permission, entity) = permission_for(route)?;
            let grant = match entity {
                "tenant" => "createTenantPermission TENANT",
                "project" => "createProjectPermission TENANT PROJECT",
                _ => "createStagePermission TENANT PROJECT STAGE",
            };
            format!(
                "this needs the permission {permission} on the {entity}; support grants it: `omgctl support {grant} USER {permission}`"
            )
        }
        (_, Qualifier::QuotaExceeded, Some(role)) => {
            format!("`omgctl {role} getTenantQuotas TENANT` shows what the tenant may have; support changes it")
        }
        (403, Qualifier::WrongRequest, _) => {
            "`omgctl developer listVersions TENANT PROJECT` shows the versions of the stage's project".to_owned()
        }
        (403, _, Some(role)) => format!("is the stored token one of {role}? `omgctl {role} printCurrent` tells"),
        (404, Qualifier::ObjectNotFound, None) if route.contains("/developer/") => {
            "developers log in by their ids or the names that support gave them: `omgctl support listDevelopers` shows both"
                .to_owned()
        }
        (404, Qualifier::ObjectNotFound, None) => {
            "admin and support log in by their names: `omgctl admin listUsers` shows everybody".to_owned()
        }
        (404, Qualifier::ObjectNotFound | Qualifier::ParentNotFound, Some(role)) => {
            format!("`omgctl {}` shows what is there", list_of(kind(message), role)?)
        }
        (409, Qualifier::WrongVersionState, _) => {
            "name one by `omgctl developer createImage TENANT PROJECT VERSION UNIVERSAL IMAGE`".to_owned()
        }
        (400, Qualifier::DbConstraintViolated, _) if route.ends_with("-alias") => "choose another name".to_owned(),
        _ => return None,
    };
    Some(hint)
}

/// What is missing, as in ``project `hello` not found``.
fn kind(message: &str) -> &str {
    message.split(' ').next().unwrap_or_default()
}

/// The command that shows what there is of a kind.
fn list_of(kind: &str, role: Role) -> Option<String> {
    Some(match kind {
        "developer" | "user" if role == Role::Admin => "admin listUsers --all".to_owned(),
        "developer" | "user" => "support listDevelopers --all".to_owned(),
        "tenant" => format!("{role} listTenants --all"),
        "project" => format!("{role} listProjects TENANT --all"),
        "stage" => format!("{role} listStages TENANT PROJECT --all"),
        "version" => "developer listVersions TENANT PROJECT --all".to_owned(),
        "deployment" => "developer listDeployments TENANT PROJECT STAGE --all".to_owned(),
        "lobby" => "developer listLobbies TENANT DEPLOYMENT --all".to_owned(),
        "matchmaker" => "developer getDeploymentDetails TENANT DEPLOYMENT".to_owned(),
        _ => return None,
    })
}

/// What helps somebody whose key is not good for an operation.
pub(crate) fn hint_for_key(route: &str) -> String {
    let scope = match permission_for(route) {
        Some(("PROJECT_MANAGER" | "STAGE_MANAGER", _)) => Scope::Manage,
        Some(("VERSION_MANAGER", _)) => Scope::Build,
        Some(("DEPLOYMENT_MANAGER", _)) => Scope::Deploy,
        _ => Scope::Read,
    };
    format!(
        "the stored key is not good for this; `omgctl developer createToken` goes back to user and password, and \
         `omgctl developer createApiKey TENANT NAME --scope {}` makes another key",
        scope.as_str()
    )
}

/// Which permission an operation of a developer needs, and on what.
fn permission_for(route: &str) -> Option<(&'static str, &'static str)> {
    Some(match route.rsplit('/').next()? {
        "get-tenant-details" | "get-tenant-quotas" | "list-usage" | "list-audit-records" | "list-projects" => {
            ("TENANT_VIEWER", "tenant")
        }
        "create-project" | "create-project-alias" | "delete-project" => ("PROJECT_MANAGER", "tenant"),
        "create-stage" | "create-stage-alias" | "delete-stage" => ("STAGE_MANAGER", "project"),
        "create-version" | "upload-files-archive" | "create-image" | "delete-version" => ("VERSION_MANAGER", "project"),
        "deploy-version"
        | "delete-deployment"
        | "create-lobby-request"
        | "delete-lobby"
        | "create-matchmaker-request"
        | "delete-matchmaker"
        | "set-stage-maintenance"
        | "set-stage-variable"
        | "delete-stage-variable"
        | "start-local-run" => ("DEPLOYMENT_MANAGER", "stage"),
        "list-permissions" => return None,
        operation if operation.starts_with("get-") || operation.starts_with("list-") => ("PROJECT_VIEWER", "project"),
        _ => return None,
    })
}
